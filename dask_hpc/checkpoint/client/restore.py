"""Restore: a version of a checkpoint from its store, as it was or laid out anew, with a cluster or without.

What was one item comes back as that item, several as a dictionary by their labels. With a client, blocks are
read by the workers that are to have them, and have been read and checked when the call returns; otherwise
arrays and other collections of Dask are read when they are computed, and a block that is damaged is an error
then, never a wrong value.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import Any
from uuid import uuid4

import numpy as np

from dask_hpc import config
from dask_hpc import dask as compat
from dask_hpc.checkpoint.store.arrays import Chunks, place_of, stored_chunks
from dask_hpc.checkpoint.store.cells import Reader
from dask_hpc.checkpoint.store.files import Files, Missing
from dask_hpc.checkpoint.store.items import ARRAYS, PARTS, RESULTS, block_specs, keys_of, rebuild
from dask_hpc.checkpoint.store.manifest import Item, Manifest
from dask_hpc.checkpoint.store.seal import Damaged, Key
from dask_hpc.checkpoint.store.value import Opaque, Unknown, unpack
from dask_hpc.checkpoint.store.versions import Versions
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.node import Nodes
from dask_hpc.model.on_resize import OnResize
from dask_hpc.planning.moves.layout import Layout
from dask_hpc.planning.moves.redistribution import (
    Blocks,
    Index,
    placed_by_hand,
    read_places,
    redistribution,
)


@dataclass(frozen=True)
class Wanted:
    """A chunk that somebody is to have: a block as it is stored, or made of pieces of several."""

    #: as a ``Reader`` takes it
    plain: Mapping[str, Any]
    #: the nodes that are to have it; none: any
    targets: tuple[str, ...] = ()


def check_dims(items: Iterable[Item], layout: Layout | None) -> None:
    """Each dimension that a layout names must be one of some item."""
    if layout is None:
        return
    records = [one for item in items if item.kind in ARRAYS for one in item.meta["variables"]]
    known = dict.fromkeys(str(dim) for one in records for dim in unpack(one["dims"]))
    most = max((len(one["shape"]) for one in records), default=0)
    for dim, _ in layout.dims:
        if isinstance(dim, int):
            if dim >= most:
                found = f"found a grid of {len(layout.dims)} dimensions"
                raise InputError("layout", found, f"at most {most}, as what is stored")
        elif dim and dim not in known:
            raise InputError(
                "layout", f"found the dimension {shown(dim)}", ", ".join(known) or "none is there"
            )


#: for each chunk of a variable, as the program had it, the number of its node
Numbers = Mapping[Index, int]


def laid_out(
    item: Item,
    wanted: Mapping[str, Wanted],
    layout: Layout | None,
    nodes: Sequence[str],
    by_hand: Mapping[str, Numbers] = {},
) -> tuple[dict[str, Wanted], dict[str, Chunks]]:
    """The chunks as they are to be, each with its nodes, and the new chunks of each variable that the layout
    means. The others stay in one piece and in their order: as many on each node, neighbours together.
    ``by_hand``: what somebody said for some variables, by place."""
    records = [one for one in item.meta["variables"] if one["chunks"]] if item.kind in ARRAYS else []
    per_node = max(1, -(-len(wanted) // len(nodes)))
    made = {
        place: Wanted(one.plain, (nodes[number // per_node],))
        for number, (place, one) in enumerate(wanted.items())
    }
    grids: dict[str, Chunks] = {}
    for record in records if layout is not None else []:
        chunks = stored_chunks(record)
        own = _part_of(layout, [str(dim) for dim in unpack(record["dims"])])
        if own is None or chunks is None or any(size is None for sizes in chunks for size in sizes):
            continue
        if own.by_hand is not None and record["place"] not in by_hand:
            continue
        numbers = by_hand.get(record["place"])
        found, grids[record["place"]] = _variable(record, chunks, wanted, own, nodes, numbers)
        for place in [one for one in made if one.startswith(f"{record['place']}/")]:
            del made[place]
        made |= found
    return made, grids


def _part_of(layout: Layout | None, dims: Sequence[str]) -> Layout | None:
    """What a layout says about an array with these dimensions, if anything."""
    if layout is None or layout.is_replicated or layout.by_hand is not None:
        return layout
    meant = tuple((dim, one) for dim, one in layout.dims if dim in ("", *dims, *range(len(dims))))
    is_whole = len(meant) == len(layout.dims)  # else no grid is meant for it
    return Layout(meant, grids=layout.grids if is_whole else ()) if meant else None


def _variable(
    record: Mapping[str, Any],
    chunks: Chunks,
    wanted: Mapping[str, Wanted],
    layout: Layout,
    nodes: Sequence[str],
    numbers: Numbers | None,
) -> tuple[dict[str, Wanted], Chunks]:
    dims = tuple(str(dim) for dim in unpack(record["dims"]))
    edges = tuple((0, *accumulate(sizes)) for sizes in chunks)
    blocks = Blocks(dims, edges, {})
    if numbers is None:
        plan = redistribution(blocks, layout, nodes=len(nodes), candidates=nodes)
    else:
        asked = [tuple((0, *accumulate(sizes)) for sizes in record["chunks"])]
        (plan,) = placed_by_hand([blocks], [numbers], nodes, asked).arrays
    new = tuple(tuple(int(size) for size in np.diff(one)) for one in plan.edges)
    if 0 in record["shape"]:
        return {}, new
    found = {}
    for chunk in plan.chunks:
        if not chunk.pieces:
            continue
        olds = [wanted[place_of(record, piece.old)].plain for piece in chunk.pieces]
        plain = olds[0]
        if not chunk.is_old:
            corner = [int(cuts[at]) for cuts, at in zip(plan.edges, chunk.index, strict=True)]
            shape = [sizes[at] for sizes, at in zip(new, chunk.index, strict=True)]
            pieces = []
            for piece, old in zip(chunk.pieces, olds, strict=True):
                target = [
                    (cuts[at] + low - zero, cuts[at] + high - zero)
                    for cuts, at, (low, high), zero in zip(edges, piece.old, piece.spans, corner, strict=True)
                ]
                pieces.append((old, piece.spans, target))
            plain = {"shape": shape, "pieces": pieces}
        found[place_of(record, chunk.index)] = Wanted(plain, chunk.targets)
    return found, new


@dataclass(frozen=True)
class Restored:
    """What is known about a version that was restored."""

    name: str
    version: int
    step: int | None
    #: POSIX, by the clock of whoever wrote it
    time: float
    #: of the cluster that wrote it
    nodes: tuple[str, ...]
    token: str
    #: newer versions that are damaged, and how
    skipped: tuple[str, ...] = field(default=())


def restore(
    name: str,
    store: str | None = None,
    version: int | str = "latest",
    layout: Any = None,
    nodes: int | None = None,
    client: Any = None,
    key: Any = None,
    unpickle: bool = False,
    *,
    item: str | None = None,
    on_resize: Mapping[str, Any] = {},
    verify: bool = False,
) -> Any:
    """Give what was committed under this name, and a ``Restored`` that says what it is.

    ``store`` is a directory or a URL of fsspec (default: configuration ``hpc.checkpoint.store``). ``version``
    is a number, or ``"latest"``: the newest that is intact, so that a damaged one is passed over and named in
    ``skipped``. One item comes back as itself, several as a dictionary by label; ``item`` asks for one.

    With a ``client`` (by default the one that is active, if any) the blocks go straight to the workers:
    on so many ``nodes`` and cut as the ``layout`` says, if given (see ``redistribute``; a function gets each
    item with arrays, which are read where it looks at them), and stay so until something else is asked for.
    An asynchronous client gives an awaitable. Values of which every node has one follow the rule they were
    added with, or that of ``on_resize``, by label, if the number of nodes is another than it was.

    Without one, collections are read when they are computed; ``verify`` reads and checks everything first.

    ``key`` is what the store is encrypted with: a ``Key``, ``"file:PATH"`` or ``"env:NAME"`` (default:
    configuration ``hpc.checkpoint.key``). Items that are pickled Python objects need ``unpickle=True``, as
    reading them can run anything: only for stores that nobody else can write to.

    Raises ``InputError`` for what is not there or not allowed, ``WrongKey``, ``Damaged`` or ``Trouble``.
    """
    settings = config.checkpoint()
    root = store if store is not None else settings["store"]
    if not isinstance(root, str) or not root:
        raise InputError(
            "store", f"found {shown(root)}", "a directory or a URL, or configuration checkpoint.store"
        )
    secret = read_key(key if key is not None else settings["key"])
    versions = Versions(Files(root), name, secret)
    if layout is not None:
        layout = Layout.read(layout)
    if nodes is not None and (type(nodes) is not int or nodes < 1):
        raise InputError("nodes", f"found {shown(nodes)}", "a whole number, 1 or more")
    client = active_client() if client is None else client
    if client is None and (layout is not None or nodes is not None):
        raise InputError("layout and nodes", "found no client", "a cluster to lay things out on")
    restoration = _Restoration(
        versions, version, item, dict(on_resize), unpickle is True, verify, layout, nodes
    )
    return restoration.here() if client is None else client.sync(restoration.there, client)


def read_key(found: Any) -> Key | None:
    if found is None or isinstance(found, Key):
        return found
    if isinstance(found, str):
        return Key.read(found)
    raise InputError("key", f"found {shown(type(found).__name__)}", "file:PATH, env:NAME, or a Key")


def store_settings(root: str, keep: int, compress: str, key: Key | None, unpickle: bool) -> dict[str, Any]:
    """How to write to a store, and to read what is there, as a scheduler is told."""
    secret = key.secret if key is not None else None
    return {"root": root, "keep": keep, "compress": compress, "secret": secret, "unpickle": unpickle}


def active_client() -> Any:
    from distributed import default_client

    with suppress(ValueError):
        return default_client()
    return None


@dataclass(frozen=True)
class _Restoration:
    """What is wished for, of which versions; the first ``nodes`` get it, if a number is given."""

    versions: Versions
    version: Any
    item: str | None
    on_resize: Mapping[str, Any]
    may_unpickle: bool
    verify: bool
    layout: Layout | None = None
    nodes: int | None = None
    skipped: list[str] = field(default_factory=list)

    def candidates(self) -> Iterator[Manifest]:
        """The versions that will do, the best first."""
        if self.version != "latest":
            yield self.versions.find(self.version)
            return
        yield from self.versions.intact(self.skipped)
        if not self.versions.numbers():
            self.versions.find("latest")  # says that there is none

    @contextmanager
    def passing_over(self) -> Iterator[None]:
        """If the newest is asked for, one that is damaged is passed over."""
        try:
            yield
        except (Damaged, Missing) as error:
            if self.version != "latest":
                raise
            self.skipped.append(str(error))

    def none_left(self) -> Damaged:
        where = f"{self.versions.name} has no intact version in {self.versions.files.root}"
        return Damaged(f"{where}: {'; '.join(self.skipped)}")

    def reader(self, manifest: Manifest) -> Reader:
        versions = self.versions
        return Reader(versions.files.root, versions.name, manifest.version, versions.key, self.may_unpickle)

    def chosen(self, manifest: Manifest) -> dict[str, Item]:
        """The items that are wanted. What must not be unpickled is refused before anything is read."""
        found = dict(manifest.items)
        if self.item is not None:
            if self.item not in found:
                raise InputError("item", f"found {shown(self.item)}", ", ".join(found) or "none")
            found = {self.item: found[self.item]}
        for label, item in found.items():
            for block in item.blocks.values():
                if "opaque" in block.note and not self.may_unpickle:
                    raise _refused(label, str(block.note["opaque"]))
        return found

    def told(self, manifest: Manifest, values: dict[str, Any]) -> tuple[Any, Restored]:
        """One item as itself, several by label; and what it is."""
        names = ("name", "version", "step", "time", "nodes", "token")
        told = {name: getattr(manifest, name) for name in names}
        what = next(iter(values.values())) if len(values) == 1 else values
        return what, Restored(**told, skipped=tuple(self.skipped))

    def rebuilt(self, label: str, item: Item, blocks: Mapping[str, Any], grids: Any = None) -> Any:
        try:
            return rebuild(item.kind, item.meta, blocks, may_unpickle=self.may_unpickle, grids=grids)
        except Opaque as error:
            raise _refused(label, str(error)) from None
        except Unknown as error:
            raise Damaged(f"item {label}: its description is damaged ({error})") from None

    def here(self) -> tuple[Any, Restored]:
        """Read what is plain, and let collections be read later."""
        for manifest in self.candidates():
            with self.passing_over():
                reader, items = self.reader(manifest), self.chosen(manifest).items()
                values = {label: self._item_here(reader, label, item) for label, item in items}
                return self.told(manifest, values)
        raise self.none_left()

    def _item_here(self, reader: Reader, label: str, item: Item) -> Any:
        wanted = _wanted(label, item)
        if self.verify:
            for one in wanted.values():
                if problem := reader.check(one.plain):
                    raise Damaged(problem)
        later = {place: one for place, one in wanted.items() if _is_distributed(item, place)}
        blocks = {place: reader(one.plain) for place, one in wanted.items() if place not in later}
        return self.rebuilt(label, item, blocks | _delayed(reader, later))

    async def there(self, client: Any) -> tuple[Any, Restored]:
        groups = await nodes_of(client)
        if self.nodes is not None and self.nodes > len(groups):
            allowed = f"from 1 to {len(groups)}, as there are so many"
            raise InputError("nodes", f"found {self.nodes}", allowed)
        for manifest in await asyncio.to_thread(lambda: list(self.candidates())):
            with self.passing_over():
                values, reader, chosen = {}, self.reader(manifest), self.chosen(manifest)
                wanted = {label: _wanted(label, item) for label, item in chosen.items()}
                check_dims(chosen.values(), self.layout)
                for label, item in chosen.items():
                    found = await self._item_there(client, reader, label, item, wanted[label], groups)
                    values[label] = self._resized(label, item, found, manifest, groups)
                return self.told(manifest, values)
        raise self.none_left()

    async def _item_there(
        self,
        client: Any,
        reader: Reader,
        label: str,
        item: Item,
        wanted: Mapping[str, Wanted],
        groups: Mapping[str, list[str]],
    ) -> Any:
        here = {place: one for place, one in wanted.items() if not _is_distributed(item, place)}
        blocks = {place: await asyncio.to_thread(reader, one.plain) for place, one in here.items()}
        there = {place: one for place, one in wanted.items() if place not in here}
        grids: dict[str, Any] | None = None
        if self.layout is not None or self.nodes is not None:
            nodes = list(groups)[: self.nodes]
            by_hand = await self._placed_by_hand(reader, label, item, nodes)
            there, grids = laid_out(item, there, self.layout, nodes, by_hand)
        futures = await _read_there(client, reader, there, groups)
        found = self.rebuilt(label, item, {**blocks, **futures}, grids)
        if item.kind in PARTS:
            from distributed import wait

            found = client.persist(found)
            if any(one.targets for one in there.values()):
                await wait(found)
                parts = zip(keys_of(found), there.values(), strict=True)
                await _hold(client, {key: one.targets for key, one in parts}, groups)
        elif item.kind == "array":
            found = client.persist(found) if _is_lazy(found) else found
        elif item.kind in ARRAYS:
            variables = found.variables.values() if item.kind == "dataset" else [found.variable]
            for variable in variables:  # each by itself: others stay the blocks that were read
                if _is_lazy(variable):
                    variable.data = client.persist(variable.data)
        return found

    async def _placed_by_hand(
        self, reader: Reader, label: str, item: Item, nodes: Sequence[str]
    ) -> dict[str, Numbers]:
        """What the user's function says, if there is one: it gets the item as it is restored without a
        cluster, read where it is looked at. By the place of each variable."""
        if self.layout is None or self.layout.by_hand is None or item.kind not in ARRAYS:
            return {}
        records = {}
        for record in item.meta["variables"]:
            if record["chunks"]:
                name = unpack(record["name"]) if "name" in record else ""
                if item.kind == "dataarray" and name == item.meta["only"]:
                    name = unpack(item.meta["name"]) or ""
                records[str(name)] = record
        if not records:
            return {}
        whole = self._item_here(reader, label, item)
        answer = await asyncio.to_thread(self.layout.by_hand, whole, tuple(nodes))
        shapes = {name: tuple(map(len, record["chunks"])) for name, record in records.items()}
        found = read_places(answer, shapes, len(nodes))
        return {records[name]["place"]: numbers for name, numbers in found.items()}

    def _resized(
        self, label: str, item: Item, value: Any, manifest: Manifest, groups: Mapping[str, Any]
    ) -> Any:
        """What becomes of a value of which every node has one."""
        rule, nodes = self.on_resize.get(label, item.on_resize), list(groups)[: self.nodes]
        if item.kind != "value" or rule == "volatile" or len(nodes) == len(manifest.nodes):
            return value
        before, after = ([str(rank) for rank in range(len(of))] for of in (manifest.nodes, nodes))
        found = OnResize.read(rule).value_of_all(value, before, after)
        if isinstance(found, dict) and set(found) == set(after) and found is not value:
            return {nodes[int(rank)]: one for rank, one in found.items()}
        return found


def _refused(label: str, what: str) -> InputError:
    return InputError(
        f"item {label}",
        f"a pickled {shown(what)}, and unpickling can run anything",
        "unpickle=True, if nobody else can write to this store",
    )


def _wanted(label: str, item: Item) -> dict[str, Wanted]:
    """What a ``Reader`` has to know about each block, by place."""
    try:
        specs = block_specs(label, item.kind, item.meta)
        if set(specs) != set(item.blocks):
            raise LookupError("other blocks than described")
        for variable in item.meta["variables"] if item.kind in ARRAYS else ():
            list(unpack(variable["dims"]))
        blocks = {place: item.blocks[place].as_plain() for place in specs}
        return {place: Wanted({"spec": spec, "block": blocks[place]}) for place, spec in specs.items()}
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError) as error:
        raise Damaged(f"item {label}: its description is damaged ({type(error).__name__})") from None


def _delayed(reader: Reader, wanted: Mapping[str, Wanted]) -> dict[str, Any]:
    """Blocks that are read when they are needed, from one graph."""
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph

    if not wanted:
        return {}
    name = f"hpc-restore-{uuid4().hex}"
    keys = {place: f"{name}-{place}" for place in wanted}
    layer = {keys[place]: (reader, one.plain) for place, one in wanted.items()}
    graph = HighLevelGraph({name: layer}, {name: set()})
    return {place: Delayed(key, graph, layer=name) for place, key in keys.items()}


def _is_distributed(item: Item, place: str) -> bool:
    """Whether a block is one of a collection, and not a value that the client has as well."""
    if item.kind in ARRAYS:
        return "/" in place
    return item.kind in (*PARTS, RESULTS, "delayed", "future")


async def nodes_of(client: Any) -> dict[str, list[str]]:
    """The addresses of the workers of each node, in order, as ``hpc.node`` groups them."""
    workers = (await client.scheduler.identity())["workers"]
    found = ((address, worker["name"], worker["host"]) for address, worker in workers.items())
    nodes = Nodes.of(config.settings()["node"], found)
    return {node: nodes.workers(node) for node in nodes}


def _is_lazy(found: Any) -> bool:
    """As of an array that gets its own chunks back."""
    from dask.base import is_dask_collection
    from distributed import futures_of

    return is_dask_collection(found) and len(futures_of(found)) < len(dict(found.__dask_graph__()))


async def _read_there(
    client: Any, reader: Reader, wanted: Mapping[str, Wanted], groups: Mapping[str, list[str]]
) -> dict[str, Any]:
    """Let workers read, each what it is to have, and wait for them. The first error is raised here."""
    from distributed import as_completed

    name = f"hpc-restore-{uuid4().hex}"
    by_target: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for place, one in wanted.items():
        by_target[one.targets].append(place)
    found: dict[str, Any] = {}
    for targets, places in by_target.items():
        futures = client.map(
            reader,
            [wanted[place].plain for place in places],
            key=[f"{name}-{place}" for place in places],
            pure=False,
            workers=groups[targets[0]] if targets else None,
            allow_other_workers=bool(targets),
        )
        found |= zip(places, futures, strict=True)
    async for future in as_completed(list(found.values())):
        if future.status != "finished":
            await future.result()
    await _hold(client, {one.key: wanted[place].targets for place, one in found.items()}, groups)
    return found


async def _hold(
    client: Any, targets: Mapping[Any, Sequence[str]], groups: Mapping[str, Sequence[str]]
) -> None:
    """Let results stay on their nodes: where Dask ran a task was a wish to it."""
    wanted = {key: nodes for key, nodes in targets.items() if nodes}
    if not wanted:
        return
    from dask_hpc.redistribution.client import hold

    there = await compat.who_holds(client, set(wanted))
    turn = count()
    chosen = {}
    for key, nodes in wanted.items():
        held = there.get(key, ())
        chosen[key] = [
            next((one for one in groups[node] if one in held), groups[node][next(turn) % len(groups[node])])
            for node in nodes
        ]
    await hold(client, chosen)
