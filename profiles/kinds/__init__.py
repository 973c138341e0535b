"""Step kinds, one module each: what its `with` takes, and the shell text that it becomes."""
