"""``dask-hpc story``: what was decided on a managed cluster and why, once or as it happens."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from dask_hpc.cli.group import scheduler_at
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.units import count_nodes

_POLL = 0.5  # seconds


@click.command()
@click.argument("address")
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, for machines.")
def story(address: str, follow: bool, as_json: bool) -> None:
    """Tell the story of the managed cluster at ADDRESS: each decision, its job, its nodes, its reason.

    For a tls:// address, certificates are taken from Dask's configuration (distributed.comm.tls).

    \b
    Example:
      dask-hpc story tcp://10.0.0.1:8786 --follow
    """
    console = Console(soft_wrap=True, highlight=False)
    try:
        asyncio.run(_tell(address, follow, as_json, console))
    except KeyboardInterrupt:
        if not follow:
            raise


async def _tell(address: str, follow: bool, as_json: bool, console: Console) -> None:
    following = 0
    async for first, rows in _pages(address, follow):
        if first > following and following:
            click.echo(f"dask-hpc: {first - following} rows were forgotten before they were read", err=True)
        following = first + len(rows)
        for row in rows:
            if as_json:
                click.echo(json.dumps(row))
            else:
                for line in story_lines(row):
                    console.print(line)
        sys.stdout.flush()


async def _pages(address: str, follow: bool) -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
    """The rows there are, and with ``follow`` those that come, each time with the number of the first."""
    following = 0
    async with scheduler_at(address) as scheduler:
        page = await scheduler.hpc_story_since(number=0)
        if page is None:
            raise InputError("ADDRESS", f"the cluster at {shown(address)} is not managed by dask-hpc")
        while page is not None:
            if page["first"] < following:  # control was closed and started anew, and so was its story
                following = 0
            else:
                yield page["first"], list(page["rows"])
                following = page["first"] + len(page["rows"])
                if not follow:
                    return
                await asyncio.sleep(_POLL)
            try:
                page = await scheduler.hpc_story_since(number=following)
            except OSError:
                click.echo("dask-hpc: the scheduler is gone", err=True)
                return
    click.echo("dask-hpc: control was closed", err=True)


_STYLES = {
    "start": "green",
    "grow": "cyan",
    "shrink": "yellow",
    "requeue": "magenta",
    "hold": "yellow",
    "cap": "yellow",
    "give-back": "yellow",
    "lend": "cyan",
    "take-back": "yellow",
    "corridor": "bold blue",
    "placement": "bold cyan",
    "skipped": "yellow",
    "recovered": "magenta",
    "commit": "bold cyan",
    "recovery": "magenta",
    "agents": "yellow",
    "interval": "cyan",
    "drain": "yellow",
    "store": "yellow",
    "files": "cyan",
    "memory-lane": "yellow",
    "together": "cyan",
    "error": "bold red",
    "fail": "bold red",
    "cancel": "red",
    "drop": "red",
    "lost": "bold red",
    "off": "bold red",
    "refused": "red",
}
_PLACED = ("id", "time", "decision", "job", "nodes", "reason")  # the others get lines of their own
_MOST_NAMES = 6  # of nodes in a line


def story_lines(row: Mapping[str, Any]) -> Iterator[Text]:
    """A row in one line, and each of its further fields (rule, inputs, ...) in one below it."""
    decision = one_line(str(row["decision"]))
    line = Text(f"{row['id']:>6}  {clock(row['time']):>9}  ", style="dim", no_wrap=True)
    line.append(f"{decision:<12}", _STYLES.get(decision, "not dim bold"))
    for part in (row["job"], named_nodes(row["nodes"]), row["reason"]):
        if part:
            line.append("  " + one_line(str(part)), "not dim")
    yield line
    for key, value in row.items():
        if key not in _PLACED and (said := in_words(value)):
            yield Text(f"{'':19}{one_line(key)}: {one_line(said)}", style="dim", no_wrap=True)


def clock(seconds: float) -> str:
    """When something was, since control began: "4.55 s", "1:02:03"."""
    if seconds < 100:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def named_nodes(names: Any) -> str:
    """A count and the first names: "2 nodes: n1, n2"."""
    if not names:
        return ""
    shown = ", ".join(map(str, names[:_MOST_NAMES]))
    more = len(names) - _MOST_NAMES
    return f"{count_nodes(len(names))}: {shown}" + (f" and {more} more" if more > 0 else "")


def in_words(value: Any) -> str:
    """Any plain data as a person would write it down; nothing for nothing."""
    if value is None or value == "":
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(in_words(one) for one in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
