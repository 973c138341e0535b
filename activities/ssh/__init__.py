"""SSH connections to machines: opened with deadlines, pooled per machine, every failure typed."""
