"""Strategies for the ends of stages, when slow tasks keep everybody else waiting."""
