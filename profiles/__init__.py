"""The recipe language: read, check, freeze and compile to steps. No I/O but the shipped recipes."""
