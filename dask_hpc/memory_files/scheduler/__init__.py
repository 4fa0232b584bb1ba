"""Names, sizes and places of all files, and which workers keep their blocks."""
