"""The efficiency of a plan of commits, and of other intervals, as a picture."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import floor, log

from dask_hpc.model.units import show_duration

#: work between two commits in seconds, and the efficiency
Point = tuple[float, float]

_WIDTH, _HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 24, 64, 52
_INK, _SOFT, _LINE, _MARK = "#222", "#666", "#2563eb", "#c2410c"
_TICKS = 5


def interval_svg(
    efficiency: float, planned: Point | None, curve: Sequence[Point], others: Mapping[str, Point], reason: str
) -> str:
    """The picture. The horizontal axis is logarithmic; other ways are dots if they are on it."""
    title = f"{efficiency:.1%} of the time is work"
    return "".join(
        [
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
            f'aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg" '
            f'font-family="system-ui, sans-serif" font-size="13" fill="{_INK}">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
            f'<text x="{_LEFT}" y="28" font-size="18" font-weight="600">{escape(title)}</text>',
            f'<text x="{_LEFT}" y="48" fill="{_SOFT}">{escape(reason)}</text>',
            *(_Axes(curve, others).draw(planned) if curve else ()),
            "</svg>\n",
        ]
    )


class _Axes:
    """Where a time and an efficiency lie in the picture."""

    def __init__(self, curve: Sequence[Point], others: Mapping[str, Point]) -> None:
        self._curve, self._others = curve, others
        self._begin, self._end = curve[0][0], curve[-1][0]
        shares = [share for _, share in (*curve, *others.values())]
        self._low = min(floor(min(shares) * 10) / 10, 0.9)

    def draw(self, planned: Point | None) -> Iterator[str]:
        """The axes, the curve, and the ways."""
        for tick in range(_TICKS):
            part = tick / (_TICKS - 1)
            share = self._low + part * (1 - self._low)
            y = self._y(share)
            yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#e5e5e5"/>'
            yield _text(_LEFT - 8, y + 4, f"{share:.0%}", _END, _SOFT)
            seconds = self._begin * (self._end / self._begin) ** part
            anchor = _MIDDLE if part < 1 else _END
            yield _text(self._x(seconds), _HEIGHT - _BOTTOM + 20, show_duration(seconds), anchor, _SOFT)
        yield _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, "work between two commits", _MIDDLE, _SOFT)
        points = " ".join(f"{self._x(work):.1f},{self._y(share):.1f}" for work, share in self._curve)
        yield f'<polyline points="{points}" fill="none" stroke="{_LINE}" stroke-width="2"/>'
        if planned is not None:
            x, y = self._x(planned[0]), self._y(planned[1])
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_LINE}"/>'
            yield _text(x, y - 12, f"this plan: {show_duration(planned[0])}", _MIDDLE, _LINE)
        for number, (name, (work, share)) in enumerate(self._others.items()):
            if self._begin <= work <= self._end:
                x, y = self._x(work), self._y(share)
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_MARK}"/>'
                yield _text(x - 10, y + 20 + 16 * number, name, _END, _MARK)

    def _x(self, seconds: float) -> float:
        share = log(seconds / self._begin) / log(self._end / self._begin)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def _y(self, share: float) -> float:
        return _HEIGHT - _BOTTOM - (share - self._low) / (1 - self._low) * (_HEIGHT - _TOP - _BOTTOM)


_MIDDLE, _END = 'text-anchor="middle"', 'text-anchor="end"'


def _text(x: float, y: float, words: str, more: str, colour: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more} fill="{colour}">{escape(words)}</text>'
