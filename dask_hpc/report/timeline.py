"""Allotments and curves over time, drawn in the browser so that they can be zoomed."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dask_hpc.report.gantt import Held


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantity that changes in steps. ``top`` is where its axis at least reaches."""

    name: str
    unit: str
    time: Sequence[float]
    value: Sequence[float]
    top: float = 0.0


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
        "curves": [
            {
                "name": curve.name,
                "unit": curve.unit,
                "time": [_short(t) for t in curve.time],
                "value": [_short(v) for v in curve.value],
                "top": curve.top,
            }
            for curve in curves
        ],
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


def _ranges(nodes: Sequence[str]) -> list[int]:
    """Numbered nodes as first, last, first, last, ..."""
    found: list[int] = []
    for node in sorted(map(int, nodes)):
        if found and node == found[-1] + 1:
            found[-1] = node
        else:
            found += [node, node]
    return found


def _short(value: float) -> float:
    return int(value) if float(value).is_integer() else round(float(value), 3)
