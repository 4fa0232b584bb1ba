"""Who held which node when, as an SVG picture: nodes downwards, time to the right."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import log10

from dask_hpc.model.units import show_duration

# Okabe and Ito's colours, which the colour-blind can tell apart, then lighter cousins.
_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442",
    "#7fb8d8", "#f2cf80", "#80ceb9", "#e5bcd3", "#aad9f4",
)  # fmt: skip
_WHITE_INK = {"#0072b2"}
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 28, 8, 26
_LETTER = 6.6  # width of a character at 11 px


@dataclass(frozen=True, slots=True)
class Held:
    """A job held some nodes from one time to another. ``note`` shows when pointed at."""

    job: str
    nodes: Sequence[str]
    start: float
    end: float
    note: str = ""


def gantt_svg(
    held: Iterable[Held], nodes: Sequence[str], end: float | None = None, *, width: int = 900, row: int = 22
) -> str:
    """The picture. ``nodes`` gives the rows from top to bottom."""
    held = list(held)
    end = end if end is not None else max((one.end for one in held), default=1.0)
    end = end or 1.0
    row = max(3, min(row, 600 // max(len(nodes), 1)))
    height = _TOP + row * len(nodes) + _BOTTOM
    scale = (width - _LEFT - _RIGHT) / end
    names = sorted({one.job for one in held})  # the same colour in every picture of the same jobs
    colour = {job: _COLOURS[i % len(_COLOURS)] for i, job in enumerate(names)}
    parts = [
        f'<svg class="gantt" viewBox="0 0 {width} {height}" width="100%" role="img" '
        f'aria-label="Nodes over time" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="system-ui, sans-serif" font-size="11">'
    ]
    parts += _axis(end, scale, row * len(nodes))
    step = -(-14 // row)  # not every node can be named when rows are thin
    for index, node in enumerate(nodes):
        y = _TOP + row * index
        if index % step == 0:
            parts.append(
                f'<text x="{_LEFT - 6}" y="{y + row / 2 + 4:.1f}" text-anchor="end" '
                f'fill="currentColor">{escape(_cut(node, 13))}</text>'
            )
    place = {node: index for index, node in enumerate(nodes)}
    for one in held:
        parts += _bars(one, place, scale, row, colour[one.job])
    return "".join([*parts, "</svg>"])


def _axis(end: float, scale: float, depth: int) -> list[str]:
    parts = []
    step = _nice(end / 8)
    for tick in range(int(end / step) + 1):
        x = _LEFT + tick * step * scale
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_TOP + depth}" '
            f'stroke="currentColor" stroke-opacity="0.15"/>'
            f'<text x="{x:.1f}" y="{_TOP + depth + 16}" text-anchor="middle" fill="currentColor" '
            f'fill-opacity="0.7">{show_duration(tick * step)}</text>'
        )
    return parts


def _nice(step: float) -> float:
    """The next round number of seconds, minutes, hours or days."""
    for round_step in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400):
        if step <= round_step:
            # below a second decimal steps do
            return float(round_step) if step > 0.5 else 10.0 ** -(int(-log10(step)) if step > 0 else 0)
    return 86400.0 * -(-step // 86400)


def _bars(one: Held, place: dict[str, int], scale: float, row: int, colour: str) -> Iterable[str]:
    """One rectangle for each run of neighbouring rows."""
    rows = sorted(place[node] for node in one.nodes if node in place)
    x, width = _LEFT + one.start * scale, max((one.end - one.start) * scale, 1.0)
    first = 0
    for at in range(1, len(rows) + 1):
        if at < len(rows) and rows[at] == rows[at - 1] + 1:
            continue
        y, height = _TOP + row * rows[first], row * (at - first)
        first = at
        tip = f"{one.job}: {len(one.nodes)} nodes, {show_duration(one.start)} to {show_duration(one.end)}"
        tip += f"\n{one.note}" if one.note else ""
        yield (
            f'<g><title>{escape(tip)}</title><rect x="{x:.1f}" y="{y + 0.5}" width="{width:.1f}" '
            f'height="{height - 1}" rx="2" fill="{colour}"/>'
        )
        if width > len(one.job) * _LETTER + 6 and height >= 12:
            ink = "#fff" if colour in _WHITE_INK else "#000"
            yield (
                f'<text x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}" text-anchor="middle" '
                f'fill="{ink}">{escape(one.job)}</text>'
            )
        yield "</g>"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else "…" + text[1 - length :]
