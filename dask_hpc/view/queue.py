"""A picture of a batch system's queue: the nodes that are free, and when which jobs would start there."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dask_hpc.model.units import show_duration
from dask_hpc.view.page import COLOURS, grid_line, hinted, label, nice_step, svg, tag

_WIDTH, _LEFT, _RIGHT = 760, 120, 24
_HEAD, _FREE, _GAP, _ROW, _FOOT = 24, 130, 30, 18, 8
_FREE_COLOUR = "#80ceb9"
_TICKS = 6
_LETTER = 6.6  # width of a character at 11 px


@dataclass(frozen=True, slots=True)
class QueuedBar:
    """A job that is asked for: when it starts (seconds from now), bounds of that, and its walltime. Jobs of
    one ``kind`` have one colour."""

    kind: str
    start: float
    length: float
    low: float | None = None
    high: float | None = None
    #: when it really started, if that is known
    really: float | None = None


def queue_svg(
    free: Sequence[tuple[float, int]],
    bars: Sequence[QueuedBar],
    end: float,
    holes: Iterable[tuple[float, int]] = (),
) -> str:
    """The picture, up to so many seconds from now. Above, how many nodes are free beside all who run and
    wait, from each of these times on, and the holes (for so long, so many nodes), the largest first; below, a
    row for each job."""
    scale = (_WIDTH - _LEFT - _RIGHT) / end
    top = _HEAD + _FREE + _GAP
    height = top + _ROW * len(bars) + _FOOT
    most = max((nodes for time, nodes in free if time < end), default=0) or 1
    kinds = list(dict.fromkeys(one.kind for one in bars))
    parts = [
        *_axes(end, most, scale, height),
        label(_LEFT, _HEAD - 9, "free nodes, by all walltimes; dark: the same nodes from now on"),
        tag("path", d=_under(free, end, most, scale), fill=_FREE_COLOUR, fill_opacity=0.35),
        tag("path", d=_under(_steps(holes), end, most, scale), fill=_FREE_COLOUR),
    ]
    for number, one in enumerate(bars):
        y = top + _ROW * number
        if number == 0 or bars[number - 1].kind != one.kind:
            parts.append(label(_LEFT - 8, y + 13, one.kind, "end"))
        parts.append(hinted(_words(one), *_bar(one, y, end, scale, COLOURS[kinds.index(one.kind)])))
    said = "; ".join(["Free nodes over time, and jobs that are asked for", *map(_words, bars)])
    return svg("queue", _WIDTH, height, said, parts, width=_WIDTH, height=height)


def _axes(end: float, most: int, scale: float, height: float) -> Iterator[str]:
    step = max(1, round(nice_step(most / 4)))
    for nodes in range(0, most + 1, step):
        yield grid_line(_LEFT, _WIDTH - _RIGHT, _HEAD + _FREE * (1 - nodes / most), str(nodes))
    for tick in range(_TICKS + 1):
        time = end * tick / _TICKS
        x = _LEFT + time * scale
        yield tag("line", x1=x, x2=x, y1=_HEAD, y2=height, stroke="currentColor", stroke_opacity=0.14)
        words = show_duration(time) if tick else "now"
        yield label(x, _HEAD + _FREE + 16, words, "middle", fill_opacity=0.7)


def _steps(holes: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """Holes as the nodes that are free from each time on."""
    times, nodes = [0.0], []
    for seconds, count in holes:
        times.append(seconds)
        nodes.append(count)
    return list(zip(times, [*nodes, 0], strict=True))


def _under(free: Sequence[tuple[float, int]], end: float, most: int, scale: float) -> str:
    """The outline of the area under these steps."""
    floor = _HEAD + _FREE
    words = f"M{_LEFT} {floor}"
    for time, nodes in free:
        if time < end:
            words += f"H{_LEFT + max(time, 0.0) * scale:.1f}V{floor - _FREE * nodes / most:.1f}"
    return f"{words}H{_WIDTH - _RIGHT}V{floor}Z"


def _bar(one: QueuedBar, y: float, end: float, scale: float, colour: str) -> Iterator[str]:
    x, until = (_LEFT + min(time, end) * scale for time in (one.start, one.start + one.length))
    yield tag("rect", x=x, y=y + 2, width=max(1.0, until - x), height=_ROW - 4, rx=2, fill=colour)
    words = show_duration(one.length)
    if until - x > _LETTER * len(words) + 8:
        yield label(until - 6, y + 13, words, "end", fill="#fff" if colour == COLOURS[0] else "#000")
    middle = y + _ROW / 2
    if one.low is not None and one.high is not None and one.high > one.low:
        first, last = (_LEFT + min(time, end) * scale for time in (one.low, one.high))
        ends = "".join(f"M{at:.1f} {middle - 4}v8" for at in (first, last))
        line = f"M{first:.1f} {middle}H{last:.1f}{ends}"
        yield tag("path", d=line, fill="none", stroke="currentColor", stroke_width=1.4)
    if one.really is not None and one.really <= end:
        at = _LEFT + one.really * scale
        yield tag("circle", cx=at, cy=middle, r=4, fill="#fff", stroke="currentColor", stroke_width=1.6)


def _words(one: QueuedBar) -> str:
    when = f"in {show_duration(one.start)}" if one.start >= 1 else "now"
    words = f"{one.kind}: {show_duration(one.length)}, starts {when}"
    if one.low is not None and one.high is not None and one.high > one.low:
        words += f" (most likely in {show_duration(one.low)} to {show_duration(one.high)})"
    if one.really is not None:
        words += f"; it really started after {show_duration(one.really)}"
    return words
