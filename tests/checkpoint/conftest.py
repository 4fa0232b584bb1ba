"""What one test armed is forgotten before the next."""

import pytest

from dask_hpc.checkpoint import faults


@pytest.fixture(autouse=True)
def no_fault_was_reached():
    faults._reached.clear()
