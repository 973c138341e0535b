"""Temporal workflow definitions: deterministic, no I/O. The worker registers what WORKFLOWS lists."""
