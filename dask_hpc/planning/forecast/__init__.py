"""What power will do."""
