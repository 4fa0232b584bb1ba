"""What runs in the client, where the cluster object is."""
