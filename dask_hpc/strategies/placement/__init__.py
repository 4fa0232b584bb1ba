"""Where analyses run."""
