"""What a worker sees of its tasks: when they ran, and what they took of memory and of the last cache."""
