"""A read-only view of everything a decision may look at, at one instant."""

from collections.abc import Iterator, Mapping

from dask_hpc.model.corridor import Corridor
from dask_hpc.model.indices import Indices, Running
from dask_hpc.model.node import Node
from dask_hpc.model.waiting import Waiting


class Snapshot:
    """A view over the indices a body keeps, not a copy: nothing is paid for what is not read.

    Valid until the body next changes its indices; ``freeze()`` gives one that lasts, which can be
    pickled and replayed.
    """

    __slots__ = ("_indices", "corridor")

    def __init__(self, indices: Indices, corridor: Corridor | None = None) -> None:
        self._indices = indices
        self.corridor = corridor

    @property
    def now(self) -> float:
        """Seconds on the body's clock."""
        return self._indices.now

    @property
    def idle(self) -> int:
        """How many nodes no job holds."""
        return len(self._indices.idle)

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self._indices.nodes)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._indices.nodes

    @property
    def waiting(self) -> Waiting:
        """The queue in the policy's order."""
        return self._indices.waiting

    @property
    def running(self) -> Mapping[str, Running]:
        """Running jobs by id."""
        return self._indices.running

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

    def __reduce__(self) -> tuple[type["Snapshot"], tuple[Indices, Corridor | None]]:
        return Snapshot, (self._indices, self.corridor)
