"""The scheduler's half."""
