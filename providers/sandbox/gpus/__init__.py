"""Simulated GPUs of sandbox machines: a driver's library that answers from a text file on the machine."""
