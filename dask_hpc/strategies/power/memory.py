"""What the power strategy remembers between decisions, and what measured and forecast power teach it."""

from collections.abc import Mapping
from math import exp, inf
from typing import NamedTuple

from dask_hpc.model.plan import Resize, Start
from dask_hpc.model.power import UNKNOWN, PowerRange, PowerView
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.power.balance import TINY, PowerBounds, Side

_SETTLES = 10.0  # seconds that meters and machines take to follow a change, at least
_STALE = 10  # so many times as long, after which a forecast that was never renewed counts no more


class Learned(NamedTuple):
    """``bias``: watts drawn beyond all figures. ``extra``: watts that a forecast goes beyond those, at
    either end. Learned while nothing changed: readings lag, and who takes the lag for a lasting
    difference answers each of its own changes with another one."""

    bias: float = 0.0
    extra: PowerRange = UNKNOWN
    foretold: float = -inf
    forecast: PowerRange | None = None
    foretold_in: int = -1
    revision: int = -1
    time: float = -inf
    since: float = -inf


def learn(
    before: Learned,
    snapshot: Snapshot,
    view: PowerView,
    figures: PowerRange,
    dwell: float,
    follows_forecast: bool,
) -> Learned:
    """What is known after this look. ``figures``: what the machine as it is should draw."""
    now, settles = snapshot.now, max(dwell, _SETTLES)
    is_same = before.revision == snapshot.revision
    after = before._replace(revision=snapshot.revision, time=now, since=before.since if is_same else now)
    if view.doubt:
        return after._replace(bias=max(0.0, before.bias))
    if view.source == "modelled":
        after = after._replace(bias=0.0)
    elif is_same:
        missed = view.watts - max(figures.least, min(view.watts, figures.most))
        if abs(missed) <= view.uncertainty:
            missed = 0.0
        share = 1.0 - exp(-(now - before.time) / settles)
        after = after._replace(bias=before.bias + share * (missed - before.bias))
    if view.forecast is None or not follows_forecast or now - after.foretold > _STALE * settles:
        after = after._replace(extra=UNKNOWN)
    # the same forecast after it was answered is only an old one
    is_news = view.forecast != after.forecast or snapshot.revision == after.foretold_in
    if view.forecast is not None and follows_forecast and is_news and now - after.since >= settles:
        least, most = figures.least + after.bias, figures.most + after.bias
        extra = PowerRange(max(0.0, least - view.forecast.least), max(0.0, view.forecast.most - most))
        after = after._replace(extra=extra, foretold=now, forecast=view.forecast, foretold_in=after.revision)
    return after


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
    bounds: tuple[PowerBounds, ...]
    doubt: str
    outside: tuple[int, int, int]
    wishes: tuple[tuple[Start, ...], tuple[Resize, ...]]
    watts: tuple[float, ...]

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
