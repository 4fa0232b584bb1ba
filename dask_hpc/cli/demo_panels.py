"""The panels of demos, by the names under which examples ask for them: in the terminal, and in the report."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dask_hpc.examples import Example
from dask_hpc.examples.checkpoint import LosesAll
from dask_hpc.examples.in_situ import CORES, NODES, SLOW, SLOWER, SlowAnalysis
from dask_hpc.examples.jobs import Competition, JobsExample, MovingCorridor
from dask_hpc.model.story import Kind, Word
from dask_hpc.model.units import count_nodes, show_bounds, show_duration, show_large
from dask_hpc.planning.in_situ.partition import hear_partition
from dask_hpc.view import Held, course_html, gantt_svg, past, table
from dask_hpc.view.checkpoint import Mark as Death
from dask_hpc.view.checkpoint import copies_svg, course_svg
from dask_hpc.view.field import FieldPicture, field_html
from dask_hpc.view.in_situ import COLOURS, NAMES, partition_svg, phases_svg
from dask_hpc.view.terminal import IterationBars, Line, LineChart

_TOLD = 6  # of the newest decisions
_BAR = 16  # characters of the longest bar
_OF_JOBS = ("blue", "yellow", "red", "green", "cyan")
_HEADS = ("job", "nodes", "priority", "submitted", "started", "predicted", "ended", "sizes it had")
_SIGNS: Mapping[Kind, tuple[str, str]] = {
    "more": ("▲", "green"),
    "less": ("▼", "yellow"),
    "hold": ("‖", "magenta"),
    "other": ("·", "bold"),
}


def grid(rows: Iterable[Iterable[RenderableType]], gap: int = 2) -> Table:
    """Rows of cells without lines."""
    found = Table.grid(padding=(0, gap))
    for row in rows:
        found.add_row(*row)
    return found


def _headed(title: str, rows: Iterable[Iterable[RenderableType]]) -> Group:
    return Group(Text(title, style="bold"), grid(rows))


def _words(lines: Iterable[str]) -> Text:
    return Text("\n".join(lines))


def _latest(run: Example) -> Group:
    lines = [line for line in run.lines() if not run.decisions or line[1] in run.decisions]
    return _headed(
        "latest", ((*few, Text(why, no_wrap=True, overflow="ellipsis")) for *few, why in lines[-_TOLD:])
    )


# -- jobs ------------------------------------------------------------------------------------------------


def _colours(run: JobsExample) -> dict[str, str]:
    return dict(zip(run.jobs, _OF_JOBS, strict=False))


def _nodes(run: Competition) -> Table:
    """Who has each node there ever was."""
    colours, names = _colours(run), run.names
    holds = {one["worker"] for one in run.status["holds"]}
    there = {node["name"]: node for node in run.status["nodes"]}

    def rows() -> Iterator[tuple[RenderableType, ...]]:
        for index, name in enumerate(run.nodes):
            if name not in there:
                yield f"node {index}", Text(" gone         ", style="dim")
                continue
            job = names.get(there[name]["job"], "")
            bar = Text(f" {job or 'idle':<13}", style=f"black on {colours[job]}" if job else "dim")
            held = "held: starts nothing more" if holds.intersection(there[name]["workers"]) else ""
            yield f"node {index}", bar, held

    return grid(rows())


def _waiting(run: Competition) -> Group:
    colours = _colours(run)
    rows = [row for row in run.status["jobs"] if row["state"] == "waiting"]
    return _headed(
        "waiting",
        ((Text(row["name"], colours[row["name"]]), Text(run.named(row["waiting_because"]))) for row in rows),
    )


def _tasks(run: Competition) -> ProgressBar:
    return ProgressBar(total=run.submitted, completed=run.done)


def _comparison(run: Competition) -> Table:
    title = "What happened, and what the simulator had predicted (it knew of no hold and no node that leaves)"
    shown = Table(title=title, title_justify="left")
    for head in _HEADS:
        shown.add_column(head, justify="left" if head in ("job", "sizes it had") else "right")
    for row in run.comparison():
        shown.add_row(*row)
    return shown


def held(run: JobsExample, names: Mapping[str, str]) -> list[Held]:
    """Who held which nodes, by these names, when: each change of a job's size begins a new span."""
    jobs, found = run.names, []
    since: dict[str, dict[str, Any]] = {}

    def ends(row: Mapping[str, Any], time: float) -> None:
        nodes = [names[node] for node in row["nodes"]]
        why = run.named(row["reason"])
        found.append(Held(jobs[row["job"]], nodes, row["time"] - run.zero, time - run.zero, why))

    for row in run.story:
        word = Word.read(row["decision"])
        if word and word.effect in ("has", "leaves") and row["job"] in since:
            ends(since.pop(row["job"]), row["time"])
        if word and word.effect == "has" and row["job"] in jobs:
            since[row["job"]] = row
    for row in since.values():
        ends(row, run.status["time"])
    return found


def _gantts(run: Competition) -> tuple[str, str]:
    """What happened, and what was predicted, on one axis of time."""
    nodes = [f"node {number}" for number in range(max(run.NODES, len(run.nodes)))]
    real = held(run, dict(zip(run.nodes, nodes, strict=False)))
    predicted = [
        Held(one.job, [f"node {node}" for node in one.nodes], one.start, one.end, one.note)
        for one in run.predicted.held
    ]
    end = max(one.end for one in [*real, *predicted])
    return gantt_svg(real, nodes, end), gantt_svg(predicted, nodes[: run.NODES], end)


def _events(run: Competition) -> str:
    return table(("time", "what"), [(show_duration(at), what) for at, what in run.events])


# -- power -----------------------------------------------------------------------------------------------


def _kind(row: Mapping[str, Any]) -> Kind:
    word = Word.read(row["decision"])
    return word.kind if word else "other"


def _chart(run: MovingCorridor) -> LineChart:
    marks = {row["time"] - run.zero: _SIGNS[_kind(row)] for row in run.for_power()}
    line = Line([one.time for one in run.points], [one.watts for one in run.points])
    return LineChart([line], band=run.band, marks=marks, span=(0.0, run.seconds))


def _power(run: MovingCorridor) -> Group:
    """Power now, whether it is inside, and the chart."""
    now = run.points[-1] if run.points else None
    heading = Text("waiting for the first reading")
    if now is not None:
        heading = Text(f"{show_large(now.watts, 'W')} ", style="bold")
        heading.append(*(("inside", "green") if now.is_inside else ("outside", "bold red")))
        heading.append(f"  the corridor of {show_bounds(now.lower, now.upper, 'W')}", "not bold")
    if run.is_lifted:
        heading = Text("The corridor is lifted; what is left runs to its end.")
    verdict = (run.status.get("power") or {}).get("verdict")
    if verdict is not None and not verdict["is_kept"]:
        heading.append(f"  {verdict['reason'] or 'it cannot be kept'}", "red")
    return Group(heading, _chart(run))


def _sizes(run: MovingCorridor) -> Table:
    """A block for every node that a job holds; why it waits if it does."""
    colours = _colours(run)

    def rows() -> Iterator[tuple[RenderableType, ...]]:
        for job in run.status.get("jobs", ()):
            size = len(job["nodes"]) if job["state"] == "running" else 0
            bar = Text("■ " * size, style=colours[job["name"]]).append("· " * (run.NODES - size), "dim")
            why = run.named(job["waiting_because"] or "")
            yield (
                job["name"],
                bar,
                {"running": count_nodes(size), "waiting": f"waits: {why}"}.get(job["state"], job["state"]),
            )

    return grid(rows())


def _timeline(run: MovingCorridor) -> str:
    samples = [
        (one.time, one.watts, one.lower, one.upper, *(one.forecast or (one.watts, one.watts)))
        for one in run.points
    ]
    marks = []
    for row in run.for_power():
        said = f"{row['decision']} {run.names.get(row['job'], '')}: {run.named(row['reason'])}"
        marks.append((row["time"] - run.zero, _kind(row), said))
    nodes = {node: f"node {number}" for number, node in enumerate(run.nodes)}
    course = past(held(run, nodes), list(nodes.values()), run.seconds, samples=samples, marks=marks)
    return f"<p>Power: {escape(run.MADE_UP)}.</p>{course_html(course)}"


# -- the plate -------------------------------------------------------------------------------------------


def _bounds(run: SlowAnalysis | LosesAll) -> tuple[float, float]:
    """Temperatures that are shown: from cold to the hottest so far, or a little warm."""
    return 0.0, max(0.2, 0.0 if run.field is None else float(run.field.max()))


def _field(run: SlowAnalysis | LosesAll) -> RenderableType:
    if run.field is None:
        return "waiting for the first iteration"
    return FieldPicture(run.field, *_bounds(run))


def _figure(run: SlowAnalysis | LosesAll, title: str, field: Any, width: int) -> str:
    shown = field_html(field, *_bounds(run), alt="the plate")
    return (
        f'<figure style="margin:0;flex:1;min-width:{width}rem">{shown}'
        f"<figcaption>{escape(title)}</figcaption></figure>"
    )


# -- in situ ---------------------------------------------------------------------------------------------


def _pipeline(run: SlowAnalysis) -> Group:
    """Who computes what where, what was found, and how long it took."""
    if (status := run.pipeline) is None:
        return Group()
    return Group(_cores(status), "", _analyses(run, status), "", _phases(status))


def _cores(status: Mapping[str, Any]) -> Table:
    """A row for every node, a block for every core."""
    rows: list[tuple[str, Text]] = [
        (f"node {node}", Text.assemble(*(("■ ", COLOURS[part]) for part in core_parts(status, node))))
        for node in range(len(status["nodes"]))
    ]
    legend = [word for part in COLOURS for word in (("■ ", COLOURS[part]), (f"{NAMES[part]}  ", "dim"))]
    return grid([*rows, ("", Text.assemble(*legend))])


def core_parts(status: Mapping[str, Any], node: int) -> list[str]:
    """What each core of a node is for. In sync mode all of a simulation node's cores do both, by turns."""
    partition, cores = status["partition"], status["cores"]
    if partition is None:
        return ["simulation"] * cores
    if node >= partition["nodes"]:
        return ["in_transit"] * cores
    helpers = round(partition["helper_cores"])
    return ["simulation"] * (cores - helpers) + ["in_situ"] * helpers


def _analyses(run: SlowAnalysis, status: Mapping[str, Any]) -> Table:
    """Where each of them runs, and what it found last."""

    def rows() -> Iterator[tuple[RenderableType, ...]]:
        for name in status["analyses"]:
            where = place_of(status, name)
            place = Text(NAMES[where], COLOURS[where]) if where else Text("not placed yet", "dim")
            found = Text(run.found(name), no_wrap=True)
            if name == SLOW and run.is_slow:
                found = Text(f"{SLOWER:g}x slower", "bold red", no_wrap=True)
            yield name, place, found

    return grid(rows())


def place_of(status: Mapping[str, Any], name: str) -> str:
    """The part of the machine where an analysis runs; empty before anything was decided."""
    places = status["partition"] or {"in_situ": (), "in_transit": ()}
    return next((part for part in ("in_situ", "in_transit") if name in places[part]), "")


def _phases(status: Mapping[str, Any]) -> Table:
    """How long each part took last, and what was planned."""
    if not status["history"]:
        return grid(())
    last = status["history"][-1]
    planned = last["planned"] or {}
    longest = max(last["seconds"], *last["measured"].values(), *planned.values()) or 1.0
    parts = [(NAMES[part], COLOURS[part], last["measured"][part], planned.get(part)) for part in COLOURS]

    def rows() -> Iterator[tuple[RenderableType, ...]]:
        for name, colour, seconds, plan in (
            *parts,
            ("iteration", "default", last["seconds"], last["expected"]),
        ):
            bar = Text(f"{'█' * round(_BAR * seconds / longest):<{_BAR}}", colour)
            said = "" if plan is None else f"planned {show_duration(plan)}"
            yield name, bar, show_duration(seconds), Text(said, "dim")

    return grid(rows())


def _iterations(run: SlowAnalysis) -> IterationBars:
    return IterationBars(run.history, run.changes)


def _fields(run: SlowAnalysis) -> str:
    figures = "".join(_figure(run, *one, width=9) for one in run.fields.items())
    return f'<div style="display:flex;gap:.6rem;flex-wrap:wrap">{figures}</div>'


def _partitions(run: SlowAnalysis) -> str:
    columns = "display:grid;grid-template-columns:repeat(auto-fit,minmax(24rem,1fr));gap:1rem 2rem"
    shown = "".join(
        f"<div>{partition_svg(hear_partition(one['partition']), NODES, CORES, width=470)}"
        f"<p>From iteration {one['iteration']} on: {escape(one['reason'])}</p></div>"
        for one in (run.pipeline["changes"] if run.pipeline else ())
    )
    return f'<div style="{columns}">{shown}</div>'


# -- checkpoints -----------------------------------------------------------------------------------------


def _copies(run: LosesAll) -> Table:
    """Two bars for each node: results that it holds, copies that it keeps."""
    nodes = (run.status.get("checkpoint") or {"nodes": ()})["nodes"]
    found = [(node["name"], node["own"], sum(node["kept"].values())) for node in nodes]
    most = max((size for _, *sizes in found for size in sizes), default=0) or 1
    own, kept = "#0072b2", "#e69f00"

    def bar(size: float, colour: str) -> Text:
        bar = Text("█" * max(round(_BAR * size / most), bool(size)), colour, no_wrap=True)
        return bar.append(f" {show_large(size, 'B')}" if size else "nothing", "dim")

    rows = [(f"node {name}", bar(holds, own), bar(keeps, kept)) for name, holds, keeps in found]
    return grid([*rows, ("", Text("■ holds", own), Text("■ keeps for others", kept))], gap=1)


def _deaths(run: LosesAll) -> Text:
    return Text("; ".join(one.label for one in run.deaths[-3:]), "bold red")


def _moments(run: LosesAll) -> str:
    return "".join(
        '<div style="display:flex;gap:1.2rem;align-items:center;flex-wrap:wrap;margin-bottom:.8rem">'
        f'{_figure(run, one.title, one.field, width=12)}<div style="flex:2;min-width:26rem">'
        f"{copies_svg(one.checkpoint['nodes'], width=640)}</div></div>"
        for one in run.moments
    )


def _story(run: Example) -> str:
    return table(("time", "what", *(("job", "nodes") if run.has_jobs else ()), "why"), run.lines())


#: in the terminal
PANELS: Mapping[str, Callable[[Any], RenderableType]] = {
    "summary": lambda run: _words(run.summary()), "stats": lambda run: _words(run.stats),
    "latest": _latest, "nodes": _nodes, "waiting": _waiting, "tasks": _tasks, "comparison": _comparison,
    "chart": _chart, "power": _power, "sizes": _sizes, "field": _field, "pipeline": _pipeline,
    "iterations": _iterations, "copies": _copies, "deaths": _deaths,
}  # fmt: skip

#: in the report, each with its heading
SECTIONS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "summary": ("How it went", lambda run: "".join(f"<p>{escape(line)}</p>" for line in run.summary())),
    "held": ("Who held which node", lambda run: _gantts(run)[0]),
    "events": ("What was done to the cluster meanwhile", _events),
    "predicted": ("What the simulator had predicted", lambda run: _gantts(run)[1]),
    "comparison": ("Jobs", lambda run: table(_HEADS, run.comparison())),
    "timeline": ("Nodes and power", _timeline),
    "fields": ("The plate", _fields),
    "partitions": ("Who computed what where", _partitions),
    "phases": ("Iterations", lambda run: phases_svg(run.history, run.changes)),
    "course": (
        "How far the program was when",
        lambda run: course_svg(run.course, [Death(*one) for one in run.deaths]),
    ),
    "moments": ("The plate, and where its copies were", _moments),
    "stats": ("What commits cost", lambda run: "".join(f"<pre>{escape(said)}</pre>" for said in run.stats)),
    "story": ("What happened and why", _story),
    "policy": ("The policy", lambda run: f"<pre>{escape(run.policy.to_yaml())}</pre>"),
}  # fmt: skip
