"""Small programs to begin with: shown by the demo and the tutorial, measured by benchmarks."""
