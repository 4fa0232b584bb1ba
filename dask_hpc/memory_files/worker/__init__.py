"""What one worker of each host does for the programs there."""
