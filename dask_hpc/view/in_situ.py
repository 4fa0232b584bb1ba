"""In situ pipelines as pictures: how a machine is divided among its parts, how long iterations take."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby, pairwise
from math import inf, isfinite
from typing import Any, NamedTuple

from dask_hpc.model.units import count_nodes, show_bytes, show_duration, show_large
from dask_hpc.planning.in_situ.partition import IterationStatus, Partition, PartitionProblem, hear_partition
from dask_hpc.view.page import grid_line, hinted, label, nice_step, svg, tag

#: Okabe and Ito's blue, orange and green: the simulation, in situ, in transit
COLOURS: Mapping[str, str] = {"simulation": "#0072b2", "in_situ": "#e69f00", "in_transit": "#009e73"}
NAMES: Mapping[str, str] = {"simulation": "simulation", "in_situ": "in situ", "in_transit": "in transit"}
_START, _END, _HEAD, _BOTTOM = 60, 16, 30, 36
_PALE = {"fill_opacity": 0.75}
_ANEW = "#d55e00"


def phases_svg(
    iterations: Iterable[IterationStatus],
    changes: Mapping[int, str] | None = None,
    *,
    last: int | None = None,
    width: int = 900,
    height: int = 260,
) -> str:
    """Iterations to the right, from the first that is given up to ``last``. Bars are whole iterations, lines
    their parts; what was planned is dashed. ``changes`` says, by iteration, why all was divided anew."""
    rows = list(iterations)
    first = rows[0]["iteration"] if rows else 0
    end = max(last or 0, first, *(one["iteration"] for one in rows)) + 1
    chart = _Chart(range(first, end), _top(rows), width, height)
    parts = [
        *chart.axes(),
        *(chart.bar(one) for one in rows),
        *chart.planned(rows),
        *chart.measured(rows),
        *(chart.change(at, why) for at, why in sorted((changes or {}).items()) if first <= at < end),
        *_phases_legend(),
    ]
    return svg("phases", width, height, "Seconds of each iteration, measured and planned", parts)


class _Chart:
    """Where everything stands."""

    def __init__(self, shown: range, top: float, width: int, height: int) -> None:
        self._shown, self._top, self._width, self._height = shown, top, width, height
        self._step = (width - _START - _END) / len(shown)

    def axes(self) -> Iterable[str]:
        """Round seconds and round numbers of iterations."""
        step = nice_step(self._top / 4)
        for tick in range(int(self._top / step + 1e-9) + 1):
            yield grid_line(
                _START, self._width - _END, self._y(tick * step), show_duration(tick * step), **_PALE
            )
        every = max(1, round(nice_step(len(self._shown) / 10)))
        for number in self._shown:
            if number % every == 0:
                yield label(self._x(number + 0.5), self._height - 20, str(number), "middle", **_PALE)
        middle = (_START + self._width - _END) / 2
        yield label(middle, self._height - 4, "iteration", "middle", **_PALE)

    def bar(self, one: IterationStatus) -> str:
        """A whole iteration."""
        y = self._y(min(one["seconds"], self._top))
        parts = (f"{NAMES[name]} {show_duration(value)}" for name, value in one["measured"].items())
        planned = "" if one["expected"] is None else f", planned {show_duration(one['expected'])}"
        tip = f"iteration {one['iteration']}: {show_duration(one['seconds'])}{planned}\n{', '.join(parts)}"
        place = {"x": self._x(one["iteration"]) + 0.08 * self._step, "y": y, "width": 0.84 * self._step}
        size = {"height": max(self._y(0) - y, 0), "fill": "currentColor", "fill_opacity": 0.13}
        return tag("rect", f"<title>{escape(tip)}</title>", **place, **size)

    def planned(self, rows: Iterable[IterationStatus]) -> Iterable[str]:
        """What was planned, for as long as the plan was the same."""
        for (planned, expected), group in groupby(rows, lambda one: (one["planned"], one["expected"])):
            if planned is None:
                continue
            numbers = [one["iteration"] for one in group]
            x1, x2 = self._x(numbers[0]), self._x(numbers[-1] + 1)
            parts = [(COLOURS[name], value, 1.4) for name, value in planned.items()]
            whole = [] if expected is None else [("currentColor", expected, 1.6)]
            for stroke, value, thick in parts + whole:
                yield _dashed(x1, x2, self._y(value), stroke, thick)

    def measured(self, rows: Iterable[IterationStatus]) -> Iterable[str]:
        """A line for each part of the machine that had any work."""
        for name, colour in COLOURS.items():
            values = [(one["iteration"], one["measured"][name]) for one in rows]
            if any(value for _, value in values):
                points = " ".join(f"{self._x(at + 0.5):.1f},{self._y(value):.1f}" for at, value in values)
                line = {"stroke": colour, "stroke_width": 2, "stroke_linejoin": "round"}
                yield tag("polyline", points=points, fill="none", **line)

    def change(self, number: int, why: str) -> str:
        """Where the partition was made anew, and why."""
        x = self._x(number)
        line = tag("line", x1=x, x2=x, y1=_HEAD - 4, y2=self._y(0), stroke=_ANEW, stroke_width=1.5)
        return hinted(f"from iteration {number}: {why}", line, _sign(x - 6, _HEAD - 12))

    def _x(self, number: float) -> float:
        return _START + (number - self._shown.start) * self._step

    def _y(self, seconds: float) -> float:
        share = min(seconds, self._top) / self._top
        return self._height - _BOTTOM - share * (self._height - _BOTTOM - _HEAD)


def _dashed(x1: float, x2: float, y: float, stroke: str, thick: float) -> str:
    return tag("line", x1=x1, x2=x2, y1=y, y2=y, stroke=stroke, stroke_width=thick, stroke_dasharray="5 3")


def _sign(x: float, y: float) -> str:
    return tag("path", d=f"M{x:.1f},{y:.1f} h12 l-6,9 z", fill=_ANEW)


def _top(rows: Sequence[IterationStatus]) -> float:
    """The axis holds what was planned and measured, but for what stands out in a single iteration."""
    planned = [value for one in rows for value in (one["expected"] or 0.0, *(one["planned"] or {}).values())]
    longest = [max(one["seconds"], *one["measured"].values()) for one in rows]
    usual = [min(pair) for pair in pairwise(longest)] or longest
    return 1.12 * max([value for value in planned + usual if isfinite(value)], default=0.0) or 1.0


def _phases_legend() -> Iterable[str]:
    x = float(_START)
    for name, colour in COLOURS.items():
        yield tag("rect", x=x, y=7, width=18, height=4, rx=2, fill=colour) + label(x + 23, 13, NAMES[name])
        x += 34 + 6.2 * len(NAMES[name])
    yield tag("rect", x=x, y=4, width=12, height=10, fill="currentColor", fill_opacity=0.2)
    yield label(x + 17, 13, "whole iteration")
    yield _dashed(x + 116, x + 136, 9, "currentColor", 1.6) + label(x + 141, 13, "planned")
    yield _sign(x + 200, 5) + label(x + 217, 13, "divided anew")


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
    areas = _areas(partition, nodes, cores)
    bottom = _TOP + high * cores
    height = picture_height(cores)
    stripes = [
        tag("rect", width=12, height=12, fill=COLOURS["simulation"]),
        tag("rect", width=5, height=12, fill=COLOURS["in_situ"]),
    ]
    turns = {"patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    parts = [
        tag("defs", tag("pattern", "".join(stripes), id="by-turns", width=12, height=12, **turns)),
        label(_LEFT, 12, _heading(partition, nodes, cores)),
        *("".join(_area(area, wide, high, bottom)) for area in areas),
        *_bars(partition, bottom + 20, width),
    ]
    return svg("partition", width, height, _words(partition, nodes, cores), parts)


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


def _area(area: _Area, wide: float, high: float, bottom: float) -> Iterable[str]:
    x = _LEFT + area.first * wide + (_GAP if area.part == "in_transit" else 0)
    y = bottom - (area.low + area.cores) * high
    across, deep = area.nodes * wide, area.cores * high
    fill = "url(#by-turns)" if area.part == "by_turns" else COLOURS[area.part]
    if area.part == "in_transit" and not area.names:
        fill = "#8885"  # nodes that nobody needs
    parts = [tag("rect", x=x, y=y, width=across, height=deep, fill=fill)]
    if min(wide, high) >= _FINE:
        lines = [f"M{x + at * wide:.2f},{y:.2f}v{deep:.2f}" for at in range(1, int(area.nodes + 0.999))]
        lines += [f"M{x:.2f},{y + at * high:.2f}h{across:.2f}" for at in range(1, int(area.cores + 0.999))]
        parts.append(tag("path", d="".join(lines), stroke="#fff", stroke_opacity=0.75, fill="none"))
    words = _purpose(area)
    if len(words) * _LETTER > across - 8:
        words = words.partition(":")[0]
    if len(words) * _LETTER <= across - 8 and deep >= 15:
        half, middle, level = len(words) * _LETTER / 2 + 5, x + across / 2, y + deep / 2
        box = {"x": middle - half, "y": level - 8, "width": 2 * half, "height": 16, "rx": 8}
        parts.append(tag("rect", **box, fill="#fff", fill_opacity=0.88))
        parts.append(label(middle, level + 4, words, "middle", fill="#222"))
    yield hinted(f"{area.nodes:g} nodes, {area.cores:g} cores of each: {_purpose(area)}", *parts)


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
        yield label(_LEFT, y + 13, name)
        pale = 0.55 if colour == "currentColor" else None
        box = {"x": 84, "y": y, "width": max(long, 0.5), "height": _BAR, "rx": 2}
        yield tag("rect", **box, fill=colour, fill_opacity=pale)
        yield label(84 + long + 6, y + 13, show_duration(seconds))


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
    inner, deep = _WIDTH - 2 * _EDGE + 16, picture_height(problem.nodes.cores)
    machine = partition_svg(partition, problem.nodes.count, problem.nodes.cores, width=inner)
    parts = [
        tag("rect", width=_WIDTH, height=height, fill="#fff"),
        label(_EDGE, _EDGE + 10, _title(partition), font_size=20, font_weight=600),
        label(_EDGE, _EDGE + 34, _cut(_machine(problem)), fill=_SOFT),
        tag("svg", machine, x=_EDGE - 8, y=top, width=inner, height=deep),
        *legend,
        label(_EDGE, bars, _cut(reason), fill=_SOFT),
        *_plan_bars(ways, bars + 22),
    ]
    size = {"width": _WIDTH, "height": height, "font_size": 13}
    return svg("plan", _WIDTH, height, _title(partition), parts, **size, color=_INK, fill=_INK) + "\n"


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
        box = tag("rect", x=_EDGE, y=y - 10, width=12, height=12, rx=2, fill=COLOURS[part])
        yield box + label(_EDGE + 20, y, _cut(said))


def _plan_bars(ways: Mapping[str, Partition], top: float) -> Iterable[str]:
    """For each way three bars, the simulation's, in situ and in transit; of "sync" one after another."""
    room = _WIDTH - _EDGE - _BARS_LEFT - _BARS_RIGHT
    times = [way.iteration for way in ways.values()]
    longest = min(max((time for time in times if time < inf), default=0.0), _MOST * times[0]) or 1.0
    for number, (name, way) in enumerate(ways.items()):
        y = top + _GROUP * number
        phases = way.phases
        starts = (0.0, phases.simulation if way.mode == "sync" else 0.0, 0.0)
        yield label(_EDGE, y + 25, name, font_weight=None if number else 600)
        for line, (part, start, seconds) in enumerate(zip(COLOURS, starts, phases, strict=True)):
            if not seconds:
                continue
            left = room * min(start / longest, 1)
            wide = min(room * min(seconds / longest, 1), room - left)
            place = {"x": _BARS_LEFT + left, "y": y + line * (_LINE + 2), "rx": 2, "fill": COLOURS[part]}
            bar = tag("rect", **place, width=max(wide, 0.5), height=_LINE)
            yield hinted(f"{name}, {NAMES[part]}: {show_duration(seconds)}", bar)
        said = show_duration(way.iteration)
        if number and 0 < times[0] < inf and way.iteration < inf:
            more = f"{way.iteration / times[0] - 1:+.0%}"
            said += " (as long)" if more in ("+0%", "-0%") else f" ({more})"
        end = _BARS_LEFT + room * min(way.iteration / longest, 1)
        if way.iteration > longest * 1.001:
            yield _cut_marks(end, y)
        yield label(end + 8, y + 20, said, font_weight=600)
        if way.warning:
            yield label(end + 8, y + 36, "does not fit", fill=_SOFT, font_size=11)


def _cut_marks(x: float, y: float) -> str:
    """A gap that says that a bar goes on."""
    return tag("path", d=f"M{x - 14:.1f},{y + 50:.1f}l10,-54h5l-10,54z", fill="#fff")


def _cut(words: str) -> str:
    return words if len(words) <= _LETTERS else words[: _LETTERS - 1] + "…"


_CHANGES = 12  # of a pipeline, the newest ones


def pipelines_html(pipelines: Iterable[Mapping[str, Any]]) -> str:
    """Panels of what pipelines told their cluster, those that run first: who computes what where, how long it
    takes, what changed."""
    shown = sorted(pipelines, key=lambda one: one["state"] != "running")
    return "".join(map(_pipeline, shown))


def _pipeline(one: Mapping[str, Any]) -> str:
    of = "" if one["iterations"] is None else f" of {one['iterations']}"
    heading = (
        f"{escape(one['name'])} <span>{escape(one['state'])}, {one['iteration']}{of} iterations done</span>"
    )
    partition = ""
    if one["partition"] is not None:
        partition = partition_svg(
            hear_partition(one["partition"]), len(one["nodes"]), one["cores"], width=460
        )
    changes = {change["iteration"]: change["reason"] for change in one["changes"]}
    iterations = phases_svg(one["history"], changes, last=_nearby(one), width=700)
    return (
        f'<div class="pipeline"><h3>{heading}</h3><div class="sides">'
        f"<div>{partition}{_analyses(one)}</div>"
        f'<div class="wide">{iterations}{_changes(one["changes"])}</div></div></div>'
    )


def _nearby(one: Mapping[str, Any]) -> int | None:
    """Room for all iterations of one that runs, unless those to come squeeze those that are done."""
    last = one["iterations"] if one["state"] == "running" else None
    return last if last is not None and last <= 3 * one["iteration"] else None


def _analyses(one: Mapping[str, Any]) -> str:
    """Where each runs, and what it did not look at."""
    places = {
        name: part for part in ("in_situ", "in_transit") for name in (one["partition"] or {}).get(part, ())
    }
    rows = []
    for name in one["analyses"]:
        part = places.get(name)
        where = f'<i class="part" style="background:{COLOURS[part]}"></i>{NAMES[part]}' if part else "-"
        rows.append(f"<tr><td>{escape(name)}</td><td>{where}</td><td>{_skipped(one, name)}</td></tr>")
    return (
        f"<table><tr><th>analysis</th><th>runs</th><th>skipped</th></tr>{''.join(rows)}</table>"
        if rows
        else ""
    )


def _skipped(one: Mapping[str, Any], name: str) -> str:
    found = one["skipped"].get(name)
    if not found or not found["count"]:
        return "none"
    newest = ", ".join(map(str, found["newest"]))
    return f'<span title="newest: {newest}">{found["count"]} iterations ({escape(found["how"])})</span>'


def _changes(changes: Iterable[Mapping[str, Any]]) -> str:
    """The newest first."""
    rows = "".join(
        f'<tr><td class="n">{one["iteration"]}</td>'
        f'<td class="n">{show_duration(one["partition"]["expected"])}</td>'
        f"<td>{escape(one['reason'])}</td></tr>"
        for one in list(changes)[: -_CHANGES - 1 : -1]
    )
    heads = '<th class="n">from iteration</th><th class="n">planned</th><th>divided, because</th>'
    return f"<table><tr>{heads}</tr>{rows}</table>" if rows else ""
