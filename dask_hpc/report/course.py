"""How far a program was at which time, as an SVG picture: time to the right, iterations upwards."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from dask_hpc.model.units import show_duration

_LEFT, _RIGHT, _TOP, _BOTTOM, _HIGH = 52, 12, 34, 26, 200
_BLUE, _RED = "#0072b2", "#d55e00"


class Mark(NamedTuple):
    """Something that happened. What ``ends`` the program's line: until it runs again there is none."""

    time: float
    label: str
    ends: bool = False


def course_svg(points: Sequence[tuple[float, int]], marks: Sequence[Mark] = (), *, width: int = 900) -> str:
    """``points`` are times and iterations that were done then, in order of time. Iterations that are done
    again are a step down."""
    end = max([*(time for time, _ in points), *(mark.time for mark in marks)], default=0.0) or 1.0
    most = max((done for _, done in points), default=0) or 1
    across, bottom = (width - _LEFT - _RIGHT) / end, _TOP + _HIGH

    def x(time: float) -> float:
        return _LEFT + time * across

    def y(done: float) -> float:
        return bottom - done * _HIGH / most

    parts = [
        f'<svg class="course" viewBox="0 0 {width} {bottom + _BOTTOM}" width="100%" role="img" '
        f'aria-label="{escape(_words(points, marks))}" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="system-ui, sans-serif" font-size="11">'
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(
            f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y(share * most):.1f}" y2="{y(share * most):.1f}" '
            f'stroke="currentColor" stroke-opacity="0.13"/><text x="{_LEFT - 6}" '
            f'y="{y(share * most) + 4:.1f}" text-anchor="end" fill="currentColor">{share * most:.0f}</text>'
            f'<text x="{x(share * end):.1f}" y="{bottom + 16}" fill="currentColor" text-anchor="'
            f'{"start" if share == 0 else "end" if share == 1 else "middle"}">{show_duration(share * end)}'
            "</text>"
        )
    for piece in _pieces(points, [mark.time for mark in marks if mark.ends]):
        line = " ".join(f"{x(time):.1f},{y(done):.1f}" for time, done in piece)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{_BLUE}" stroke-width="2"/>')
    for number, mark in enumerate(marks):
        top = _TOP - 8 - 14 * (number % 2)  # so that neighbours can be read
        dashes = "" if mark.ends else ' stroke-dasharray="4 3"'
        anchor = "end" if x(mark.time) > width * 0.8 else "start"
        parts.append(
            f'<line x1="{x(mark.time):.1f}" x2="{x(mark.time):.1f}" y1="{top + 3}" y2="{bottom}" '
            f'stroke="{_RED}"{dashes}/><text x="{x(mark.time):.1f}" y="{top}" fill="{_RED}" '
            f'text-anchor="{anchor}">{escape(mark.label)}</text>'
        )
    return "".join([*parts, "</svg>"])


def _pieces(points: Sequence[tuple[float, int]], ends: Sequence[float]) -> list[list[tuple[float, int]]]:
    """The line, cut where the program ended."""
    cuts, pieces = sorted(ends), [[]]  # type: list[float], list[list[tuple[float, int]]]
    for time, done in points:
        while cuts and time > cuts[0]:
            cuts.pop(0)
            pieces.append([])
        pieces[-1].append((time, done))
    return [piece for piece in pieces if piece]


def _words(points: Sequence[tuple[float, int]], marks: Sequence[Mark]) -> str:
    """All that can be seen, for those who cannot."""
    done = f"iteration {points[-1][1]} after {show_duration(points[-1][0])}" if points else "no iteration"
    return "; ".join([done, *(f"{mark.label} at {show_duration(mark.time)}" for mark in marks)])
