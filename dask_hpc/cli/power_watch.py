"""``dask-hpc power --watch``: a line for the node and for each of its parts, as time goes on."""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic, sleep

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from dask_hpc.cli.line_chart import Line, LineChart
from dask_hpc.power.node_meter import NodePower
from dask_hpc.power.processors import Busy
from dask_hpc.power.this_node import ThisNode

_SEEN = 300  # samples in the chart
_STYLES = ("cyan", "yellow", "magenta", "green", "bright_red", "blue")
_NODE_STYLE = "bold white"


def watch_power(node: ThisNode, interval: float, seconds: float | None, as_json: bool) -> None:
    """Sample until the time is over, or Ctrl-C."""
    began = monotonic()
    end = inf if seconds is None else began + seconds
    console = Console()
    try:
        with _chart(console) if console.is_terminal and not as_json else _lines(as_json) as show:
            due = began
            while (now := monotonic()) < end:
                due = max(due + interval, now)
                sleep(max(0.0, min(due, end) - now))
                show(monotonic() - began, *node.sample(monotonic()))
    except KeyboardInterrupt:
        return  # as asked for


@contextmanager
def _lines(as_json: bool) -> "Iterator[Callable[[float, Busy, NodePower], None]]":
    def show(time: float, busy: Busy, found: NodePower) -> None:
        reading, parts = found.reading, _parts(found)
        if as_json:
            plain = {
                "time": time, "watts": reading.watts, "uncertainty": reading.uncertainty,
                "source": reading.source, "use": busy.use, "parts": parts, "problem": found.problem,
            }  # fmt: skip
            click.echo(json.dumps(plain))
        else:
            words = f"{time:8.1f} s  {reading.watts:8.1f} W  +- {reading.uncertainty:.1f} W  {reading.source}"
            click.echo("  ".join([words, f"busy {100 * busy.use:.0f} %", *map(_words, parts.items())]))
        sys.stdout.flush()

    yield show


@contextmanager
def _chart(console: Console) -> "Iterator[Callable[[float, Busy, NodePower], None]]":
    seen = _Seen()
    with Live(console=console, auto_refresh=False) as live:

        def show(time: float, busy: Busy, found: NodePower) -> None:
            seen.add(time, found)
            live.update(seen.picture(busy, found, console.height), refresh=True)

        yield show


class _Seen:
    """What was sampled lately, by the name of the meter."""

    def __init__(self) -> None:
        self._node: deque[tuple[float, float]] = deque(maxlen=_SEEN)
        self._parts: dict[str, deque[tuple[float, float]]] = {}

    def add(self, time: float, found: NodePower) -> None:
        self._node.append((time, found.reading.watts))
        for name, watts in _parts(found).items():
            self._parts.setdefault(name, deque(maxlen=_SEEN)).append((time, watts))

    def picture(self, busy: Busy, found: NodePower, rows: int) -> Group:
        """The chart with its legend, not higher than the terminal."""
        reading = found.reading
        styles = {name: _STYLES[number % len(_STYLES)] for number, name in enumerate(self._parts)}
        now = _parts(found)
        head = Text("── node ", style=_NODE_STYLE)
        words = f"{reading.watts:.1f} W ± {reading.uncertainty:.1f} W, {reading.source}"
        head.append(f"{words}; processors {100 * busy.use:.0f} % busy", style="default")
        below = [
            Text(f"── {name} ", style=style).append(
                f"{now[name]:.1f} W" if name in now else "not known now", style="default"
            )
            for name, style in styles.items()
        ]
        if found.problem:
            below.append(Text(found.problem, style="dim"))
        below.append(Text("Ctrl-C ends", style="dim"))  # short: the terminal writes ^C behind it
        for line in (head, *below):
            line.no_wrap, line.overflow = True, "ellipsis"
        lines = [_line(self._parts[name], style) for name, style in styles.items()]
        height = max(4, min(16, rows - len(below) - 4))
        chart = LineChart([*lines, _line(self._node, _NODE_STYLE)], height=height)
        return Group(head, *([chart] if len(self._node) > 1 else []), *below)


def _line(samples: deque[tuple[float, float]], style: str) -> Line:
    return Line([time for time, _ in samples], [watts for _, watts in samples], style)


def _parts(found: NodePower) -> dict[str, float]:
    """What each sensor of a part says; the node's own is the reading."""
    return {
        f"{row.meter} {row.sensor}": row.watts
        for row in found.rows
        if row.watts is not None and row.covers in ("processor", "memory", "gpu") and not row.within
    }


def _words(part: tuple[str, float]) -> str:
    return f"{part[0]} {part[1]:.1f} W"
