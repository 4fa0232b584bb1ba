"""Who slows whom beside them on a node, by how much, and what to do about it (seed 003, chapter 2)."""
