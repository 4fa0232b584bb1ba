"""What the power strategy remembers between decisions."""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from dask_hpc.model.plan import Resize, Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.power.balance import TINY, Balance
from dask_hpc.strategies.power.bounds import Bounds, Side
from dask_hpc.strategies.power.learning import Learned


class Told(NamedTuple):
    """The verdict that was told last: who hears it twice learns nothing."""

    lower: float = 0.0
    upper: float = inf
    is_kept: bool = True
    is_wary: bool = False


class Seen(NamedTuple):
    """What a decision was made from that came to nothing: the same again will come to the same."""

    revision: int
    arrivals: int
    until: float
    bounds: tuple[Bounds, ...]
    doubt: str
    outside: tuple[int, int, int]
    wishes: tuple[tuple[Start, ...], tuple[Resize, ...]]
    watts: tuple[float, ...]

    @classmethod
    def now(
        cls,
        snapshot: Snapshot,
        balance: Balance,
        bounds: tuple[Bounds, ...],
        wishes: tuple[tuple[Start, ...], tuple[Resize, ...]],
        until: float,
    ) -> "Seen":
        """Of this moment."""
        view = balance.view
        return cls(
            snapshot.revision,
            snapshot.waiting.arrivals,
            until,
            bounds,
            view.doubt,
            (view.outside_nodes, view.outside_wanted, view.releasable),
            wishes,
            (view.watts, *balance.planned, balance.peak),
        )

    def is_like(self, other: "Seen", hysteresis: float, now: float) -> bool:
        """Whether nothing that matters has changed."""
        return (
            now < self.until
            and self._replace(until=0.0, watts=()) == other._replace(until=0.0, watts=())
            and all(abs(a - b) <= hysteresis + TINY for a, b in zip(self.watts, other.watts, strict=True))
        )


class Memory(NamedTuple):
    """All of it."""

    learned: Learned = Learned()
    #: the corridor that was planned for last
    bounds: tuple[float, float] | None = None
    #: sizes and starts that were decided and wait for nodes that others are giving up
    goal: Mapping[str, int] = {}
    #: when jobs gave nodes for the sake of power
    gave: Mapping[str, float] = {}
    #: which way sizes were last changed for power, and when
    turned: Side = ""
    turned_at: float = -inf
    #: when levers were last pulled, and what that is going to save
    pulled: Mapping[str, float] = {}
    cut: float = 0.0
    told: Told = Told()
    quiet: Seen | None = None
