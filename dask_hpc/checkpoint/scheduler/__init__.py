"""The scheduler's half of checkpoints: the controller."""
