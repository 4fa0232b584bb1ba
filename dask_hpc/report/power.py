"""Power over time as a curve with its corridor, in the unit that suits it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from math import inf

from dask_hpc.model.units import show_duration, show_large
from dask_hpc.report.timeline import Curve, Mark

_SCALES = ((2e6, 1e6, "MW"), (2e3, 1e3, "kW"), (0.0, 1.0, "W"))

#: (from time, lower, upper) in watts
Steps = Sequence[tuple[float, float, float]]


def power_curve(
    time: Sequence[float],
    watts: Sequence[float],
    *,
    band: Steps = (),
    forecast: Steps = (),
    outside: Iterable[tuple[float, float]] = (),
    marks: Sequence[Mark] = (),
    name: str = "power",
) -> Curve:
    """All powers in watts. Bounds may be repeated; of ``outside``, what is said is found here."""
    bounds = [bound for _, lower, upper in band for bound in (lower, upper) if bound < inf]
    highest = max([*watts, *bounds], default=0.0)
    scale, unit = next((scale, unit) for least, scale, unit in _SCALES if highest >= least)
    return Curve(
        name,
        unit,
        time,
        [value / scale for value in watts],
        band=[(when, lower / scale, upper / scale) for when, lower, upper in _changes(band)],
        forecast=[(when, least / scale, most / scale) for when, least, most in forecast],
        outside=[(start, end, _said(start, end, time, watts, band)) for start, end in outside],
        marks=marks,
    )


def _changes(band: Steps) -> Steps:
    """The steps that change anything."""
    return [
        step
        for number, step in enumerate(band)
        if not number or tuple(step[1:]) != tuple(band[number - 1][1:])
    ]


def _said(start: float, end: float, time: Sequence[float], watts: Sequence[float], band: Steps) -> str:
    """For how long it was outside, and how far at most."""
    above = below = 0.0
    steps = [step[0] for step in band]
    for when in {start, *_between(time, start, end), *_between(steps, start, end)} if band and time else ():
        value = watts[max(bisect_right(time, when) - 1, 0)]
        _, lower, upper = band[max(bisect_right(steps, when) - 1, 0)]
        above, below = max(above, value - upper), max(below, lower - value)
    parts = [
        f"up to {show_large(by, 'W')} {where}" for by, where in ((above, "above"), (below, "below")) if by
    ]
    return f"outside for {show_duration(end - start)}" + (f", {' and '.join(parts)}" if parts else "")


def _between(times: Sequence[float], start: float, end: float) -> Sequence[float]:
    return times[bisect_right(times, start) : bisect_left(times, end)]
