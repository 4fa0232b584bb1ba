"""The suite of real workloads is beside the notebooks that measure it."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "notebooks" / "benchmarks"
sys.path.insert(0, str(FOLDER))  # also where workers look, which are started with the same path
