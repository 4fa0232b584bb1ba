"""Scratch files in the memory of workers: they grow and shrink with the cluster, and end with it."""
