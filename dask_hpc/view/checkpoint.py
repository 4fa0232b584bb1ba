"""Where the copies are, as an SVG picture: a box for each node, with the protected results that it holds and
the copies that it keeps for others, each in the colour of the node whose results they are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from math import floor, log
from typing import Any, NamedTuple

from dask_hpc.model.units import show_duration, show_large

#: Okabe and Ito's, which the colour-blind can tell apart, then lighter cousins
_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442",
    "#7fb8d8", "#f2cf80", "#80ceb9", "#e5bcd3", "#aad9f4",
)  # fmt: skip
_NOBODYS = "#999999"
_WIDE, _HIGH, _GAP = 208, 74, 8  # of a box, and between two
_LEFT, _BAR, _LONG = 46, 14, 98  # in a box: where bars begin, how high and long they are
_LETTERS = 30  # of a name
_MOST = 24  # boxes


def copies_svg(nodes: Sequence[Mapping[str, Any]], *, width: int = 900) -> str:
    """The picture. Of each node ``name``, the bytes of protected results that it holds (``own``), and those
    of copies that it keeps by the node that holds the result (``kept``; "": nobody holds it now)."""
    shown = nodes[:_MOST]
    across = max(1, (width + _GAP) // (_WIDE + _GAP))
    rows = -(-len(shown) // across)
    height = rows * (_HIGH + _GAP) + 22
    colours = {node["name"]: _COLOURS[number % len(_COLOURS)] for number, node in enumerate(nodes)}
    most = max((size for node in shown for size in (node["own"], sum(node["kept"].values()))), default=0)
    parts = [
        f'<svg class="copies" viewBox="0 0 {width} {height}" width="{width}" style="max-width: 100%" '
        f'role="img" aria-label="{escape(_words(shown))}" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="system-ui, sans-serif" font-size="11">'
    ]
    for number, node in enumerate(shown):
        row, column = divmod(number, across)
        parts += _box(node, column * (_WIDE + _GAP), row * (_HIGH + _GAP), colours, (most or 1) / _LONG)
    more = f"; {len(nodes) - _MOST} nodes more are not shown" if len(nodes) > _MOST else ""
    parts.append(
        f'<text x="1" y="{height - 8}" fill="currentColor" fill-opacity="0.75">Copies have the colour of the '
        f"node that holds the result{more}</text></svg>"
    )
    return "".join(parts)


def _box(
    node: Mapping[str, Any], x: float, y: float, colours: Mapping[str, str], bytes_per_pixel: float
) -> Iterable[str]:
    name = node["name"] if len(node["name"]) <= _LETTERS else node["name"][: _LETTERS - 1] + "…"
    yield (
        f'<g><title>{escape(_of_node(node))}</title><rect x="{x + 0.5}" y="{y + 0.5}" width="{_WIDE - 1}" '
        f'height="{_HIGH - 1}" rx="6" fill="#8881" stroke="#8886"/>'
        f'<text x="{x + 8}" y="{y + 16}" font-weight="600" fill="currentColor">{escape(name)}</text>'
    )
    own = [(node["name"], node["own"])] if node["own"] else []
    kept = sorted(node["kept"].items())  # the same order in every box
    for line, (label, sizes) in enumerate((("holds", own), ("keeps", kept))):
        top, at = y + 25 + line * 22, float(x + _LEFT)
        yield f'<text x="{x + 8}" y="{top + 11}" fill="currentColor">{label}</text>'
        for of, size in sizes:
            colour, long = colours.get(of, _NOBODYS), size / bytes_per_pixel
            paler = f' fill-opacity="0.5" stroke="{colour}"' if label == "keeps" else ""
            yield (
                f'<rect x="{at:.1f}" y="{top}" width="{max(long, 1):.1f}" height="{_BAR}" '
                f'fill="{colour}"{paler}/>'
            )
            at += long
        total = sum(size for _, size in sizes)
        yield (
            f'<text x="{at + 5:.1f}" y="{top + 11}" fill="currentColor">'
            f"{show_large(total, 'B') if total else 'nothing'}</text>"
        )
    yield "</g>"


def _of_node(node: Mapping[str, Any]) -> str:
    """What is to be seen in a box."""
    kept = [f"{show_large(size, 'B')} of {of or 'no node'}" for of, size in node["kept"].items()]
    copies = f"copies of {', '.join(kept)}" if kept else "no copies"
    return f"{node['name']} holds {show_large(node['own'], 'B')}, keeps {copies}"


def _words(nodes: Iterable[Mapping[str, Any]]) -> str:
    """All that can be seen, for those who cannot."""
    return "; ".join(map(_of_node, nodes)) or "no nodes"


_START, _RIGHT, _TOP, _BOTTOM, _TALL = 52, 12, 34, 26, 200
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
    across, bottom = (width - _START - _RIGHT) / end, _TOP + _TALL

    def x(time: float) -> float:
        return _START + time * across

    def y(done: float) -> float:
        return bottom - done * _TALL / most

    parts = [
        f'<svg class="course" viewBox="0 0 {width} {bottom + _BOTTOM}" width="100%" role="img" '
        f'aria-label="{escape(_course_words(points, marks))}" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="system-ui, sans-serif" font-size="11">'
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        high = y(share * most)
        parts.append(
            f'<line x1="{_START}" x2="{width - _RIGHT}" y1="{high:.1f}" y2="{high:.1f}" '
            f'stroke="currentColor" stroke-opacity="0.13"/><text x="{_START - 6}" '
            f'y="{high + 4:.1f}" text-anchor="end" fill="currentColor">{share * most:.0f}</text>'
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


def _course_words(points: Sequence[tuple[float, int]], marks: Sequence[Mark]) -> str:
    """All that can be seen, for those who cannot."""
    done = f"iteration {points[-1][1]} after {show_duration(points[-1][0])}" if points else "no iteration"
    return "; ".join([done, *(f"{mark.label} at {show_duration(mark.time)}" for mark in marks)])


#: work between two commits in seconds, and the efficiency
Point = tuple[float, float]

_WIDTH, _HEIGHT = 720, 360
_INTERVAL_LEFT, _INTERVAL_RIGHT, _INTERVAL_TOP, _INTERVAL_BOTTOM = 60, 24, 64, 52
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
            f'<text x="{_INTERVAL_LEFT}" y="28" font-size="18" font-weight="600">{escape(title)}</text>',
            f'<text x="{_INTERVAL_LEFT}" y="48" fill="{_SOFT}">{escape(reason)}</text>',
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
            yield f'<path d="M{_INTERVAL_LEFT} {y:.1f}H{_WIDTH - _INTERVAL_RIGHT}" stroke="#e5e5e5"/>'
            yield _text(_INTERVAL_LEFT - 8, y + 4, f"{share:.0%}", _END, _SOFT)
            seconds = self._begin * (self._end / self._begin) ** part
            anchor = _MIDDLE if part < 1 else _END
            yield _text(
                self._x(seconds), _HEIGHT - _INTERVAL_BOTTOM + 20, show_duration(seconds), anchor, _SOFT
            )
        yield _text(
            (_INTERVAL_LEFT + _WIDTH - _INTERVAL_RIGHT) / 2,
            _HEIGHT - 10,
            "work between two commits",
            _MIDDLE,
            _SOFT,
        )
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
        return _INTERVAL_LEFT + share * (_WIDTH - _INTERVAL_LEFT - _INTERVAL_RIGHT)

    def _y(self, share: float) -> float:
        return (
            _HEIGHT
            - _INTERVAL_BOTTOM
            - (share - self._low) / (1 - self._low) * (_HEIGHT - _INTERVAL_TOP - _INTERVAL_BOTTOM)
        )


_MIDDLE, _END = 'text-anchor="middle"', 'text-anchor="end"'


def _text(x: float, y: float, words: str, more: str, colour: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more} fill="{colour}">{escape(words)}</text>'
