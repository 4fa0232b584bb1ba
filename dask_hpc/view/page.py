"""One self-contained HTML page: no network, readable in light and dark."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from math import inf, log10
from pathlib import Path
from typing import Any, Literal

from dask_hpc.model.units import show_duration, show_large

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p.lead { margin-top: .2rem; opacity: .75; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { font-weight: 600; position: sticky; top: 0; background: Canvas; }
td.number, th.number { width: 1%; text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.scroll { max-height: 30rem; overflow: auto; }
.gantt { border: 1px solid var(--line); border-radius: 6px; background: var(--soft); }
details summary { cursor: pointer; margin: .7rem 0; }
.timeline { position: relative; } .timeline canvas { width: 100%; display: block; touch-action: pan-y; }
.tip { position: absolute; pointer-events: none; background: Canvas; border: 1px solid var(--line);
  padding: .3rem .5rem; border-radius: 4px; font-size: 12px; white-space: pre-wrap; max-width: 24rem; }
pre { background: var(--soft); padding: .7rem; border-radius: 6px; overflow: auto; }
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it (HTML)."""

    title: str
    body: str


def html_page(title: str, lead: str, sections: Iterable[Section]) -> str:
    """The page. ``title``, ``lead`` and section titles are plain text, bodies are HTML."""
    parts = [f"<section><h2>{escape(one.title)}</h2>{one.body}</section>" for one in sections]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f'<body><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>{"".join(parts)}</body></html>\n'
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; numbers (and texts that start like one) stand to the right."""
    lines = [[str(cell) for cell in row] for row in rows]
    numeric = [bool(lines) and all(_is_numeric(line[i]) for line in lines) for i in range(len(heads))]

    def cells(tag: str, texts: Sequence[str]) -> str:
        marks = (' class="number"' if numeric[i] else "" for i in range(len(heads)))
        return "".join(
            f"<{tag}{mark}>{escape(text)}</{tag}>" for mark, text in zip(marks, texts, strict=True)
        )

    body = "".join(f"<tr>{cells('td', line)}</tr>" for line in lines)
    return f'<div class="scroll"><table><tr>{cells("th", heads)}</tr>{body}</table></div>'


def _is_numeric(text: str) -> bool:
    return text[:1].isdigit() or text in ("-", "")


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


#: what was done: brings more of the curve's quantity, or less, or keeps something from working
Kind = Literal["more", "less", "hold", "other"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that was done about a curve. ``text`` shows when pointed at."""

    time: float
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantity that changes in steps. ``top`` is where its axis at least reaches.

    One that has a ``band`` to stay in is drawn larger, with what is outside in another colour.
    """

    name: str
    unit: str
    time: Sequence[float]
    value: Sequence[float]
    top: float = 0.0
    #: from which time on which bounds hold; ``inf`` is no upper bound, 0 no lower one
    band: Sequence[tuple[float, float, float]] = ()
    #: what was forecast when: the least and the most over the time to come
    forecast: Sequence[tuple[float, float, float]] = ()
    #: from when to when it counted as outside, and what to say of that
    outside: Sequence[tuple[float, float, str]] = ()
    marks: Sequence[Mark] = ()


def timeline_html(held: Iterable[Held], nodes: int, end: float, curves: Iterable[Curve] = ()) -> str:
    """The element and its data; the page has to hold ``timeline_script`` once, before it."""
    held = list(held)
    jobs = {name: index for index, name in enumerate(dict.fromkeys(one.job for one in held))}
    data: dict[str, Any] = {
        "nodes": nodes,
        "end": end,
        "jobs": list(jobs),
        "spans": [
            [jobs[one.job], _short(one.start), _short(one.end), _ranges(one.nodes), one.note] for one in held
        ],
        "curves": [_plain(curve) for curve in curves],
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<div class="timeline"><noscript>These pictures need JavaScript.</noscript></div>'
        f"<script>timeline(document.currentScript.previousElementSibling, {text})</script>"
    )


@cache
def timeline_script() -> str:
    """The code, to be put into the page."""
    return f"<script>{Path(__file__).with_name('timeline.js').read_text(encoding='utf-8')}</script>"


def _plain(curve: Curve) -> dict[str, Any]:
    return {
        "name": curve.name,
        "unit": curve.unit,
        "time": [_short(t) for t in curve.time],
        "value": [_short(v) for v in curve.value],
        "top": curve.top,
        "band": [[_short(t), _short(low), _short(high)] for t, low, high in curve.band],
        "forecast": [[_short(t), _short(least), _short(most)] for t, least, most in curve.forecast],
        "outside": [[_short(start), _short(end), text] for start, end, text in curve.outside],
        "marks": [[_short(mark.time), mark.kind, mark.text] for mark in curve.marks],
    }


def _ranges(nodes: Sequence[str]) -> list[int]:
    """Numbered nodes as first, last, first, last, ..."""
    found: list[int] = []
    for node in sorted(map(int, nodes)):
        if found and node == found[-1] + 1:
            found[-1] = node
        else:
            found += [node, node]
    return found


def _short(value: float) -> float | None:
    if value == inf:  # JSON knows no infinity
        return None
    return int(value) if float(value).is_integer() else round(float(value), 3)


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
