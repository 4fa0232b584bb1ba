"""What a program and a client have of checkpoints."""
