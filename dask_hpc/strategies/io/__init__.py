"""What reads and writes at the same time."""
