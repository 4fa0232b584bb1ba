"""Sensors and caps of a node."""
