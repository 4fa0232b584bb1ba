"""I/O lanes: how many tasks read from one file system at once."""
