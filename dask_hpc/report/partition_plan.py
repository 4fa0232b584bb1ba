"""A planned partition beside what else could be done, as a picture for a page or a talk."""

from collections.abc import Iterable, Mapping
from html import escape
from math import inf, isfinite

from dask_hpc.model.partition import Partition, PartitionProblem
from dask_hpc.model.units import count_nodes, show_bytes, show_duration, show_large
from dask_hpc.report.partition import partition_svg, picture_height
from dask_hpc.report.phases import COLOURS, NAMES

_WIDTH, _EDGE = 960, 30
_INK, _SOFT = "#222", "#666"
_LINE, _GROUP = 13, 62  # height of a bar, and from one partition to the next
_BARS_LEFT, _BARS_RIGHT = 130, 120
_MOST = 3.0  # times the plan: bars that are longer are cut
_LETTERS = 110  # in a line


def plan_svg(
    problem: PartitionProblem, partition: Partition, others: Mapping[str, Partition | None], reason: str = ""
) -> str:
    """The picture: the machine, the legend with the names of the analyses, and the times of all ways."""
    top = _EDGE + 56
    middle = top + picture_height(problem.nodes.cores) + 20
    legend = list(_legend(partition, middle))
    bars = middle + 18 * len(legend) + 26
    ways = {"this plan": partition} | {name: one for name, one in others.items() if one is not None}
    height = bars + 22 + _GROUP * len(ways) + _EDGE
    return "".join(
        [
            f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" height="{height:.0f}" role="img" '
            f'aria-label="{escape(_title(partition))}" xmlns="http://www.w3.org/2000/svg" color="{_INK}" '
            f'font-family="system-ui, sans-serif" font-size="13" fill="{_INK}">',
            f'<rect width="{_WIDTH}" height="{height:.0f}" fill="#fff"/>',
            _text(_EDGE, _EDGE + 10, _title(partition), 'font-size="20" font-weight="600"'),
            _text(_EDGE, _EDGE + 34, _cut(_machine(problem)), f'fill="{_SOFT}"'),
            f'<svg x="{_EDGE - 8}" y="{top}" width="{_WIDTH - 2 * _EDGE + 16}" '
            f'height="{picture_height(problem.nodes.cores):.0f}">',
            partition_svg(partition, problem.nodes.count, problem.nodes.cores, width=_WIDTH - 2 * _EDGE + 16),
            "</svg>",
            *legend,
            _text(_EDGE, bars, _cut(reason), f'fill="{_SOFT}"'),
            *_bars(ways, bars + 22),
            "</svg>\n",
        ]
    )


def _title(partition: Partition) -> str:
    inside, outside = len(partition.in_situ), len(partition.in_transit)
    many = f"{inside} {'analysis' if inside == 1 else 'analyses'} in situ, {outside} in transit"
    return f"{many}: {show_duration(partition.iteration)} an iteration"


def _machine(problem: PartitionProblem) -> str:
    machine = problem.nodes
    words = [f"{count_nodes(machine.count)} with {machine.cores} cores"]
    words += [f"{show_bytes(machine.memory)} of memory"] if isfinite(machine.memory) else []
    words += [f"{show_large(machine.bandwidth, 'B/s')} each"] if isfinite(machine.bandwidth) else []
    single = show_duration(problem.simulation.time)
    return f"{', '.join(words)}; the simulation takes {single} on a single core"


def _legend(partition: Partition, top: float) -> Iterable[str]:
    rows = (("simulation", ()), ("in_situ", partition.in_situ), ("in_transit", partition.in_transit))
    for number, (part, names) in enumerate(rows):
        y = top + 18 * number
        said = f"{NAMES[part]}: {', '.join(names) or 'none'}" if part != "simulation" else NAMES[part]
        yield (
            f'<rect x="{_EDGE}" y="{y - 10:.1f}" width="12" height="12" rx="2" fill="{COLOURS[part]}"/>'
            + _text(_EDGE + 20, y, _cut(said))
        )


def _bars(ways: Mapping[str, Partition], top: float) -> Iterable[str]:
    """For each way three bars, the simulation's, in situ and in transit; of "sync" one after another."""
    room = _WIDTH - _EDGE - _BARS_LEFT - _BARS_RIGHT
    times = [way.iteration for way in ways.values()]
    longest = min(max((time for time in times if time < inf), default=0.0), _MOST * times[0]) or 1.0
    for number, (name, way) in enumerate(ways.items()):
        y = top + _GROUP * number
        phases = way.phases
        starts = (0.0, phases.simulation if way.mode == "sync" else 0.0, 0.0)
        yield _text(_EDGE, y + 25, name, 'font-weight="600"' if number == 0 else "")
        for line, (part, start, seconds) in enumerate(zip(COLOURS, starts, phases, strict=True)):
            if not seconds:
                continue
            left = room * min(start / longest, 1)
            wide = min(room * min(seconds / longest, 1), room - left)
            level = y + line * (_LINE + 2)
            yield (
                f"<g><title>{escape(f'{name}, {NAMES[part]}: {show_duration(seconds)}')}</title>"
                f'<rect x="{_BARS_LEFT + left:.1f}" y="{level:.1f}" width="{max(wide, 0.5):.1f}" '
                f'height="{_LINE}" rx="2" fill="{COLOURS[part]}"/></g>'
            )
        said = show_duration(way.iteration)
        if number and 0 < times[0] < inf and way.iteration < inf:
            more = f"{way.iteration / times[0] - 1:+.0%}"
            said += " (as long)" if more in ("+0%", "-0%") else f" ({more})"
        end = _BARS_LEFT + room * min(way.iteration / longest, 1)
        if way.iteration > longest * 1.001:
            yield _cut_marks(end, y)
        yield _text(end + 8, y + 20, said, 'font-weight="600"')
        if way.warning:
            yield _text(end + 8, y + 36, "does not fit", f'fill="{_SOFT}" font-size="11"')


def _cut_marks(x: float, y: float) -> str:
    """A gap that says that a bar goes on."""
    return f'<path d="M{x - 14:.1f},{y + 50:.1f}l10,-54h5l-10,54z" fill="#fff"/>'


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{" " if more else ""}{more}>{escape(words)}</text>'


def _cut(words: str) -> str:
    return words if len(words) <= _LETTERS else words[: _LETTERS - 1] + "…"
