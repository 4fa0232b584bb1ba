"""The worker's half of a cap of power: how many watts its node may draw. The power plugin sees to it.

Travels by value, to workers that cannot import dask_hpc: imports nothing but distributed.
"""

from distributed import WorkerPlugin

NAME = "dask-hpc-cap"


class CapPlugin(WorkerPlugin):
    """While it is there, the node is to draw at most so many ``watts``."""

    name = NAME

    def __init__(self, watts: float) -> None:
        self.watts = watts
