"""What to ask of a batch system, and when it would start: from its queue as anybody can see it."""
