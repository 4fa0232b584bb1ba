"""The worker's half of the checkpoint service. Workers get all of it by value."""
