"""What runs in the client that owns a pipeline."""
