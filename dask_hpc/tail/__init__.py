"""Backup tasks: slow tasks run twice at the end of a stage, and slow nodes are named."""
