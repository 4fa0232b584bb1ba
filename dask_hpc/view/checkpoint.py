"""Pictures of checkpoints: where the copies are, how far a program was when, how good an interval is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor, log
from typing import Any, NamedTuple

from dask_hpc.model.units import show_duration, show_large
from dask_hpc.view.page import COLOURS, grid_line, hinted, label, svg, tag

_NOBODYS = "#999999"
_WIDE, _HIGH, _GAP = 208, 74, 8  # of a box, and between two
_BAR_LEFT, _BAR, _LONG = 46, 14, 98  # in a box: where bars begin, how high and long they are
_LETTERS = 30  # of a name
_MOST = 24  # boxes


def copies_svg(nodes: Sequence[Mapping[str, Any]], *, width: int = 900) -> str:
    """A box for each node, with the protected results that it holds and the copies that it keeps for others,
    each in the colour of the node whose results they are. Of each node ``name``, the bytes of protected
    results that it holds (``own``), and those of copies that it keeps by the node that holds the result
    (``kept``; "": nobody holds it now)."""
    shown = nodes[:_MOST]
    across = max(1, (width + _GAP) // (_WIDE + _GAP))
    height = -(-len(shown) // across) * (_HIGH + _GAP) + 22
    colours = {node["name"]: COLOURS[number % len(COLOURS)] for number, node in enumerate(nodes)}
    most = max((size for node in shown for size in (node["own"], sum(node["kept"].values()))), default=0)
    parts = []
    for number, node in enumerate(shown):
        row, column = divmod(number, across)
        inside = _box(node, column * (_WIDE + _GAP), row * (_HIGH + _GAP), colours, (most or 1) / _LONG)
        parts.append(hinted(_of_node(node), *inside))
    more = f"; {len(nodes) - _MOST} nodes more are not shown" if len(nodes) > _MOST else ""
    words = f"Copies have the colour of the node that holds the result{more}"
    parts.append(label(1, height - 8, words, fill_opacity=0.75))
    seen = "; ".join(map(_of_node, shown)) or "no nodes"
    return svg("copies", width, height, seen, parts, width=width, style="max-width: 100%")


def _box(
    node: Mapping[str, Any], x: float, y: float, colours: Mapping[str, str], bytes_per_pixel: float
) -> Iterator[str]:
    name = node["name"] if len(node["name"]) <= _LETTERS else node["name"][: _LETTERS - 1] + "…"
    size_of = {"width": _WIDE - 1, "height": _HIGH - 1, "rx": 6}
    yield tag("rect", x=x + 0.5, y=y + 0.5, **size_of, fill="#8881", stroke="#8886")
    yield label(x + 8, y + 16, name, font_weight=600)
    own = [(node["name"], node["own"])] if node["own"] else []
    kept = sorted(node["kept"].items())  # the same order in every box
    for line, (what, sizes) in enumerate((("holds", own), ("keeps", kept))):
        top, at = y + 25 + line * 22, float(x + _BAR_LEFT)
        yield label(x + 8, top + 11, what)
        for of, size in sizes:
            colour, long = colours.get(of, _NOBODYS), size / bytes_per_pixel
            bar = {"x": at, "y": top, "width": max(long, 1.0), "height": _BAR, "fill": colour}
            yield tag("rect", **bar, **({"fill_opacity": 0.5, "stroke": colour} if what == "keeps" else {}))
            at += long
        total = sum(size for _, size in sizes)
        yield label(at + 5, top + 11, show_large(total, "B") if total else "nothing")


def _of_node(node: Mapping[str, Any]) -> str:
    """What is to be seen in a box."""
    kept = [f"{show_large(size, 'B')} of {of or 'no node'}" for of, size in node["kept"].items()]
    copies = f"copies of {', '.join(kept)}" if kept else "no copies"
    return f"{node['name']} holds {show_large(node['own'], 'B')}, keeps {copies}"


class Mark(NamedTuple):
    """Something that happened. What ``ends`` the program's line: until it runs again there is none."""

    time: float
    label: str
    ends: bool = False


_LEFT, _RIGHT, _TOP, _BOTTOM, _TALL = 52, 12, 34, 26, 200
_BLUE, _RED = "#0072b2", "#d55e00"


def course_svg(points: Sequence[tuple[float, int]], marks: Sequence[Mark] = (), *, width: int = 900) -> str:
    """How far a program was when. ``points`` are times and iterations that were done then, in order of time.
    Iterations that are done again are a step down."""
    end = max([*(time for time, _ in points), *(mark.time for mark in marks)], default=0.0) or 1.0
    most = max((done for _, done in points), default=0) or 1
    across, bottom = (width - _LEFT - _RIGHT) / end, _TOP + _TALL

    def x(time: float) -> float:
        return _LEFT + time * across

    def y(done: float) -> float:
        return bottom - done * _TALL / most

    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(grid_line(_LEFT, width - _RIGHT, y(share * most), f"{share * most:.0f}"))
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        parts.append(label(x(share * end), bottom + 16, show_duration(share * end), anchor))
    for piece in _pieces(points, [mark.time for mark in marks if mark.ends]):
        line = " ".join(f"{x(time):.1f},{y(done):.1f}" for time, done in piece)
        parts.append(tag("polyline", points=line, fill="none", stroke=_BLUE, stroke_width=2))
    for number, mark in enumerate(marks):
        at, top = x(mark.time), _TOP - 8 - 14 * (number % 2)  # so that neighbours can be read
        dashes = None if mark.ends else "4 3"
        parts.append(tag("line", x1=at, x2=at, y1=top + 3, y2=bottom, stroke=_RED, stroke_dasharray=dashes))
        parts.append(label(at, top, mark.label, "end" if at > width * 0.8 else "start", fill=_RED))
    done = f"iteration {points[-1][1]} after {show_duration(points[-1][0])}" if points else "no iteration"
    words = "; ".join([done, *(f"{mark.label} at {show_duration(mark.time)}" for mark in marks)])
    return svg("course", width, bottom + _BOTTOM, words, parts)


def _pieces(points: Sequence[tuple[float, int]], ends: Sequence[float]) -> list[list[tuple[float, int]]]:
    """The line, cut where the program ended."""
    cuts, pieces = sorted(ends), [[]]  # type: list[float], list[list[tuple[float, int]]]
    for time, done in points:
        while cuts and time > cuts[0]:
            cuts.pop(0)
            pieces.append([])
        pieces[-1].append((time, done))
    return [piece for piece in pieces if piece]


#: work between two commits in seconds, and the efficiency
Point = tuple[float, float]

_WIDTH, _HEIGHT = 720, 360
_START, _END, _HEAD, _FOOT = 60, 24, 64, 52
_INK, _SOFT, _LINE, _DOT = "#222", "#666", "#2563eb", "#c2410c"
_TICKS = 5


def interval_svg(
    efficiency: float, planned: Point | None, curve: Sequence[Point], others: Mapping[str, Point], reason: str
) -> str:
    """The picture. The horizontal axis is logarithmic; other ways are dots if they are on it."""
    title = f"{efficiency:.1%} of the time is work"
    parts = [
        tag("rect", width=_WIDTH, height=_HEIGHT, fill="#fff"),
        label(_START, 28, title, font_size=18, font_weight=600, fill=_INK),
        label(_START, 48, reason, fill=_SOFT),
        *(_interval(curve, others, planned) if curve else ()),
    ]
    size = {"width": _WIDTH, "height": _HEIGHT, "font_size": 13}
    return svg("interval", _WIDTH, _HEIGHT, title, parts, **size, fill=_INK) + "\n"


def _interval(curve: Sequence[Point], others: Mapping[str, Point], planned: Point | None) -> Iterable[str]:
    """The axes, the curve, and the ways."""
    begin, end = curve[0][0], curve[-1][0]
    low = min(floor(min(share for _, share in (*curve, *others.values())) * 10) / 10, 0.9)

    def x(seconds: float) -> float:
        return _START + log(seconds / begin) / log(end / begin) * (_WIDTH - _START - _END)

    def y(share: float) -> float:
        return _HEIGHT - _FOOT - (share - low) / (1 - low) * (_HEIGHT - _HEAD - _FOOT)

    for tick in range(_TICKS):
        part = tick / (_TICKS - 1)
        share, seconds = low + part * (1 - low), begin * (end / begin) ** part
        yield grid_line(_START, _WIDTH - _END, y(share), f"{share:.0%}", fill=_SOFT)
        anchor = "middle" if part < 1 else "end"
        yield label(x(seconds), _HEIGHT - _FOOT + 20, show_duration(seconds), anchor, fill=_SOFT)
    yield label((_START + _WIDTH - _END) / 2, _HEIGHT - 10, "work between two commits", "middle", fill=_SOFT)
    points = " ".join(f"{x(work):.1f},{y(share):.1f}" for work, share in curve)
    yield tag("polyline", points=points, fill="none", stroke=_LINE, stroke_width=2)
    if planned is not None:
        at, level = x(planned[0]), y(planned[1])
        yield tag("circle", cx=at, cy=level, r=5, fill=_LINE)
        yield label(at, level - 12, f"this plan: {show_duration(planned[0])}", "middle", fill=_LINE)
    for number, (name, (work, share)) in enumerate(others.items()):
        if begin <= work <= end:
            yield tag("circle", cx=x(work), cy=y(share), r=4, fill=_DOT)
            yield label(x(work) - 10, y(share) + 20 + 16 * number, name, "end", fill=_DOT)
