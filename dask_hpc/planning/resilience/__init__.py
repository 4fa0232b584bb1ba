"""What a protection against failures costs, and which one costs least (003, chapters 3 to 5)."""
