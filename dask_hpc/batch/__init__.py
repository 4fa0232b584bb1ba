"""Batch systems: what each of them says of its jobs, and by which commands. Nothing here decides."""
