"""``dask-hpc files``: the scratch files in the memory of a cluster, from beside it."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from time import monotonic
from typing import Any

import click
import yaml
from distributed.comm import CommClosedError

from dask_hpc.cli.group import scheduler_at
from dask_hpc.cli.terminal import print_json, print_table, progress_bar
from dask_hpc.memory_files.client.filesystem import PROTOCOL
from dask_hpc.memory_files.settings import CHANGEABLE
from dask_hpc.model.errors import InputError, insist, one_line, shown
from dask_hpc.model.units import count_nodes, counted, show_bytes, show_duration, show_large

_POLL, _SHARE = 0.3, 0.05  # seconds between two looks at how far a copy is; share of all time that they take
_NONE = "there is no file system in memory: dask_hpc.MemoryFiles makes one"

Row = Mapping[str, Any]


def _on_cluster(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """What all commands take. What the scheduler refuses is the user's to mend."""

    @click.argument("address")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @wraps(command)
    def told(address: str, **given: Any) -> None:
        async def done() -> None:
            async with scheduler_at(address) as scheduler:
                try:
                    await command(scheduler, **given)
                except CommClosedError:
                    raise InputError("ADDRESS", f"the scheduler at {shown(address)} is gone") from None
                except OSError as error:
                    raise InputError("NAME", _told(error)) from None

        asyncio.run(done())

    return told


@click.group()
def files() -> None:
    """List, show, resize and set scratch files in the memory of the cluster at ADDRESS, and copy them out
    (dask_hpc.MemoryFiles). The cluster need not be managed.

    \b
    Example:
      dask-hpc files list tcp://10.0.0.1:8786
      dask-hpc files stage-out tcp://10.0.0.1:8786 scratch /shared/out
    """


@files.command("list")
@_on_cluster
async def list_(scheduler: Any, as_json: bool) -> None:
    """List the file systems: how they are, on how many nodes, what is in them, how fast operations are.

    \b
    Example:
      dask-hpc files list tcp://10.0.0.1:8786
    """
    rows = await _rows(scheduler)
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo(_NONE)
    else:
        heads = ("name", "state", "nodes", "files", "size", "throughput", "recommended", "lost")
        print_table(heads, map(_cells, rows))


@files.command()
@_on_cluster
@click.argument("name", required=False)
async def status(scheduler: Any, name: str | None, as_json: bool) -> None:
    """Show the file system NAME, or the only one: its nodes with their blocks, its settings, and the socket
    by which programs of the workers' hosts that are no part of Dask reach it.

    \b
    Example:
      dask-hpc files status tcp://10.0.0.1:8786 scratch
    """
    found = await _one(scheduler, name)
    if as_json:
        print_json(found)
        return
    click.echo(summary(found))
    for copying in found["staging"]:
        click.echo(f"{copying['done']} of {copying['files']} files are copied to {one_line(copying['to'])}")
    click.echo()
    nodes = found["nodes"]
    print_table(
        ("node", "blocks", "workers"), ([one["name"], one["blocks"], len(one["agents"])] for one in nodes)
    )
    click.echo()
    print_table(
        ("setting", "value", "may be changed"),
        (
            [_dashed(key), _said(key, value), "yes" if key in CHANGEABLE else "no"]
            for key, value in found["settings"].items()
        ),
    )
    click.echo(f"\nsocket: {found['socket']}")


@files.command()
@_on_cluster
@click.argument("name")
@click.argument("nodes", metavar="NODES")
async def resize(scheduler: Any, name: str, nodes: str, as_json: bool) -> None:
    """Have NODES nodes keep the file system NAME, or "all" that there are and come. It stays in use
    meanwhile; this ends when the blocks of nodes that keep it no more are on others.

    \b
    Example:
      dask-hpc files resize tcp://10.0.0.1:8786 scratch 4
    """
    if nodes != "all" and not (nodes.isdecimal() and int(nodes)):
        raise InputError("NODES", f"found {shown(nodes)}", "a whole number >= 1, or all")
    await _one(scheduler, name)
    found = await scheduler.hpc_files_resize(name=name, nodes=None if nodes == "all" else int(nodes))
    if as_json:
        print_json(found)
    else:
        click.echo(summary(found))


@files.command("set")
@_on_cluster
@click.argument("name")
@click.argument("changes", metavar="KEY=VALUE...", nargs=-1, required=True)
async def set_(scheduler: Any, name: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Change settings of the file system NAME while it is used: copies, write-back, batch, proxy,
    recommended, encrypt.

    \b
    Example:
      dask-hpc files set tcp://10.0.0.1:8786 scratch write-back=5s "recommended=2 GB/s"
    """
    given = dict(_change(one) for one in changes)
    await _one(scheduler, name)
    found = await scheduler.hpc_files_set(name=name, changes=given)
    if as_json:
        print_json(found["settings"])
    else:
        for key in given:
            click.echo(f"{_dashed(key)}: {_said(key, found['settings'][key])}")


@files.command("stage-out")
@_on_cluster
@click.argument("name")
@click.argument("directory")
@click.option("--path", default="", help="Only what is below this path, or this file.")
async def stage_out(scheduler: Any, name: str, directory: str, path: str, as_json: bool) -> None:
    """Have the workers copy the file system NAME to DIRECTORY: one that they all see, or a URL such as
    s3://bucket/folder. Each file is there whole or not at all. The files stay in memory, too.

    \b
    Example:
      dask-hpc files stage-out tcp://10.0.0.1:8786 scratch /shared/out --path run17.zarr
    """
    await _one(scheduler, name)
    to, path = directory if "://" in directory else os.path.abspath(directory), path.strip("/")
    try:
        found = await _staged(scheduler, name, path, to)
    except CommClosedError:
        raise
    except OSError as error:
        where = "--path" if str(error.filename).startswith(f"{PROTOCOL}:") else "DIRECTORY"
        raise InputError(where, _told(error)) from None
    if as_json:
        print_json(found | {"to": to})
    else:
        click.echo(
            f"{counted(found['files'], 'file')} of {show_large(found['nbytes'], 'B')} in {one_line(to)}"
        )


async def _staged(scheduler: Any, name: str, path: str, to: str) -> dict[str, Any]:
    """The answer, and on a terminal how far it is."""
    (looked,) = await scheduler.hpc_files_do(owner="", steps=[{"do": "below", "fs": name, "path": path}])
    total = sum(one["type"] == "file" for one in looked.get("ok", ()))
    copying = asyncio.ensure_future(scheduler.hpc_files_stage_out(name=name, path=path, to=to))
    pause = _POLL
    with progress_bar("copying", total) as update:
        while update is not None and not (await asyncio.wait([copying], timeout=pause))[0]:
            began = monotonic()
            row = await scheduler.hpc_files_status(name=name)
            pause = max(_POLL, (monotonic() - began) / _SHARE)  # of millions of blocks that takes a while
            update(sum(one["done"] for one in row["staging"] if (one["path"], one["to"]) == (path, to)))
        found: dict[str, Any] = await copying
    return found


async def _rows(scheduler: Any) -> list[dict[str, Any]]:
    return list(await scheduler.hpc_files_status() or ())


async def _one(scheduler: Any, name: str | None) -> dict[str, Any]:
    rows = {row["name"]: row for row in await _rows(scheduler)}
    if name is None and len(rows) == 1:
        return next(iter(rows.values()))
    if name not in rows:
        found = "is missing" if name is None else f"found {shown(name)}"
        raise InputError("NAME", found, ", ".join(rows)) if rows else InputError("NAME", _NONE)
    return rows[name]


def _change(text: str) -> tuple[str, Any]:
    key, is_there, value = text.partition("=")
    if not is_there:
        raise InputError("KEY=VALUE", f"found {shown(text)}", "such as write-back=5s")
    try:
        read = None if value.strip().lower() == "none" else yaml.safe_load(value)
    except yaml.YAMLError:
        raise InputError(key.strip(), f"found {shown(value)}", "a value, such as 5s") from None
    key = key.strip().replace("-", "_")
    insist(key in CHANGEABLE, "KEY", _dashed(key), ", ".join(map(_dashed, CHANGEABLE)))
    return key, read


def _dashed(key: str) -> str:
    """As the configuration has it."""
    return key.replace("_", "-")


def _told(error: OSError) -> str:
    return one_line(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def summary(row: Row) -> str:
    """How a file system is, in one line."""
    words = [
        f"{row['name']}: {row['state']}, {counted(row['files'], 'file')} of {show_large(row['nbytes'], 'B')}"
    ]
    words[0] += f" on {count_nodes(len(row['nodes']))}"
    if (missing := (row["wanted"] or 0) - len(row["nodes"])) > 0:
        words.append(f"{missing} more when they come")
    if row["throughput"] is not None:
        words.append(f"operations at {show_large(row['throughput'], 'B/s')}")
    if row["settings"]["recommended"]:
        words.append(f"{show_large(row['settings']['recommended'], 'B/s')} recommended")
    if row["writers"]:
        words.append(f"{counted(row['writers'], 'file')} being written")
    if row["store_problem"]:
        words.append(f"the store cannot be written: {one_line(row['store_problem'])}")
    elif row["to_store"]:
        words.append(f"{counted(row['to_store'], 'file')} on the way to the store")
    if row["lost"]:
        words.append(f"{counted(row['lost'], 'block')} lost")
    return "; ".join(words)


def _cells(row: Row) -> list[object]:
    nodes, wanted, recommended = len(row["nodes"]), row["wanted"], row["settings"]["recommended"]
    return [
        row["name"],
        row["state"],
        nodes if wanted is None or wanted <= nodes else f"{nodes} of {wanted}",
        row["files"],
        show_large(row["nbytes"], "B"),
        "-" if row["throughput"] is None else show_large(row["throughput"], "B/s"),
        show_large(recommended, "B/s") if recommended else "-",
        row["lost"],
    ]


def _said(key: str, value: Any) -> str:
    """A setting for a person."""
    match key:
        case "nodes":
            return "all" if value is None else str(value)
        case "max_nodes" | "store":
            return str(value or "-")
        case "recommended":
            return show_large(value, "B/s") if value else "-"
        case "block" | "batch":
            return show_bytes(value)
        case "write_back":
            return show_duration(value)
        case "levels":
            return ", ".join(value)
        case "proxy":
            return {None: "where it has something to do", True: "always", False: "never"}[value]
        case "encrypt":
            return "yes" if value else "no"
    return str(value)
