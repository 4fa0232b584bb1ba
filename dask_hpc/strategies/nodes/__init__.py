"""Which nodes a job gets."""
