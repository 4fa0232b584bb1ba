"""How long each iteration of a pipeline took, and each part of the machine for it, as was measured and as was
planned, as an SVG picture."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby, pairwise
from math import floor, isfinite, log10
from typing import Any, NamedTuple

from dask_hpc.model.partition import Phases
from dask_hpc.model.units import show_duration

#: Okabe and Ito's blue, orange and green: the simulation, in situ, in transit
COLOURS: Mapping[str, str] = {"simulation": "#0072b2", "in_situ": "#e69f00", "in_transit": "#009e73"}
NAMES: Mapping[str, str] = {"simulation": "simulation", "in_situ": "in situ", "in_transit": "in transit"}
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 16, 30, 36


class Iteration(NamedTuple):
    """One iteration: seconds until the next, and of each part, measured and planned (if they were)."""

    number: int
    seconds: float
    measured: Phases
    planned: Phases | None = None
    #: seconds until the next that were planned
    expected: float | None = None


def heard(history: Iterable[Mapping[str, Any]]) -> list[Iteration]:
    """Iterations that were told in a pipeline's status."""
    return [
        Iteration(
            one["iteration"],
            one["seconds"],
            Phases(**one["measured"]),
            None if one["planned"] is None else Phases(**one["planned"]),
            one["expected"],
        )
        for one in history
    ]


def phases_svg(
    iterations: Iterable[Iteration],
    changes: Mapping[int, str] | None = None,
    *,
    last: int | None = None,
    width: int = 900,
    height: int = 260,
) -> str:
    """Iterations to the right, from the first that is given up to ``last``. Bars are whole iterations, lines
    their parts; what was planned is dashed. ``changes`` says, by iteration, why all was divided anew."""
    rows = list(iterations)
    first = rows[0].number if rows else 0
    end = max(last or 0, first, *(one.number for one in rows)) + 1
    chart = _Chart(rows, changes or {}, range(first, end), _top(rows), width, height)
    return "".join(
        [
            f'<svg class="phases" viewBox="0 0 {width} {height}" width="100%" role="img" '
            f'aria-label="Seconds of each iteration, measured and planned" '
            f'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="11">',
            *chart.axes(),
            *chart.bars(),
            *chart.planned(),
            *chart.measured(),
            *chart.changes(),
            *_legend(),
            "</svg>",
        ]
    )


class _Chart:
    """Where everything stands."""

    def __init__(
        self,
        rows: Sequence[Iteration],
        changes: Mapping[int, str],
        shown: range,
        top: float,
        width: int,
        height: int,
    ) -> None:
        self._rows, self._changes, self._shown, self._top = rows, changes, shown, top
        self._width, self._height = width, height
        self._step = (width - _LEFT - _RIGHT) / len(shown)

    def axes(self) -> Iterable[str]:
        """Round seconds and round numbers of iterations."""
        step = nice_step(self._top / 4)
        for tick in range(int(self._top / step + 1e-9) + 1):
            y = self._y(tick * step)
            yield (
                f'<line x1="{_LEFT}" x2="{self._width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="currentColor" stroke-opacity="0.13"/><text x="{_LEFT - 6}" y="{y + 4:.1f}" '
                f'text-anchor="end" fill="currentColor" fill-opacity="0.75">'
                f"{show_duration(tick * step)}</text>"
            )
        every = max(1, round(nice_step(len(self._shown) / 10)))
        for number in self._shown:
            if number % every:
                continue
            yield (
                f'<text x="{self._x(number + 0.5):.1f}" y="{self._height - 20}" text-anchor="middle" '
                f'fill="currentColor" fill-opacity="0.75">{number}</text>'
            )
        yield (
            f'<text x="{(_LEFT + self._width - _RIGHT) / 2}" y="{self._height - 4}" text-anchor="middle" '
            f'fill="currentColor" fill-opacity="0.75">iteration</text>'
        )

    def bars(self) -> Iterable[str]:
        """Whole iterations."""
        for one in self._rows:
            y = self._y(min(one.seconds, self._top))
            parts = ", ".join(
                f"{NAMES[name]} {show_duration(value)}" for name, value in one.measured._asdict().items()
            )
            planned = "" if one.expected is None else f", planned {show_duration(one.expected)}"
            tip = f"iteration {one.number}: {show_duration(one.seconds)}{planned}\n{parts}"
            yield (
                f'<rect x="{self._x(one.number) + 0.08 * self._step:.1f}" y="{y:.1f}" '
                f'width="{0.84 * self._step:.1f}" height="{max(self._y(0) - y, 0):.1f}" '
                f'fill="currentColor" fill-opacity="0.13"><title>{escape(tip)}</title></rect>'
            )

    def planned(self) -> Iterable[str]:
        """What was planned, for as long as the plan was the same."""
        for (planned, expected), group in groupby(self._rows, lambda one: (one.planned, one.expected)):
            if planned is None:
                continue
            numbers = [one.number for one in group]
            left, right = self._x(numbers[0]), self._x(numbers[-1] + 1)
            whole = [] if expected is None else [("currentColor", expected, 1.6)]
            parts = [(COLOURS[name], value, 1.4) for name, value in planned._asdict().items()]
            for colour, value, thick in parts + whole:
                y = self._y(value)
                yield (
                    f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" '
                    f'stroke-width="{thick}" stroke-dasharray="5 3"/>'
                )

    def measured(self) -> Iterable[str]:
        """A line for each part of the machine that had any work."""
        for name, colour in COLOURS.items():
            values = [(one.number, getattr(one.measured, name)) for one in self._rows]
            if not any(value for _, value in values):
                continue
            points = " ".join(f"{self._x(number + 0.5):.1f},{self._y(value):.1f}" for number, value in values)
            yield (
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" '
                f'stroke-linejoin="round"/>'
            )

    def changes(self) -> Iterable[str]:
        """Where the partition was made anew, and why."""
        for number, why in sorted(self._changes.items()):
            if number not in self._shown:
                continue
            x = self._x(number)
            yield (
                f"<g><title>{escape(f'from iteration {number}: {why}')}</title>"
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 4}" y2="{self._y(0):.1f}" '
                f'stroke="#d55e00" stroke-width="1.5"/>'
                f'<path d="M{x - 6:.1f},{_TOP - 12} h12 l-6,9 z" fill="#d55e00"/></g>'
            )

    def _x(self, number: float) -> float:
        return _LEFT + (number - self._shown.start) * self._step

    def _y(self, seconds: float) -> float:
        share = min(seconds, self._top) / self._top
        return self._height - _BOTTOM - share * (self._height - _BOTTOM - _TOP)


def nice_step(least: float) -> float:
    """The next of 1, 2, 5, 10, 20, ... (and of 0.5, 0.2, ...)."""
    if least <= 0:
        return 1.0
    ten = 10.0 ** floor(log10(least))
    return next(number * ten for number in (1, 2, 5, 10) if number * ten >= least * 0.999)


def _top(rows: Sequence[Iteration]) -> float:
    """The axis holds what was planned and measured, but for what stands out in a single iteration."""
    planned = [value for one in rows for value in (one.expected or 0.0, *(one.planned or ()))]
    longest = [max(one.seconds, *one.measured) for one in rows]
    usual = [min(pair) for pair in pairwise(longest)] or longest
    return 1.12 * max([value for value in planned + usual if isfinite(value)], default=0.0) or 1.0


def _legend() -> Iterable[str]:
    x = float(_LEFT)
    for name, colour in COLOURS.items():
        yield f'<rect x="{x:.0f}" y="7" width="18" height="4" rx="2" fill="{colour}"/>'
        yield f'<text x="{x + 23:.0f}" y="13" fill="currentColor">{NAMES[name]}</text>'
        x += 34 + 6.2 * len(NAMES[name])
    yield f'<rect x="{x:.0f}" y="4" width="12" height="10" fill="currentColor" fill-opacity="0.2"/>'
    yield f'<text x="{x + 17:.0f}" y="13" fill="currentColor">whole iteration</text>'
    x += 116
    yield (
        f'<line x1="{x:.0f}" x2="{x + 20:.0f}" y1="9" y2="9" stroke="currentColor" stroke-width="1.6" '
        f'stroke-dasharray="5 3"/><text x="{x + 25:.0f}" y="13" fill="currentColor">planned</text>'
    )
    x += 84
    yield f'<path d="M{x:.0f},5 h12 l-6,9 z" fill="#d55e00"/>'
    yield f'<text x="{x + 17:.0f}" y="13" fill="currentColor">divided anew</text>'
