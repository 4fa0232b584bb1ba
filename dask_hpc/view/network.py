"""A machine with its jobs and the links in their way: parts as panels, nodes as cells coloured by job."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot

from dask_hpc.model.topology import Topology
from dask_hpc.model.units import counted, show_large
from dask_hpc.view.page import COLOURS, hinted, label, svg, tag

_WIDTH, _EDGE = 960, 30
_INK, _SOFT, _FREE, _SERVICE = "#222", "#666", "#ececec", "#555"
_FULL, _BUSY = "#d00000", "#e8a33d"
_LINE, _LETTERS = 18, 118  # of text
_CELL, _LEAST, _GAP = 22, 3, 2  # pixels of a node at most and at least, and between two
_NAMES, _PANEL_HEAD, _PANEL_GAP = 66, 22, 34
_WRAP = 16  # nodes in a row, where no part says how many
_CURVES = 24  # links that are drawn
_BAR = 260  # pixels of a level


@dataclass(frozen=True, slots=True)
class DrawnJob:
    """Its nodes, and the share of its demand that it gets."""

    nodes: Sequence[str]
    theta: float


@dataclass(frozen=True, slots=True)
class DrawnLink:
    """Between two places, or a part and what is around it; ``share`` of its bandwidth is used."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    share: float
    words: str


@dataclass(frozen=True, slots=True)
class DrawnLevel:
    """Of all links of a level: their bandwidth, how many there are and are full, and the shares used, the
    largest and the mean."""

    bandwidth: float
    links: int
    full: int
    most: float
    mean: float


def network_svg(
    title: str,
    reason: str,
    topology: Topology,
    jobs: Mapping[str, DrawnJob],
    links: Sequence[DrawnLink],
    levels: Mapping[str, DrawnLevel],
) -> str:
    """The picture: the machine with the fullest links, the jobs and what they get, and how full each level
    is. Links that are full, or busy, are dots where they begin; some of them are drawn."""
    lines = reason.split("; ")
    top = _EDGE + 26 + _LINE * len(lines)
    machine = _Machine(topology, top + 14)
    legend = machine.bottom + 24
    bars = legend + _LINE * (-(-(len(jobs) + 4) // 3)) + 16
    height = bars + _LINE * len(levels) + _EDGE
    parts = [
        tag("rect", width=_WIDTH, height=height, fill="#fff"),
        label(_EDGE, _EDGE + 10, _cut(title), font_size=20, font_weight=600),
        *(label(_EDGE, _EDGE + 34 + _LINE * at, _cut(line), fill=_SOFT) for at, line in enumerate(lines)),
        *machine.cells(jobs),
        *machine.marks(links),
        *machine.curves(links),
        *_legend(jobs, legend, bool(topology.service)),
        *_level_bars(levels, bars),
    ]
    said = [title, *(f"{name}: {one.theta:.0%} of its demand" for name, one in jobs.items())]
    size = {"width": _WIDTH, "height": height, "font_size": 13}
    return svg("network", _WIDTH, height, "; ".join(said), parts, **size, color=_INK, fill=_INK) + "\n"


class _Machine:
    """Where everything stands. A panel for each outermost part; in it a row for each part of the next level,
    if nodes are not that; in a row its nodes."""

    def __init__(self, topology: Topology, top: float) -> None:
        self._topology = topology
        self._rows: dict[tuple[str, ...], dict[tuple[str, ...], list[str]]] = {}
        for name, place in topology.places.items():
            row = place[: min(2, len(place) - 1)]
            self._rows.setdefault(place[:1], {}).setdefault(row, []).append(name)
        self._where: dict[str, tuple[float, float]] = {}
        self._parts: dict[tuple[str, ...], tuple[float, float]] = {}
        longest = max(len(names) for rows in self._rows.values() for names in rows.values())
        across = min(longest, _WRAP) if len(topology.levels) < 3 else longest
        # as many panels side by side as look well, if they are narrow enough
        self._beside = next(
            count
            for few, count in ((1, 1), (4, 2), (32, 4), (10**9, 8), (0, 1))
            if len(self._rows) <= few and (count == 1 or across * (_LEAST + _GAP) <= self._room(count))
        )
        room = self._room(self._beside)
        self._names = _NAMES if self._beside <= 2 else 8
        self._across = min(across, int(room / (_LEAST + _GAP)))
        count = sum(-(-len(names) // self._across) for rows in self._rows.values() for names in rows.values())
        count = -(-count // self._beside)
        deep = _CELL if count <= 30 else max(_LEAST, _CELL * 30 / count)
        self.cell = min(room / self._across - _GAP, _CELL, deep)
        self._panel = room + self._names + _PANEL_GAP
        self.bottom = self._lay_out(top)

    @staticmethod
    def _room(beside: int) -> float:
        """For the nodes of a row, with so many panels side by side."""
        names = _NAMES if beside <= 2 else 8
        return (_WIDTH - 2 * _EDGE - _PANEL_GAP * (beside - 1)) / beside - names

    def _lay_out(self, top: float) -> float:
        """All panels, two by two; where they end."""
        y, lowest = top, top
        for number, (panel, rows) in enumerate(self._rows.items()):
            column = number % self._beside
            if number and column == 0:
                y = lowest + 16
            x = _EDGE + column * self._panel
            self._parts[panel] = x + self._names - 8, y + 10
            at = y + _PANEL_HEAD
            for row, names in rows.items():
                if len(row) > 1:
                    self._parts[row] = x + self._names - 6, at + self.cell / 2
                for place, name in enumerate(names):
                    down, right = divmod(place, self._across)
                    self._where[name] = (
                        x + self._names + right * (self.cell + _GAP),
                        at + down * (self.cell + _GAP),
                    )
                at += -(-len(names) // self._across) * (self.cell + _GAP) + (2 if len(row) > 1 else 0)
            lowest = max(lowest, at)
        return lowest

    def cells(self, jobs: Mapping[str, DrawnJob]) -> Iterator[str]:
        """The nodes, and the names of parts. A node with several jobs is divided among them."""
        held: dict[str, list[str]] = {}
        for name, job in jobs.items():
            for node in job.nodes:
                held.setdefault(node, []).append(name)
        colours = _colours(jobs)
        service = set(self._topology.service)
        for part, (x, y) in self._parts.items():
            if len(part) == 1:
                yield label(x + 8, y + 5, part[0][:24], font_weight=600)
            elif self.cell >= 9 and self._beside <= 2:
                yield label(x, y + 4, part[-1][:10], "end", fill=_SOFT, font_size=11)
        for node, (x, y) in self._where.items():
            mine = held.get(node, [])
            fills = [colours[name] for name in mine] or [_SERVICE if node in service else _FREE]
            wide = self.cell / len(fills)
            boxes = [
                tag("rect", x=x + at * wide, y=y, width=wide, height=self.cell, fill=fill,
                    rx=2 if len(fills) == 1 and self.cell > 8 else None)
                for at, fill in enumerate(fills)
            ]  # fmt: skip
            what = "service" if node in service else ", ".join(mine) or "no job"
            yield hinted(f"{node}: {what}", *boxes)

    def marks(self, links: Sequence[DrawnLink]) -> Iterator[str]:
        """A dot at each node and part from which a full link leads, or a busy one."""
        worst: dict[tuple[str, ...], float] = {}
        for link in links:
            worst[link.source] = max(link.share, worst.get(link.source, 0.0))
        for part, (x, y) in self._parts.items():
            if share := worst.get(part):
                yield tag("circle", cx=x, cy=y, r=4 if len(part) == 1 else 2.6, fill=_colour(share))
        if self.cell < 7:
            return
        for name, (x, y) in self._where.items():
            if share := worst.get(self._topology.places[name]):
                place = {
                    "cx": x + self.cell - 4,
                    "cy": y + 4,
                    "r": 2.6,
                    "stroke": "#fff",
                    "stroke_width": 0.8,
                }
                yield tag("circle", **place, fill=_colour(share))

    def curves(self, links: Sequence[DrawnLink]) -> Iterator[str]:
        """Some of them, evenly chosen, the fullest last, so that it is above the others."""
        centres = {self._topology.places[name]: name for name in reversed(self._where)}
        # that of a node to its own switch is its dot
        depth = len(self._topology.levels)
        links = [
            one
            for one in links
            if len(one.source) == len(one.target) or depth not in map(len, (one.source, one.target))
        ]
        step = max(1.0, len(links) / _CURVES)
        chosen = [links[int(at * step)] for at in range(min(len(links), _CURVES))]
        for link in sorted(chosen, key=lambda one: one.share):
            ends = [self._centre(end, centres) for end in (link.source, link.target)]
            if None in ends:
                continue
            (x1, y1), (x2, y2) = (end for end in ends if end is not None)
            long = hypot(x2 - x1, y2 - y1) or 1.0
            bend = min(0.18 * long, 26)
            # to the left of the way, so that there and back are two curves
            x, y = (x1 + x2) / 2 + bend * (y2 - y1) / long, (y1 + y2) / 2 - bend * (x2 - x1) / long
            line = tag("path", d=f"M{x1:.1f},{y1:.1f}Q{x:.1f},{y:.1f} {x2:.1f},{y2:.1f}", fill="none",
                       stroke=_colour(link.share), stroke_width=1.3, stroke_opacity=0.6)  # fmt: skip
            yield hinted(link.words, line)

    def _centre(
        self, end: tuple[str, ...], nodes: Mapping[tuple[str, ...], str]
    ) -> tuple[float, float] | None:
        """Of a node, a part, or of the whole machine."""
        if not end:
            return _WIDTH / 2, min(y for _, y in self._parts.values()) - 18
        if end in self._parts:
            return self._parts[end]
        name = nodes.get(end) or next((one for place, one in nodes.items() if place[: len(end)] == end), None)
        if name is None:
            return None
        x, y = self._where[name]
        return x + self.cell / 2, y + self.cell / 2


def _colour(share: float) -> str:
    return _FULL if share > 0.999 else _BUSY


def _colours(jobs: Mapping[str, DrawnJob]) -> dict[str, str]:
    return {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(jobs)}


def _legend(jobs: Mapping[str, DrawnJob], top: float, has_service: bool) -> Iterator[str]:
    """Three in a line."""
    entries = [
        (colour, f"{name}: {jobs[name].theta:.0%} of its demand, {counted(len(jobs[name].nodes), 'node')}")
        for name, colour in _colours(jobs).items()
    ]
    entries += [(_SERVICE, "service node: leads to the store")] if has_service else []
    entries += [
        (_FREE, "no job"),
        (_FULL, "from here leads a full link"),
        (_BUSY, "a busy one, more than half full"),
    ]
    for number, (colour, words) in enumerate(entries):
        down, right = divmod(number, 3)
        x, y = _EDGE + right * 300, top + _LINE * down
        yield tag(
            "rect", x=x, y=y - 10, width=12, height=12, rx=6 if colour in (_FULL, _BUSY) else 2, fill=colour
        )
        yield label(x + 18, y, words if len(words) <= 44 else words[:43] + "…")


def _level_bars(levels: Mapping[str, DrawnLevel], top: float) -> Iterator[str]:
    """Of each level what its links carry: the mean as a bar, the fullest one as a mark."""
    for number, (name, one) in enumerate(levels.items()):
        y = top + _LINE * number
        x = _EDGE + 180
        yield label(_EDGE, y + 11, f"{name} links, {show_large(one.bandwidth, 'B/s')}")
        yield tag("rect", x=x, y=y + 2, width=_BAR, height=10, rx=2, fill=_FREE)
        fill = _FULL if one.full else _BUSY
        yield tag("rect", x=x, y=y + 2, width=max(_BAR * min(one.mean, 1.0), 0.5), height=10, rx=2, fill=fill,
                  fill_opacity=0.6)  # fmt: skip
        mark = x + _BAR * min(one.most, 1.0)
        yield tag("line", x1=mark, x2=mark, y1=y - 1, y2=y + 15, stroke=fill, stroke_width=2)
        words = (
            f"{one.mean:.0%} used on average, the fullest {one.most:.0%}; {one.full:,} of {one.links:,} full"
        )
        yield label(x + _BAR + 12, y + 11, words)


def _cut(words: str) -> str:
    return words if len(words) <= _LETTERS else words[: _LETTERS - 1] + "…"
