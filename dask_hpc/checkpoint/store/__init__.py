"""What lies in a store of checkpoints, how it is written, and how it is read."""
