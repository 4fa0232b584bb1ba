"""Strategies for nodes that services ask for."""
