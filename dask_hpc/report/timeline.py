"""Allotments and curves over time, drawn in the browser so that they can be zoomed."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Literal

from dask_hpc.report.gantt import Held

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
    return f"<script>{Path(__file__).with_suffix('.js').read_text(encoding='utf-8')}</script>"


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
