"""Benchmarks, each a module that prints its figures and a ratio against a named peer of the same run."""
