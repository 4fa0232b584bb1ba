"""Pictures of reservations: what each request is spent on, how far it brings the job, how many have ended."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dask_hpc.model.units import show_duration
from dask_hpc.view.page import grid_line, hinted, label, svg, tag

_WIDTH, _LEFT, _RIGHT = 760, 64, 28
_HEAD, _CURVE, _GAP, _ROW, _FOOT = 64, 110, 26, 26, 34
_MOST = 12  # requests that are drawn
_INK, _SOFT, _WORK, _AGAIN, _RESTART, _COMMIT = "#222", "#666", "#2563eb", "#bfd0f7", "#999999", "#e69f00"
_TICKS = 5

#: a time in seconds, and the share of jobs that take longer
Survival = Sequence[tuple[float, float]]


def milestones_svg(title: str, reason: str, requests: Sequence[Mapping[str, Any]], survival: Survival) -> str:
    """The picture: above, the share of jobs that take longer; below, a bar for each request. Of each
    ``length``, ``work_until`` and ``commit``, and ``begins`` (work that it goes on from), ``done`` (work that
    was reached before it), ``restart``, ``takes`` (the commit; all in seconds), and ``ended`` (the share of
    jobs that have ended with it)."""
    shown = requests[:_MOST]
    end = max([*(one["work_until"] for one in shown), *(time for time, _ in survival)], default=1.0)
    scale = (_WIDTH - _LEFT - _RIGHT) / end
    top = _HEAD + _CURVE + _GAP
    height = top + _ROW * len(shown) + _FOOT
    parts = [
        tag("rect", width=_WIDTH, height=height, fill="#fff"),
        label(_LEFT, 26, title, font_size=17, font_weight=600, fill=_INK),
        label(_LEFT, 46, reason, fill=_SOFT),
        *_axes(end, scale, height),
        *_survival(survival, scale),
    ]
    for number, one in enumerate(shown):
        y = top + _ROW * number
        parts.append(label(_LEFT - 8, y + 13, f"{number + 1}.", "end", fill=_INK))
        parts.append(hinted(_words(one), *_bar(one, y, scale)))
    more = f"; {len(requests) - _MOST} more requests are rarely made" if len(requests) > _MOST else ""
    words = f"grey: restart; pale: done again; blue: new; orange: commit{more}"
    parts.append(label(_LEFT, height - 8, words, fill=_SOFT, font_size=11))
    size = {"width": _WIDTH, "height": height, "font_size": 12}
    said = "; ".join([title, *(f"request {n}: {_words(one)}" for n, one in enumerate(shown, 1))])
    return svg("reservation", _WIDTH, height, said, parts, **size, fill=_INK) + "\n"


def _axes(end: float, scale: float, height: float) -> Iterator[str]:
    bottom = _HEAD + _CURVE
    for tick in range(_TICKS):
        part = tick / (_TICKS - 1)
        if tick % 2 == 0:
            yield grid_line(_LEFT, _WIDTH - _RIGHT, bottom - part * _CURVE, f"{part:.0%}", fill=_SOFT)
        x = _LEFT + part * end * scale
        yield tag("line", x1=x, x2=x, y1=_HEAD, y2=height - _FOOT + 4, stroke="#8883")
        anchor = "start" if not tick else "end" if part == 1 else "middle"
        yield label(x, bottom + 15, show_duration(part * end), anchor, fill=_SOFT, font_size=11)


def _survival(points: Survival, scale: float) -> Iterator[str]:
    if points:
        line = " ".join(
            f"{_LEFT + time * scale:.1f},{_HEAD + (1 - left) * _CURVE:.1f}" for time, left in points
        )
        yield tag("polyline", points=line, fill="none", stroke=_WORK, stroke_width=2)
        yield label(_WIDTH - _RIGHT, _HEAD + 12, "jobs that take longer", "end", fill=_WORK)


def _bar(one: Mapping[str, Any], y: float, scale: float) -> Iterator[str]:
    """The job's own time is the axis: a restart and a commit have their length, and stand beside it."""
    begins, done, until = (_LEFT + one[name] * scale for name in ("begins", "done", "work_until"))
    shape = {"y": y, "height": 18.0}
    if one["restart"]:
        wide = max(2.0, one["restart"] * scale)
        yield tag("rect", x=begins - wide, width=wide, fill=_RESTART, **shape)
    yield tag("rect", x=begins, width=max(0.0, done - begins), fill=_AGAIN, **shape)
    yield tag("rect", x=done, width=max(1.0, until - done), fill=_WORK, **shape)
    if one["commit"]:
        wide = max(2.0, one["takes"] * scale)
        yield tag("rect", x=min(until, _WIDTH - wide), width=wide, fill=_COMMIT, **shape)
    words = f"{show_duration(one['length'])}, {one['ended']:.1%} ended"
    wide = until - begins
    inside = wide > 170
    at, anchor = (begins + 6, "start") if inside else (until + 8, "start")
    if not inside and until > _WIDTH - 170:
        at, anchor = begins - 8, "end"
    yield label(at, y + 13, words, anchor, fill=_INK if not inside or done - begins > 150 else "#fff")


def _words(one: Mapping[str, Any]) -> str:
    commit = ", with a commit" if one["commit"] else ""
    until = show_duration(one["work_until"])
    return f"{show_duration(one['length'])} until {until} of work are done{commit}; {one['ended']:.2%} ended"
