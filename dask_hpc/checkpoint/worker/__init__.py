"""The worker's half of checkpoints: the agent."""
