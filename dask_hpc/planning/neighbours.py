"""To which of the workers with an open slot a read goes: where the read before it went.

Dask's order puts reads next to each other whose data are needed together, whatever lies between: no graph has
to be searched for that.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

#: reads per thread that a worker may be ahead of another for the sake of neighbours
_RUN = 2.0


class Opening(NamedTuple):
    """A worker that can take tasks: how busy each of its threads is, and how many threads it has."""

    load: float
    address: str
    threads: int


def place(openings: Collection[Opening], last: str | None, given: Mapping[str, int]) -> str:
    """The worker for the next read. ``last`` got the one before; ``given``: how many reads each has got.

    Threads that have nothing to do go first, as in Dask. Among those workers it is the last one again,
    unless it is far ahead of others: so reads go to the workers in runs, and all get their share.
    """
    idle = [one for one in openings if one.load < 1] or openings
    ahead = {one.address: given.get(one.address, 0) / one.threads for one in idle}
    least = min(ahead.values())
    if last in ahead and ahead[last] - least < _RUN:
        return last
    return min(idle, key=lambda one: (ahead[one.address], one.load, one.address)).address
