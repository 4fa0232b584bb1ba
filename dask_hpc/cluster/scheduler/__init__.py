"""What runs on the scheduler."""
