"""What happens to jobs whose nodes fail."""
