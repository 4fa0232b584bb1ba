"""Meters of a node's power, and caps on it."""
