"""What happened while a script ran: time, nodes, resizes, losses, and the decisions with their reasons."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dask_hpc.cli.run_child import Child
from dask_hpc.cli.run_cluster import RunCluster
from dask_hpc.cli.story_lines import clock, named_nodes
from dask_hpc.live.allotments import Allotments, Span
from dask_hpc.model.errors import one_line
from dask_hpc.model.units import show_duration

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60  # characters of the picture of nodes over time
_MOST_ROWS = 20


def print_summary(console: Console, cluster: RunCluster, child: Child) -> None:
    """A few lines, and a table of the newest decisions."""
    status = cluster.status()
    forgotten, rows = cluster.story()
    mine = {job["id"] for job in status["jobs"] if job["script"] == cluster.job}
    rows = [row for row in rows if row["job"] in mine or not row["job"]]
    ended = "ended well" if child.code == 0 else f"ended with exit code {child.code}"
    console.print(Text(f"dask-hpc: {ended} after {show_duration(child.seconds)}", style="bold"))
    if not mine:
        console.print("dask-hpc: none of its work came to this cluster; does it start one itself?")
        return
    used = nodes_over_time(rows, cluster.began, status["time"])
    mean = sum(used) / len(used)
    console.print(Text(f"nodes used    {picture(used)}  {mean:.1f} on average, {most_nodes(rows)} at most"))
    counts = [sum(row["decision"] == kind for row in rows) for kind in ("grow", "shrink")]
    console.print(f"resizes       {sum(counts)} ({counts[0]} larger, {counts[1]} smaller)")
    console.print(f"results lost  {_lost(rows)}")
    if forgotten:
        console.print(f"The first {forgotten} rows of the story are forgotten.")
    _print_decisions(console, rows, cluster.began)


def nodes_over_time(rows: Iterable[Mapping[str, Any]], start: float, end: float) -> list[float]:
    """The mean number of nodes held, in ``_WIDTH`` equal parts of the time."""
    step = max(end - start, 1e-9) / _WIDTH
    used = [0.0] * _WIDTH
    for span in _spans(rows):
        began, over = (span.start - start) / step, ((span.end or end) - start) / step
        for part in range(max(0, int(began)), min(_WIDTH, int(over) + 1)):
            used[part] += max(0.0, min(over, part + 1) - max(began, part))
    return used


def most_nodes(rows: Iterable[Mapping[str, Any]]) -> int:
    """The most nodes held at one time, however short that was."""
    changes = []
    for span in _spans(rows):
        changes.append((span.start, 1))
        if span.end is not None:
            changes.append((span.end, -1))
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def _spans(rows: Iterable[Mapping[str, Any]]) -> Iterator[Span]:
    allotments = Allotments(length=1_000_000)
    for row in rows:
        allotments.add(row["time"], row["decision"], row["job"], row["nodes"], row["reason"])
    return allotments.spans()


def picture(used: list[float]) -> str:
    """A line of bars; what is used at all is seen."""
    most = max(used) or 1.0
    return "".join(_BARS[0 if one <= 0 else max(1, round(one / most * (len(_BARS) - 1)))] for one in used)


def _lost(rows: list[dict[str, Any]]) -> str:
    return "; ".join(row["reason"] for row in rows if row["decision"] == "lost") or "0"


def _print_decisions(console: Console, rows: list[dict[str, Any]], began: float) -> None:
    told = [row for row in rows if row["job"] or row["decision"] in ("lost", "error", "off", "policy")]
    heads = ("when", "what", "job", "nodes", "why")
    lines = [
        (
            clock(max(0.0, row["time"] - began)),
            row["decision"],
            row["job"],
            named_nodes(row["nodes"]),
            row["reason"],
        )
        for row in told[-_MOST_ROWS:]
    ]
    if len(told) > _MOST_ROWS:
        console.print(f"The last {_MOST_ROWS} of {len(told)} decisions and events:")
    if not console.is_terminal:
        for line in lines:
            when, what, *others = map(one_line, line)
            console.print(Text("  ".join([f"{when:>9}", f"{what:<8}", *filter(None, others)])))
        return
    table = Table(*heads, box=None, pad_edge=False)
    for line in lines:
        table.add_row(*(Text(one_line(part)) for part in line))
    console.print(table, soft_wrap=False)
