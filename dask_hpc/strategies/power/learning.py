"""What measured and forecast power teach about the figures that decisions are made from."""

from math import exp, inf
from typing import NamedTuple

from dask_hpc.model.power import UNKNOWN, PowerRange, PowerView
from dask_hpc.model.snapshot import Snapshot

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
