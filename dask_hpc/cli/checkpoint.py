"""``dask-hpc checkpoint``: what is in a store of checkpoints, whether it is intact, and what is old."""

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import wraps
from typing import Any

import click

from dask_hpc.checkpoint.store.files import Files, Missing, Trouble
from dask_hpc.checkpoint.store.manifest import Manifest
from dask_hpc.checkpoint.store.seal import Damaged, Key, WrongKey
from dask_hpc.checkpoint.store.versions import Versions, names_in
from dask_hpc.cli.terminal import print_json, print_table
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.units import show_bytes

_one = click.option("--version", "number", type=int, help="One version only.")


def _on_store(command: Callable[..., None]) -> Callable[..., None]:
    """What all commands take. What is wrong with a store or a key is the user's to mend."""

    @click.argument("store")
    @click.argument("name", required=False)
    @click.option("--key", help="What the store is encrypted with: file:PATH or env:NAME.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @wraps(command)
    def told(**given: Any) -> None:
        try:
            command(**given)
        except Trouble as error:
            raise InputError("STORE", str(error.strerror)) from None
        except WrongKey as error:
            raise InputError("--key", str(error)) from None
        except Damaged as error:
            raise InputError("STORE", str(error)) from None

    return told


@click.group()
def checkpoint() -> None:
    """List, show, verify and prune checkpoints in a STORE: a directory, or a URL such as s3://bucket/folder.

    \b
    Example:
      dask-hpc checkpoint list /scratch/checkpoints
      dask-hpc checkpoint verify /scratch/checkpoints run-17
    """


@checkpoint.command("list")
@_on_store
def list_(store: str, name: str | None, key: str | None, as_json: bool) -> None:
    """List the versions of all checkpoints in STORE, or of the one called NAME.

    \b
    Example:
      dask-hpc checkpoint list /scratch/checkpoints
    """
    rows = [
        {"name": versions.name, "version": number} | _state(versions, number)
        for versions in _chosen(store, name, key)
        for number in versions.numbers()
    ]
    if as_json:
        print_json(rows)
        return
    heads = {
        "name": "name", "version": "version", "step": "step", "time": "written", "items": "items",
        "bytes": "size", "state": "state",
    }  # fmt: skip
    print_table(tuple(heads.values()), ([_said(head, row.get(head)) for head in heads] for row in rows))


@checkpoint.command()
@_on_store
@_one
def show(store: str, name: str | None, number: int | None, key: str | None, as_json: bool) -> None:
    """Show the items of the checkpoint NAME in STORE: of its latest intact version, or of another.

    \b
    Example:
      dask-hpc checkpoint show /scratch/checkpoints run-17
      dask-hpc checkpoint show /scratch/checkpoints run-17 --version 3 --json
    """
    chosen = list(_chosen(store, name, key))
    if len(chosen) > 1:
        raise InputError("NAME", "is missing", ", ".join(one.name for one in chosen))
    manifest = chosen[0].find("latest" if number is None else number)
    items: list[dict[str, Any]] = [
        {
            "label": label,
            "kind": item.kind,
            "what": _what(item.kind, item.meta),
            "blocks": len(item.blocks),
            "bytes": item.nbytes,
            "stored": sum(sum(block.note.get("stored", ())) for block in item.blocks.values()),
            "on_resize": item.on_resize,
        }
        for label, item in manifest.items.items()
    ]
    if as_json:
        print_json(_described(manifest) | {"items": items, "token": manifest.token})
        return
    click.echo(
        f"{manifest.name} version {manifest.version}: step {_said('step', manifest.step)}, "
        f"{_said('time', manifest.time)}, {len(manifest.nodes)} workers"
    )
    heads = {
        "label": "item", "kind": "kind", "what": "what", "blocks": "blocks", "bytes": "size",
        "stored": "stored", "on_resize": "on resize",
    }  # fmt: skip
    print_table(tuple(heads.values()), ([_said(head, one[head]) for head in heads] for one in items))


@checkpoint.command()
@_on_store
@_one
def verify(store: str, name: str | None, number: int | None, key: str | None, as_json: bool) -> None:
    """Read every file of the checkpoints in STORE, or of the one called NAME, and check its sum. Exit code 1
    if something is damaged or missing.

    \b
    Example:
      dask-hpc checkpoint verify /scratch/checkpoints run-17 --version 3
    """
    looked_at, found = [], []
    for versions in _chosen(store, name, key):
        for one in versions.numbers():
            if number is None or one == number:
                looked_at.append({"name": versions.name, "version": one})
                found += [one_line(problem) for problem in versions.problems(one)]
    if not looked_at:
        raise InputError("version", f"found {number}", "a version that is there")
    if as_json:
        print_json({"versions": looked_at, "problems": found})
    else:
        for problem in found:
            click.echo(problem)
        if not found:
            click.echo(f"{len(looked_at)} versions are intact")
    if found:
        raise click.exceptions.Exit(1)


@checkpoint.command()
@_on_store
@click.option("--keep", type=click.IntRange(1), default=1, show_default=True, help="Versions that stay.")
def prune(store: str, name: str | None, keep: int, key: str | None, as_json: bool) -> None:
    """Delete all but the last versions of the checkpoints in STORE, or of the one called NAME.

    \b
    Example:
      dask-hpc checkpoint prune /scratch/checkpoints run-17 --keep 2
    """
    gone = []
    for versions in _chosen(store, name, key):
        gone += [{"name": versions.name, "version": one} for one in versions.prune(keep)]
    if as_json:
        print_json(gone)
        return
    for one in gone:
        click.echo(f"{one['name']} version {one['version']} is deleted")
    if not gone:
        click.echo("nothing to delete")


def _chosen(store: str, name: str | None, key: str | None) -> Iterator[Versions]:
    files, secret = Files(store), Key.read(key) if key else None
    names = names_in(files)
    if name is not None:
        if not Versions(files, name).numbers():
            raise InputError("NAME", f"found {one_line(name)!r}", ", ".join(names) or "none is there")
        names = [name]
    if not names:
        raise InputError("STORE", f"there is no checkpoint in {files.root}")
    for one in names:
        yield Versions(files, one, secret)


def _state(versions: Versions, number: int) -> dict[str, Any]:
    try:
        return _described(versions.read(number)) | {"state": "there"}
    except Damaged:
        return {"state": "damaged"}
    except Missing:
        return {"state": "gone"}
    except WrongKey as error:
        return {"state": "encrypted" if versions.key is None else str(error)}


def _described(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "version": manifest.version,
        "step": manifest.step,
        "time": manifest.time,
        "workers": len(manifest.nodes),
        "items": list(manifest.items),
        "bytes": manifest.nbytes,
    }


def _what(kind: str, meta: Any) -> str:
    """An item in a few words. Names of variables are not looked at: folders' names are the same, or safe."""
    if "variables" in meta:
        found = [
            f"{one['place']} ({' x '.join('?' if size is None else str(size) for size in one['shape'])})"
            for one in meta["variables"]
            if not one.get("is coordinate")
        ]
        return ", ".join(found)
    return f"{meta['partitions']} partitions" if "partitions" in meta else kind


def _said(head: str, found: Any) -> str:
    """As a person reads it."""
    if found is None:
        return "-"
    if head in ("bytes", "stored"):
        return show_bytes(found)
    if head == "items":
        return ", ".join(found) or "-"
    if head != "time":
        return str(found)
    try:
        return datetime.fromtimestamp(found).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "at no time"
