"""``dask-hpc power``: what this machine can measure of its power, what not, and why."""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from socket import gethostname
from time import monotonic, sleep
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from dask_hpc import config
from dask_hpc.cli.terminal import print_json, print_table
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import parse_duration
from dask_hpc.power.worker.caps import CannotCap, PackageCaps
from dask_hpc.power.worker.node_meter import NodePower, ThisNode
from dask_hpc.power.worker.sensors import Busy, SensorRow
from dask_hpc.view.terminal import Line, LineChart

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
        parts = _parts(found)
        if as_json:
            plain = {
                "time": time, "watts": found.watts, "uncertainty": found.uncertainty,
                "source": found.source, "use": busy.use, "parts": parts, "problem": found.problem,
            }  # fmt: skip
            click.echo(json.dumps(plain))
        else:
            words = f"{time:8.1f} s  {found.watts:8.1f} W  +- {found.uncertainty:.1f} W  {found.source}"
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
        self._node.append((time, found.watts))
        for name, watts in _parts(found).items():
            self._parts.setdefault(name, deque(maxlen=_SEEN)).append((time, watts))

    def picture(self, busy: Busy, found: NodePower, rows: int) -> Group:
        """The chart with its legend, not higher than the terminal."""
        styles = {name: _STYLES[number % len(_STYLES)] for number, name in enumerate(self._parts)}
        now = _parts(found)
        head = Text("── node ", style=_NODE_STYLE)
        words = f"{found.watts:.1f} W ± {found.uncertainty:.1f} W, {found.source}"
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
    """What each sensor of a part says; the node's own is the found."""
    return {
        f"{row.meter} {row.sensor}": row.watts
        for row in found.rows
        if row.watts is not None and row.covers in ("processor", "memory", "gpu") and not row.within
    }


def _words(part: tuple[str, float]) -> str:
    return f"{part[0]} {part[1]:.1f} W"


_TWO_LOOKS = 0.5  # seconds between them: counters of energy need two


@click.command()
@click.option("--watch", is_flag=True, help="Draw power as it goes on; one line per sample when piped.")
@click.option(
    "--seconds", metavar="TIME", help='Watch for this long ("30s", "2 min") instead of until Ctrl-C.'
)
@click.option("--interval", metavar="TIME", help="Time between samples (default: hpc.power-interval).")
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs; with --watch an object per line.")
@click.option("--root", default="/", metavar="DIR", help="Look under DIR/sys instead of /sys.")
def power(watch: bool, seconds: str | None, interval: str | None, as_json: bool, root: str) -> None:
    """Show which power sensors this machine has, what they say, and why others cannot be used.

    A value is measured (a sensor of the whole node), estimated (counters of its parts, and a model for the
    rest) or modelled (from how busy the processors are). Nothing is changed.

    \b
    Example:
      dask-hpc power
      dask-hpc power --watch --seconds 30s
    """
    if not Path(root).is_dir():
        raise InputError("--root", f"found {shown(root)}", "a directory")
    settings = config.settings()
    every = _duration("--interval", interval, 0.05, 60.0) if interval else settings["power-interval"]
    lasts = _duration("--seconds", seconds, 0.0, 1e9) if seconds else None
    model = settings["power-model"]
    measured = [(0.0, model["idle"]), (1.0, model["busy"])] if model else []
    with closing(ThisNode(root, measured, settings["power-meter"] != "modelled")) as node:
        node.sample(monotonic())
        if watch:
            watch_power(node, every, lasts, as_json)
            return
        sleep(_TWO_LOOKS)
        busy, found = node.sample(monotonic())
        cap = _cap(PackageCaps(root))
        if as_json:
            print_json(_plain(busy, found, node, cap))
        else:
            _print(busy, found, node, cap)


def _duration(option: str, text: str, least: float, most: float) -> float:
    try:
        seconds = parse_duration(text)
    except InputError as error:
        raise error.at(option) from None
    if not least < seconds <= most:
        allowed = f"more than {least:g} s, up to {most:g} s"
        raise InputError(option, f"found {shown(text)}", allowed)
    return seconds


def _cap(caps: PackageCaps) -> dict[str, Any]:
    """Whether the packages' power can be capped here; nothing is written."""
    problem = caps.why_not()
    try:
        least, most = caps.bounds()
    except CannotCap:
        return {"least": None, "most": None, "problem": problem}
    return {"least": least, "most": most, "problem": problem}


def _print(busy: Busy, found: NodePower, node: ThisNode, cap: dict[str, Any]) -> None:
    used = ", ".join(found.used)
    how = {
        "measured": f"measured by {used}",
        "estimated": f"estimated from {used}, and the model for the rest",
        "modelled": "modelled from that",
    }
    click.echo(f"{gethostname()}: the processors are {100 * busy.use:.0f} % busy")
    click.echo(f"{_range(found.watts, found.uncertainty)}, {how[found.source]}\n")
    rows = [_row(row, found) for row in found.rows if row.watts is not None]
    model = node.model
    now = _range(model.watts(busy.use), model.uncertainty(busy.use))
    used = {"measured": "no", "estimated": "for the rest", "modelled": "yes"}[found.source]
    print_table(
        ("meter", "covers", "now", "source", "used"), [*rows, ("model", "node", now, "modelled", used)]
    )
    click.echo(f"\nmodel: {_watts(model.idle)} idle to {_watts(model.busy)} busy ({model.origin})")
    if cap["problem"]:
        click.echo(f"cap: cannot be set: {cap['problem']}")
    else:
        click.echo(f"cap: the packages can be set to use {_watts(cap['least'])} to {_watts(cap['most'])}")
    if missing := [row for row in found.rows if row.problem]:
        click.echo("\nWhat cannot be used now, why, and what may help")
        for number, row in enumerate(missing, 1):
            click.echo(f"  {_name(row)}: {row.problem}")
            if row.fix and row.fix not in {other.fix for other in missing[number:]}:
                click.echo(f"      {row.fix}")


def _row(row: SensorRow, found: NodePower) -> tuple[str, ...]:
    used = "yes" if _name(row) in found.used else "no"
    if row.within:
        used = f"no, in {row.within}"
    elif row.covers == "other":
        used = "no, who knows of what"
    return _name(row), row.covers, _range(row.watts or 0.0, row.uncertainty), "measured", used


def _name(row: SensorRow) -> str:
    return f"{row.meter} {row.sensor}".strip()


def _range(watts: float, uncertainty: float) -> str:
    return f"{_watts(watts)} +- {_watts(uncertainty)}"


def _watts(watts: float) -> str:
    return f"{watts:.1f} W" if watts < 100 else f"{watts:.0f} W"


def _plain(busy: Busy, found: NodePower, node: ThisNode, cap: dict[str, Any]) -> dict[str, Any]:
    model = node.model
    return {
        "node": gethostname(),
        "watts": found.watts,
        "uncertainty": found.uncertainty,
        "source": found.source,
        "use": busy.use,
        "idle": found.idle,
        "meters": list(found.used),
        "problem": found.problem,
        "sensors": [row._asdict() for row in found.rows],
        "model": {
            "watts": model.watts(busy.use),
            "uncertainty": model.uncertainty(busy.use),
            "idle": model.idle,
            "busy": model.busy,
            "origin": model.origin,
        },
        "cap": cap,
    }
