"""A storm: overlapping operations while everything around them dies, freezes and is cut off at random."""
