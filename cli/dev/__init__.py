"""`bringup dev`: the embedded default, started and supervised as child processes."""
