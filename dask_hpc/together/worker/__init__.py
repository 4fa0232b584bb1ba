"""What a worker sees of its tasks: when they ran, how much memory they took, how often they missed the cache."""
