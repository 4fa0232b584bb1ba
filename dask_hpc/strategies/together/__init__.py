"""Which kinds of tasks share a node."""
