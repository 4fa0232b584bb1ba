"""Strategies for scratch files in the memory of a cluster: how many nodes keep them."""
