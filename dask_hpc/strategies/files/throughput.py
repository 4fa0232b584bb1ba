"""Throughput: files in memory get nodes while operations are too slow, and lose some that are not needed."""

from dataclasses import dataclass
from math import ceil, inf
from statistics import fmean
from typing import Annotated, ClassVar

from dask_hpc.model.parameter import Parameter
from dask_hpc.model.units import count_nodes, counted, show_large
from dask_hpc.strategies.files.files_view import FilesResize, FilesView
from dask_hpc.strategies.strategy import FilesStrategy

_ROUNDING = 1e-9  # of a node: no reason for another one


@dataclass(frozen=True, slots=True)
class Throughput(FilesStrategy):
    """A file system has as many nodes as it takes for its operations to be as fast as recommended.

    Work 002, 3.2.1 (Hercules): of the newest operations the mean distance from the recommended rate is taken;
    within a tolerance all stays, below it nodes are added, above it some are taken away. Deviations:

    1. The source compares that *distance* with the rate plus or minus the tolerance, and its window has one
       operation more than it says. We compare it with the tolerance, over as many as are said.
    2. How many come, it leaves open: as many as there must be if the rate grows with their number. One goes
       at a time, as whoever goes moves what it keeps, and only if by the same reckoning the others are fast
       enough without it: else two nodes, of which one is too few, come and go for ever (``steady: false`` is
       as printed).
    3. Window, tolerance and the time between two changes are not given, and are ours. A window that is not
       full is judged from ``fewest`` operations on: large ones are rare.
    4. If an expansion made operations hardly faster, it is not servers that are lacking (in its 3.2.4 reads
       fill the network), and none follows until something else has changed their number.

    Bounds beat all that, at once: there is room for what is kept, though a person allows fewer nodes; then a
    person's bounds hold, the lower before the upper.
    """

    name: ClassVar[str] = "throughput"
    essential = ("tolerance", "cool_down")

    window: Annotated[int, Parameter("newest operations that are looked at", low=1, high=10_000)] = 20
    fewest: Annotated[
        int, Parameter("operations from which on something is decided; never more than the window", low=1)
    ] = 5
    tolerance: Annotated[
        float,
        Parameter("share of what is recommended by which the mean may be off", low=0, high=1),
    ] = 0.1
    cool_down: Annotated[float, Parameter("how long after a change nothing is decided", "s", low=0)] = 30.0
    worth: Annotated[
        float, Parameter("no expansion follows one that made operations faster by a smaller share", low=0)
    ] = 0.1
    steady: Annotated[bool, Parameter("shrink only if the nodes that stay will be fast enough")] = True

    def decide(self, view: FilesView) -> FilesResize | None:
        """How many nodes keep its blocks from now on; None: as many as do."""
        if view.ended:
            return None
        least = max(1, view.least, view.needed)
        most = max(least, view.most)
        if not least <= view.servers <= most:
            return _into_bounds(view, least, most)
        rates = [rate for rate in view.rates[-self.window :] if 0 <= rate < inf]
        if view.since_change < self.cool_down or len(rates) < min(self.fewest, self.window):
            return None
        if not 0 < view.recommended < inf:
            return None
        mean = fmean(rates)
        off, tolerated = mean - view.recommended, self.tolerance * view.recommended
        found = f"{counted(len(rates), 'operation')} at {_rate(mean)} on average"
        if off < -tolerated and view.servers < most and not self._brought_little(view, mean):
            return _expanded(view, mean, most, found)
        if off > tolerated and view.servers > least:
            return self._shrunk(view, mean, tolerated, found)
        return None

    def _brought_little(self, view: FilesView, mean: float) -> bool:
        """Whether the last change was an expansion after which operations are hardly faster."""
        return view.before is not None and mean < (1 + self.worth) * view.before

    def _shrunk(self, view: FilesView, mean: float, tolerated: float, found: str) -> FilesResize | None:
        left = view.servers - 1
        then = mean * left / view.servers
        if self.steady and then < view.recommended - tolerated:
            return None
        wanted = f"more than the {_rate(view.recommended)} recommended"
        return FilesResize(left, f"{found}, {wanted}: {count_nodes(left)} should give {_rate(then)}")


def _into_bounds(view: FilesView, least: int, most: int) -> FilesResize:
    """As near as may be."""
    is_few = view.servers < least
    target, bound = (least, view.least) if is_few else (most, view.most)
    if target == view.needed > bound:
        though = f", though {view.most} are the most allowed" if target > view.most else ""
        return FilesResize(target, f"what is kept needs {count_nodes(target)}{though}")
    which = "fewest" if is_few or target > view.most else "most"
    return FilesResize(target, f"{count_nodes(target)} instead of {view.servers}: the {which} allowed")


def _expanded(view: FilesView, mean: float, most: int, found: str) -> FilesResize:
    wanted = f"less than the {_rate(view.recommended)} recommended"
    # bounded before it is rounded: rates may be next to nothing
    enough = view.servers * view.recommended / mean if mean else inf
    target = max(ceil(min(enough, most) - _ROUNDING), view.servers + 1)
    if enough > most:
        return FilesResize(target, f"{found}, {wanted}: {count_nodes(most)}, the most allowed")
    then = _rate(mean * target / view.servers)
    return FilesResize(target, f"{found}, {wanted}: {count_nodes(target)} should give {then}")


def _rate(value: float) -> str:
    return show_large(value, "B/s")
