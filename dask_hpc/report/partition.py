"""A partition as an SVG picture: nodes to the right, cores upwards, in three colours; below, how long each of
the three takes."""

from collections.abc import Iterable, Sequence
from html import escape
from math import isfinite
from typing import NamedTuple

from dask_hpc.model.partition import Partition
from dask_hpc.model.units import count_nodes, show_duration
from dask_hpc.report.phases import COLOURS, NAMES

_LEFT, _RIGHT, _TOP = 8, 8, 20
_WIDE, _HIGH = 92, 34  # pixels of a core at most
_DEEP = 150  # pixels of all cores of a node at most
_FINE = 4  # pixels below which single nodes and cores are not told apart
_GAP = 3  # pixels between simulation and staging nodes
_LETTER = 6.4  # width of a character
_BAR, _BARS = 18, 26  # height of a bar, and from one to the next


class _Area(NamedTuple):
    """Some cores of some nodes, side by side; cores are counted from the bottom."""

    part: str
    first: float
    nodes: float
    low: float
    cores: float
    names: Sequence[str]


def partition_svg(partition: Partition, nodes: int, cores: int, *, width: int = 900) -> str:
    """The picture of a machine of so many nodes. In sync mode cores are shared by turns: they are striped."""
    across = width - _LEFT - _RIGHT - _GAP
    wide, high = min(_WIDE, across / nodes), min(_HIGH, _DEEP / cores)
    areas = list(_areas(partition, nodes, cores))
    bottom = _TOP + high * cores
    height = picture_height(cores)
    parts = [
        f'<svg class="partition" viewBox="0 0 {width} {height:.0f}" width="100%" role="img" '
        f'aria-label="{escape(_words(partition, nodes, cores))}" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="system-ui, sans-serif" font-size="11">'
        f'<defs><pattern id="by-turns" width="12" height="12" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="12" height="12" fill="{COLOURS["simulation"]}"/>'
        f'<rect width="5" height="12" fill="{COLOURS["in_situ"]}"/></pattern></defs>',
        f'<text x="{_LEFT}" y="12" fill="currentColor">{_heading(partition, nodes, cores)}</text>',
    ]
    for area in areas:
        parts += _area(area, wide, high, bottom, partition)
    parts += _bars(partition, bottom + 20, width)
    return "".join([*parts, "</svg>"])


def picture_height(cores: int) -> float:
    """How high the picture is, for whoever puts it into another one."""
    return _TOP + min(_HIGH, _DEEP / cores) * cores + 26 + 4 * _BARS


def _areas(partition: Partition, nodes: int, cores: int) -> Iterable[_Area]:
    simulating = partition.nodes
    if partition.mode == "sync":
        yield _Area(
            "by_turns" if partition.in_situ else "simulation", 0, simulating, 0, cores, partition.in_situ
        )
    else:
        helpers = partition.helper_cores
        yield _Area("simulation", 0, simulating, helpers, cores - helpers, ())
        if helpers:
            yield _Area("in_situ", 0, simulating, 0, helpers, partition.in_situ)
    if nodes > simulating:
        staging = nodes - simulating
        yield _Area("in_transit", simulating, staging, 0, cores, partition.in_transit)


def _area(area: _Area, wide: float, high: float, bottom: float, partition: Partition) -> Iterable[str]:
    x = _LEFT + area.first * wide + (_GAP if area.part == "in_transit" else 0)
    y = bottom - (area.low + area.cores) * high
    across, deep = area.nodes * wide, area.cores * high
    fill = "url(#by-turns)" if area.part == "by_turns" else COLOURS[area.part]
    if area.part == "in_transit" and not area.names:
        fill = "#8885"  # nodes that nobody needs
    tip = f"{area.nodes:g} nodes, {area.cores:g} cores of each: {_purpose(area)}"
    yield f"<g><title>{escape(tip)}</title>"
    yield f'<rect x="{x:.2f}" y="{y:.2f}" width="{across:.2f}" height="{deep:.2f}" fill="{fill}"/>'
    if min(wide, high) >= _FINE:
        lines = [f"M{x + at * wide:.2f},{y:.2f}v{deep:.2f}" for at in range(1, int(area.nodes + 0.999))]
        lines += [f"M{x:.2f},{y + at * high:.2f}h{across:.2f}" for at in range(1, int(area.cores + 0.999))]
        yield f'<path d="{"".join(lines)}" stroke="#fff" stroke-opacity="0.75" fill="none"/>'
    label = _purpose(area)
    if len(label) * _LETTER > across - 8:
        label = label.partition(":")[0]
    if len(label) * _LETTER <= across - 8 and deep >= 15:
        half = len(label) * _LETTER / 2 + 5
        middle, level = x + across / 2, y + deep / 2
        yield (
            f'<rect x="{middle - half:.1f}" y="{level - 8:.1f}" width="{2 * half:.1f}" height="16" rx="8" '
            f'fill="#fff" fill-opacity="0.88"/><text x="{middle:.1f}" y="{level + 4:.1f}" '
            f'text-anchor="middle" fill="#222">{escape(label)}</text>'
        )
    yield "</g>"


def _purpose(area: _Area) -> str:
    """What these cores are for."""
    if area.part == "by_turns":
        return f"simulation, then in situ: {', '.join(area.names)}"
    if area.part == "in_transit" and not area.names:
        return "idle"
    return NAMES[area.part] + (f": {', '.join(area.names)}" if area.names else "")


def _bars(partition: Partition, top: float, width: int) -> Iterable[str]:
    """Seconds of each part, and from one iteration to the next."""
    rows = [(NAMES[part], COLOURS[part], getattr(partition.phases, part)) for part in COLOURS]
    rows.append(("iteration", "currentColor", partition.iteration))
    longest = max([seconds for *_, seconds in rows if isfinite(seconds)], default=0.0) or 1.0
    room = width - _RIGHT - 84 - 76
    for number, (name, colour, seconds) in enumerate(rows):
        y = top + number * _BARS
        long = room * min(seconds / longest, 1.0)
        yield (
            f'<text x="{_LEFT}" y="{y + 13:.1f}" fill="currentColor">{name}</text>'
            f'<rect x="84" y="{y:.1f}" width="{max(long, 0.5):.1f}" height="{_BAR}" rx="2" fill="{colour}"'
            f"{' fill-opacity=' + chr(34) + '0.55' + chr(34) if colour == 'currentColor' else ''}/>"
            f'<text x="{84 + long + 6:.1f}" y="{y + 13:.1f}" fill="currentColor">'
            f"{show_duration(seconds)}</text>"
        )


def _heading(partition: Partition, nodes: int, cores: int) -> str:
    simulating = f"{partition.mode}: {partition.nodes:g} of {count_nodes(nodes)} ({cores} cores) simulate"
    if partition.mode == "sync" or not partition.helper_cores:
        return simulating
    many = f"{partition.helper_cores:g} helper core{'' if partition.helper_cores == 1 else 's'}"
    return f"{simulating}, {many} each"


def _words(partition: Partition, nodes: int, cores: int) -> str:
    """All that can be seen, for those who cannot."""
    places = [
        f"{', '.join(names)} {where}"
        for names, where in ((partition.in_situ, "in situ"), (partition.in_transit, "in transit"))
        if names
    ]
    return "; ".join([_heading(partition, nodes, cores), *places])
