"""Checkpoint agents: how many, on which nodes, and how many nodes there are for them."""
