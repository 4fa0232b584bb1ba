"""A read-only view of everything a decision may look at, at one instant."""

from collections.abc import Iterator, Mapping
from operator import attrgetter

from dask_hpc.model.corridor import Corridor
from dask_hpc.model.indices import Indices, Running
from dask_hpc.model.node import Node
from dask_hpc.model.power import PowerView
from dask_hpc.model.waiting import Waiting

_order = attrgetter("order")


class Snapshot:
    """A view over the indices a body keeps, not a copy: nothing is paid for what is not read.

    Valid until the body next changes its indices; ``freeze()`` gives one that lasts, which can be
    pickled and replayed.
    """

    __slots__ = ("_idle", "_indices", "corridor", "mtct", "nodes", "requests", "running", "waiting")

    def __init__(self, indices: Indices, corridor: Corridor | None = None) -> None:
        self._indices = indices
        self._idle = indices.idle
        self.corridor = corridor
        #: the nodes by name
        self.nodes: Mapping[str, Node] = indices.nodes
        #: the queue in the policy's order
        self.waiting: Waiting = indices.waiting
        #: running jobs by id
        self.running: Mapping[str, Running] = indices.running
        #: communication over compute time of running jobs, as last measured; not known of every job
        self.mtct: Mapping[str, float] = indices.mtct
        #: sizes that evolving jobs have asked for and not been answered yet
        self.requests: Mapping[str, int] = indices.requests

    @property
    def now(self) -> float:
        """Seconds on the body's clock."""
        return self._indices.now

    @property
    def idle(self) -> int:
        """How many nodes no job holds."""
        return len(self._idle)

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @property
    def resizable(self) -> list[Running]:
        """Running jobs that may be resized now, in order of start: malleable or evolving, not changing
        size at the moment, and not resized at this very time."""
        now = self._indices.now
        found = [r for r in self._indices.resizable.values() if r.resized_at != now]
        found.sort(key=_order)
        return found

    @property
    def is_resizing(self) -> bool:
        """Whether any job is changing its size just now."""
        return any(running.target is not None for running in self._indices.running.values())

    @property
    def overhead(self) -> float:
        """Seconds that a job holds its nodes before and after its work, as far as the body knows."""
        return self._indices.overhead

    @property
    def power(self) -> PowerView | None:
        """What is known of power, if anybody looks."""
        return self._indices.power

    @property
    def failed(self) -> tuple[str, ...]:
        """Jobs that lost a node in this very instant; they wait again, ahead of the queue."""
        return self._indices.failed

    @property
    def revision(self) -> int:
        """Changes whenever what runs, or the set of nodes, has changed."""
        return self._indices.revision

    def by_expected_end(self) -> Iterator[Running]:
        """Running jobs, the one expected to end first in front."""
        return (running for _, _, running in self._indices.by_end)

    def freeze(self) -> "Snapshot":
        """The same view on a copy: later events do not show in it."""
        return Snapshot(self._indices.copy(), self.corridor)

    def thaw(self) -> Indices:
        """The same machine for a body of its own, which may change it."""
        return self._indices.copy()

    def __reduce__(self) -> tuple[type["Snapshot"], tuple[Indices, Corridor | None]]:
        return Snapshot, (self._indices, self.corridor)
