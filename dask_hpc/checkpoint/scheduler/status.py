"""The status of checkpoints: what is protected, where the copies are, what agents and stores say."""

from collections import Counter
from collections.abc import Iterator
from time import monotonic
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.agents import Agents
from dask_hpc.checkpoint.scheduler.commits import Commits, Program
from dask_hpc.checkpoint.scheduler.context import ControllerContext
from dask_hpc.checkpoint.scheduler.protections import Protections
from dask_hpc.checkpoint.scheduler.series import Series
from dask_hpc.checkpoint.scheduler.store_writer import StoreWriter
from dask_hpc.checkpoint.scheduler.stored_results import StoredResults

#: a look at all copies that takes the scheduler at most so many seconds is made each time somebody asks; a
#: longer one as seldom as keeps it below this share of all time
_QUICK, _SHARE = 0.005, 0.01


class Look:
    """How the controller and all agents are now, as a person asks for it."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._agents = context.get(Agents)
        self._names = context.get(Protections).names
        self._seen: dict[str, Any] = {}
        self._again = 0.0

    def status(self) -> dict[str, Any]:
        """``protected``: by name how much of it is copied, its last commit, when the next is due.
        ``nodes``: what of it each holds, and of which nodes it keeps copies, in bytes. ``exposed``: results
        whose copies are all on the node that has them, too. ``levels``: copies and bytes
        of each; those on disk are some of all that partners have.
        ``agents``: what each said last. ``versions``: the newest of each checkpoint, with the levels that
        have it. ``store``: bytes on their way there, and what is wrong with it. ``counts``: see
        ``Diary.as_plain``. Times are seconds ago, and from now."""
        context, diary = self._context, self._context.diary
        programs, stored = context.get(Commits).series.values(), context.get(StoredResults).names.values()
        series: list[Series] = [*programs, *stored]
        coming = [version for one in series for version in {one.writing, one.to_write} - {None}]
        return {
            "protected": [
                {"next_due": None, **found.as_plain(), "last_commit": diary.last_commit(name)}
                for name, found in self._names.items()
            ],
            **self._places(),
            "agents": [
                {"address": address, "node": context.nodes.node_of(address), **said}
                for address, said in self._agents.facts().items()
            ],
            "versions": [row for one in programs for row in _versions(one)],
            "store": {
                "waiting": sum(version.nbytes for version in coming if version is not None),
                "written": context.get(StoreWriter).written,
                "problem": next((one.store_problem for one in series if one.store_problem), ""),
            },
            **diary.as_plain(),
            "errors": context.errors,
        }

    def _places(self) -> dict[str, Any]:
        began = monotonic()
        if began >= self._again:
            self._seen = self._look_at_copies()
            took = monotonic() - began
            self._again = began + (took / _SHARE if took > _QUICK else 0.0)
        return self._seen

    def _look_at_copies(self) -> dict[str, Any]:
        """Passes over all protected results and all copies."""
        catalogue, nodes = self._context.catalogue, self._context.nodes
        own: Counter[str] = Counter()
        home: dict[Any, str] = {}  # of a result: a node that holds it
        protected = (key for one in self._names.values() for key in one.keys)
        for key in {*protected, *catalogue.content_of}:
            task = compat.find_task(self._context.scheduler, key)
            for address in compat.holders(task)[:1] if task is not None else ():
                home[key] = nodes.node_of(address)
                own[home[key]] += compat.size(task)
        kept: dict[str, Counter[str]] = {}
        copies, total, exposed = 0, 0, 0
        agents = self._agents.facts().values()
        for one, found in catalogue.contents.items():
            copies, total = copies + len(found.where), total + found.nbytes * len(found.where)
            homes = [home[key] for key in catalogue.keys_of(one) if key in home]
            there = [nodes.node_of(address) for address in found.where]
            exposed += sum({of} == {*there} for of in homes)
            for node in there:
                kept.setdefault(node, Counter())[homes[0] if homes else ""] += found.nbytes
        return {
            # What nobody holds now, of older versions, or lost a moment ago, is kept of the node "".
            "nodes": [
                {"name": node, "own": own[node], "kept": dict(kept.get(node, {}))} for node in sorted(nodes)
            ],
            "exposed": exposed,
            "levels": {
                "partner": {"copies": copies, "nbytes": total},
                "disk": {
                    name: sum(agent.get(f"disk_{said}", 0) for agent in agents)
                    for name, said in (("copies", "copies"), ("nbytes", "used"))
                },
            },
        }


def _versions(series: Program) -> Iterator[dict[str, Any]]:
    """Of one checkpoint, the oldest first."""
    levels: dict[int, list[str]] = {}
    for level, step in series.reached.items():
        levels.setdefault(step, []).append(level)
    for step in sorted(levels):
        nbytes = series.base.nbytes if series.base is not None and series.base.step == step else None
        yield {"name": series.name, "version": step, "nbytes": nbytes, "levels": levels[step]}
