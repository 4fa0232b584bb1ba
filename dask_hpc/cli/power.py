"""``dask-hpc power``: what this machine can measure of its power, what not, and why."""

import json
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import click

from dask_hpc import config
from dask_hpc.cli.power_watch import watch_power
from dask_hpc.cli.table import print_table
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import parse_duration
from dask_hpc.power.caps import CannotCap, PackageCaps
from dask_hpc.power.node_meter import NodePower
from dask_hpc.power.processors import Busy
from dask_hpc.power.sensed import Sensed
from dask_hpc.power.this_node import ThisNode

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
            click.echo(json.dumps(_plain(busy, found, node, cap), indent=2))
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
    reading = found.reading
    used = ", ".join(found.used)
    how = {
        "measured": f"measured by {used}",
        "estimated": f"estimated from {used}, and the model for the rest",
        "modelled": "modelled from that",
    }
    click.echo(f"{reading.node}: the processors are {100 * busy.use:.0f} % busy")
    click.echo(f"{_range(reading.watts, reading.uncertainty)}, {how[reading.source]}\n")
    rows = [_row(row, found) for row in found.rows if row.watts is not None]
    model = node.meter.model
    now = _range(model.watts(busy.use), model.uncertainty(busy.use))
    used = {"measured": "no", "estimated": "for the rest", "modelled": "yes"}[reading.source]
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


def _row(row: Sensed, found: NodePower) -> tuple[str, ...]:
    used = "yes" if _name(row) in found.used else "no"
    if row.within:
        used = f"no, in {row.within}"
    elif row.covers == "other":
        used = "no, who knows of what"
    return _name(row), row.covers, _range(row.watts or 0.0, row.uncertainty), "measured", used


def _name(row: Sensed) -> str:
    return f"{row.meter} {row.sensor}".strip()


def _range(watts: float, uncertainty: float) -> str:
    return f"{_watts(watts)} +- {_watts(uncertainty)}"


def _watts(watts: float) -> str:
    return f"{watts:.1f} W" if watts < 100 else f"{watts:.0f} W"


def _plain(busy: Busy, found: NodePower, node: ThisNode, cap: dict[str, Any]) -> dict[str, Any]:
    model = node.meter.model
    reading = found.reading
    return {
        "node": reading.node,
        "watts": reading.watts,
        "uncertainty": reading.uncertainty,
        "source": reading.source,
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
