"""A cap on the power of a whole node, kept by capping its packages; the rest of the node is taken as it is.

What a node's packages may use is what is left of its cap when everything else has what it draws now. Both
are looked at with every sample, so a cap needs a counter of the packages as well as the right to set it.
"""

from dask_hpc.model.errors import InputError
from dask_hpc.power.caps import CannotCap, PackageCaps
from dask_hpc.power.node_meter import NodePower

_STEP = 0.01  # of what the packages may use: smaller changes are not worth setting


class NodeCap:
    """``follow`` it with every sample."""

    def __init__(self, root: str = "/", caps: PackageCaps | None = None) -> None:
        self._caps = caps or PackageCaps(root)
        self._set: float | None = None
        #: the watts a node can be capped to now, the least and the most; None if it cannot be
        self.bounds: tuple[float, float] | None = None
        #: the watts it is capped to; None if it is not
        self.watts: float | None = None

    def follow(self, wanted: float | None, power: NodePower) -> None:
        """From now on so many watts, or as many as can be; None is no cap."""
        if wanted is None:
            self.close()
        self.bounds = None
        packages = [row for row in power.rows if row.covers == "processor" and not row.within]
        if not packages or any(row.watts is None for row in packages):
            return  # what the rest draws is not known; a cap that is set stays
        rest = max(0.0, power.reading.watts - sum(row.watts or 0.0 for row in packages))
        try:
            if self._caps.why_not():
                return
            least, most = self._caps.bounds()
            self.bounds = (least + rest, most + rest)
            if wanted is not None:
                target = min(max(wanted - rest, least), most)
                if self._set is None or abs(target - self._set) > _STEP * most:
                    self._caps.set(target)
                    self._set = target
                self.watts = self._set + rest
        except (CannotCap, InputError, OSError):  # the packages are not ours to cap any more
            self.bounds = self.watts = self._set = None

    def close(self) -> None:
        """No cap any more."""
        if self._set is not None:
            self._caps.close()
        self.watts = self._set = None
