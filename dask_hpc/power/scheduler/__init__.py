"""What the scheduler knows of power, and does about it."""
