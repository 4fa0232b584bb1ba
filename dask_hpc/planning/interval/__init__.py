"""When to commit a checkpoint, and to which level: models of what failures cost, and the best plan."""
