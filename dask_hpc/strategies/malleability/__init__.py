"""Which running jobs grow and shrink."""
