"""Which tasks may not run at the same time in the memory of a worker."""
