"""Workloads of published evaluations, and of our own; ``workloads`` knows their names."""
