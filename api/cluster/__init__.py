"""The cluster API: REST over clusters, nodes and operations, in the words that its clients know."""
