"""What jobs of a workload commit while they run, so that a node that fails costs them little."""
