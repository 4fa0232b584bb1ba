"""To which of the workers with an open slot a read goes: near what will be needed together with it."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

#: reads per thread that a worker may be ahead of another for the sake of neighbours
_RUN = 2.0


class Opening(NamedTuple):
    """A worker that can take tasks: how busy each of its threads is, and how many threads it has."""

    load: float
    address: str
    threads: int


def place(openings: Collection[Opening], near: Mapping[str, int], given: Mapping[str, int]) -> str:
    """The worker for the next read. ``near``: how many of the things that will be needed together with it
    are, or are made, on which worker; ``given``: how many reads each worker was given so far.

    Threads that have nothing to do go first, as in Dask. Among those workers it is the one that has
    most of the neighbours, unless it is far ahead of others: so reads go to the workers in runs, and all get
    their share.
    """
    idle = [one for one in openings if one.load < 1] or openings
    ahead = {one.address: given.get(one.address, 0) / one.threads for one in idle}
    least = min(ahead.values())
    best = min(idle, key=lambda one: _rank(one, near, ahead[one.address] - least))
    return best.address


def _rank(one: Opening, near: Mapping[str, int], ahead: float) -> tuple[int, float, float, str]:
    count = near.get(one.address, 0) if ahead < _RUN else 0
    return -count, ahead if not count else 0.0, one.load, one.address
