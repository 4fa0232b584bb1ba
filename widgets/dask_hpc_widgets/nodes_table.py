"""Nodes: who is on them, how they are, and what one can do about them."""

from collections.abc import Iterable, Mapping
from typing import Any

import traitlets

from dask_hpc import InputError
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View

_HOLD = "held in the control room"  # why a node is


class NodeDeeds:
    """What can be asked about nodes, and asked for, by a view of a live cluster."""

    _awaited: Any
    send: Any

    async def do_machines(self, asked: Mapping[str, Any]) -> None:
        """Send how every node is: nobody is told of it who does not ask."""
        found = await self._awaited.feed(parts=["machines"])
        self.send({"machines": found["machines"]})

    async def do_hold_nodes(self, asked: Mapping[str, Any]) -> str:
        """A node starts nothing new; one that is drained is to have nothing to do any more."""
        name, workers = _node(asked)
        is_drained = bool(asked.get("drain"))
        found = await (self._awaited.drain(workers) if is_drained else self._awaited.hold(workers, _HOLD))
        if found["refused"]:
            # all of it, or nothing
            await self._awaited.release(found["held"], "drain" if is_drained else _HOLD)
            raise InputError(f"node {name}: hold", next(iter(found["refused"].values())), "another node")
        return f"{name} is drained: what runs there ends" if is_drained else f"{name} starts nothing new"

    async def do_release_nodes(self, asked: Mapping[str, Any]) -> str:
        """It may start tasks again, whoever held it."""
        name, workers = _node(asked)
        await self._awaited.release(workers, None)
        return f"{name} may start tasks again"


class NodesTable(NodeDeeds, View):
    """Nodes of a cluster: who is on each, how it is, its memory and power. Search and order them; hold,
    drain and release them. How they are is asked for once a second, while somebody sees it."""

    _esm = module("nodes_table")
    _css = style()
    draws = frozenset({"turned"})

    height = traitlets.Int(360, help="pixels").tag(sync=True)

    def lines(self, whole: Mapping[str, Any]) -> Iterable[str]:
        """A line for each node."""
        yield from super().lines(whole)
        names, gone = whole["nodes"]["names"], whole["nodes"]["gone"]
        holders: dict[int, str | None] = {}
        for _, job, where, _ in whole["changes"]:
            holders |= {number: job for first, last in where for number in range(first, last + 1)}
        calls = {job["id"]: job["name"] for job in whole["jobs"]}
        for number, name in enumerate(names):
            if not any(first <= number <= last for first, last in gone):
                job = holders.get(number)
                yield f"  {name}: {'nobody' if job is None else calls.get(job, job)}"


def _node(asked: Mapping[str, Any]) -> tuple[str, list[str]]:
    workers = asked.get("workers")
    fine = isinstance(workers, list) and workers and all(isinstance(one, str) for one in workers)
    if not fine:
        raise InputError("node: workers", f"found {workers!r}", "addresses of its workers")
    return str(asked.get("name")), list(workers or ())
