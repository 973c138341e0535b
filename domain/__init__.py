"""Types and rules without I/O. Imports nothing else of this project."""
