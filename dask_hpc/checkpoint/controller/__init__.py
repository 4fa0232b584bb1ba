"""The scheduler's half of the checkpoint service."""
