"""The versions of iterating programs in memory: what a program commits is pinned at once, copied beside the
computation, and then replaces the version before it.

A version is all or nothing: it counts when every block has a copy on an agent. Its results stay in memory,
too, until the next version counts, so that one death at any time costs neither. Their recipes become "load a
copy", so the graph of a program does not grow with its iterations.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from time import monotonic, time
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.agents import AgentChoice
from dask_hpc.checkpoint.scheduler.context import ControllerContext, holders, node_names
from dask_hpc.checkpoint.scheduler.schedule import Aim
from dask_hpc.checkpoint.scheduler.series import Series
from dask_hpc.checkpoint.scheduler.stored import StoredResults
from dask_hpc.checkpoint.store.manifest import Manifest
from dask_hpc.checkpoint.store.versions import leave_note
from dask_hpc.checkpoint.version import DISK, PARTNER, STORE, Changes, KeptVersion
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.strategies.checkpoint.agent_rule import failed
from dask_hpc.strategies.checkpoint.agents import Direct
from dask_hpc.strategies.checkpoint.when import Every

_LOOK, _LOOKS = 5.0, 6  # seconds between looks whether a result that does not come is lost, and how many


_NO_COPY = "no copy on another node"
_TRIES = 3  # at copying what agents did not take


class Program(Series):
    """The versions that a program commits under a name, and how it wants them to be kept."""

    def __init__(
        self, context: ControllerContext, name: str, awaiting: dict[Hashable, list[KeptVersion]]
    ) -> None:
        super().__init__(context, name, is_eager=True)
        #: of all programs, the versions that wait for a result; and whether there is news for ours
        self._awaiting = awaiting
        self._moved = asyncio.Event()
        self.client = ""
        #: results whose graph has not come yet, and the versions that they are to be pinned for
        self._unknown: dict[Hashable, list[KeptVersion]] = {}
        #: by number, those that have not arrived everywhere yet
        self._unsettled: dict[int, KeptVersion] = {}
        self.commits = self.failed = self.moved = self.unchanged = 0
        self.seconds = 0.0
        #: the newest iteration on each level
        self.reached: dict[str, int] = {}
        #: whether each commit goes to all levels
        self._is_each = True
        #: since when versions go to the store past the agents, if so, and why
        self._direct: Direct | None = None
        self._why_direct = ""
        #: a plan that is being made
        self._planning: asyncio.Task[None] | None = None

    def opened(self) -> dict[str, Any]:
        answer: dict[str, Any] = {"nodes": list(node_names(self._context)), "version": None}
        catalogue, there = self._context.catalogue, self.base
        if there is not None and all(
            holders(self._context, key) or catalogue.where(key)[1] for key in there.keys.values()
        ):
            answer["version"] = there.as_plain() | {
                "token": there.token,
                "nodes": list(there.nodes),
                "items": json.dumps(there.items),
                "blocks": [[label, place, key] for (label, place), key in there.keys.items()],
            }
        return answer

    async def commit(
        self,
        version: KeptVersion,
        levels: Sequence[str],
        every: Every | None,
        seconds_left: float,
        commits_left: float,
        aim: Aim | None = None,
    ) -> dict[str, Any]:
        """Keep it. Answers as soon as nothing can take it away."""
        self.want(levels, every or {}, version.keys.values(), aim)
        self._is_each = every is None
        self.commits_left, self.schedule.left = commits_left, seconds_left
        await self.plan()  # whether it goes to the store, too, depends on what is left
        version.begun = monotonic()
        self._unsettled = {n: one for n, one in self._unsettled.items() if not one.is_settled}
        self.follow(self.begin(version))
        self._unsettled[version.number] = version
        if PARTNER in levels:
            self.schedule.done([PARTNER])
        return {"number": version.number, "stats": self.as_plain()}

    async def look(
        self,
        levels: Sequence[str],
        every: Every,
        seconds_left: float,
        aim: Aim,
        nbytes: float,
        patience: float,
    ) -> dict[str, Any]:
        """What the program is to do from now on, with so much left and so many bytes to be kept. It waits
        for a new plan for so many seconds; what takes longer it hears when it looks again."""
        self.want(levels, every, (), aim, nbytes)
        self._is_each, self.schedule.left = False, seconds_left
        if self._planning is None or self._planning.done():
            self._planning = self._context.do("a plan", self.plan())
        await asyncio.wait([self._planning], timeout=patience)
        return self.plain_plan()

    async def arrived(self, number: int) -> dict[str, Any]:
        """Answers when a version is where it was to be, or cannot be."""
        if (version := self._unsettled.get(number) or self.base) is None or version.number < number:
            return {"number": number, "levels": [], "problem": "it made room for a newer one"}
        await self.settled(version)
        is_waiting = version in (self.target, self.writing, self.to_write)
        if version is self.base and version.store is not None and STORE not in version.levels:
            if not is_waiting:  # it was not due, but somebody waits for it
                self.store(version)
            await self.settled(version)
        return version.as_plain()

    async def leave(self) -> bool:
        """The program ends. What is on its way arrives first, the newest in the store, too. Whether memory
        may be freed: unless what is there could not be stored."""
        for version in list(self._unsettled.values()):
            await self.settled(version)
        if self.base is not None:
            await self.arrived(self.base.number)
        self.client = ""
        return self.base is None or self.base.store is None or STORE in self.base.levels

    async def plan(self) -> None:
        """Unless each commit goes to all levels."""
        if not self._is_each:
            await super().plan()

    def as_plain(self) -> dict[str, Any]:
        """What is told. ``every`` and ``due_in``: seconds by level, if that is planned; and why."""
        waiting = self.pending[-1] if self.pending and self.pending[-1] is not self.target else None
        return {
            "name": self.name,
            **{one: getattr(self, one) for one in ("commits", "failed", "superseded", "seconds", "moved")},
            "unchanged": self.unchanged,
            "problem": self.store_problem,
            "versions": self.reached,
            **self.plain_plan(),
            "due_in": {} if self.schedule.planned is None else self.schedule.due_in(),
            "direct": self._why_direct,
            "disk_problem": self.disk_problem if DISK in self.schedule.levels else "",
            **{
                said: None if one is None else one.as_plain()
                for said, one in (("complete", self.base), ("coming", self.target), ("waiting", waiting))
            },
        }

    def follow(self, changes: Changes) -> None:
        """Copy the one whose turn it is, too."""
        super().follow(changes)
        if changes.copy is not None:
            self._context.do("a copy", self._run(changes.copy))

    def pin(self, version: KeptVersion, keys: Iterable[Hashable]) -> None:
        """Let Dask keep these results, also those that are to come."""
        known = {key for key in keys if compat.find_task(self._context.scheduler, key) is not None}
        compat.pin(self._context.scheduler, known, self._owner(version))
        for key in set(keys) - known:
            self._unknown.setdefault(key, []).append(version)

    def graph_arrives(self, keys: Iterable[Hashable]) -> None:
        """Tasks were submitted. A commit may have come before the graph of its results."""
        arrived: dict[KeptVersion, set[Hashable]] = {}
        for key in keys if self._unknown else ():
            for version in self._unknown.pop(key, ()):
                arrived.setdefault(version, set()).add(key)
        for version, theirs in arrived.items():
            if self.holds(version):
                self.pin(version, theirs)

    async def _run(self, version: KeptVersion) -> None:
        try:
            version.problem = await self._copied(version)
            if not version.problem or version.problem.startswith(_NO_COPY):
                if PARTNER in version.levels:
                    self.follow(self.copied(version))
                    if version.store is not None:
                        self._context.do("a copy", self._note(version))
                is_nowhere_else = PARTNER not in version.levels or self.store_problem
                if version.store is not None and (is_nowhere_else or self._is_due(STORE)):
                    self.schedule.done([STORE])
                    self.store(version)
                if PARTNER in version.levels and self._is_due(DISK):
                    self.schedule.done([DISK])
                    if await self.to_disk(list(version.keys.values()), self.called(version)):
                        self._has(version, DISK)
        except Exception as error:
            version.problem = f"{type(error).__name__}: {error}"
            raise
        finally:
            if version not in (self.base, self.writing, self.to_write) and STORE not in version.levels:
                self.failed += 1
                self._context.tell("commit", one_line(f"{self.called(version)}: {version.problem}"))
            self.follow(self.end(version))
            self._context.is_kept(self.name)
            self._context.do("a copy", self.plan())

    async def _copied(self, version: KeptVersion) -> str:
        """Wait for all results and have them copied. What is wrong, if that cannot be."""
        catalogue = self._context.catalogue
        keys = list(dict.fromkeys(version.keys.values()))
        before = self.base.keys if self.base is not None else {}
        like = {}
        for place, key in version.keys.items():
            if (old := before.get(place)) in catalogue.content_of:
                like[key] = catalogue.content_of[old]
        missing: list[Hashable] = keys
        to_partner = self._to_partner(version)
        is_direct, why = self._is_direct or not to_partner, self._why_direct
        for _ in range(_TRIES):  # who had results or took copies may die meanwhile
            problem = await self._problem(version, keys)
            for key in keys:
                self._unknown.pop(key, None)
            if problem:
                return problem
            missing = [key for key in keys if not catalogue.where(key)[1]]
            if not missing or is_direct:
                break
            made = await self.copy(missing, like)
            version.moved += made.moved
            why = next(iter(made.failed), why)
            missing = [key for key in missing if not catalogue.where(key)[1]]
        self.need(version, (catalogue.content_of[key] for key in keys if key in catalogue.content_of))
        version.seconds = monotonic() - version.begun
        self.moved += version.moved
        self.unchanged += max(0, version.nbytes - version.moved)
        if missing and to_partner:
            problem = f"{_NO_COPY}: {len(missing)} of {len(keys)} blocks{why and ': ' + why}"
            if not is_direct:
                self._no_copy(problem)
            return problem
        if to_partner:
            if self._direct is not None:
                self._context.tell("direct", f"{self.name}: agents take copies again")
            self._direct, self._why_direct = None, ""
            self._has(version, PARTNER)
        self.commits += 1
        self.seconds += version.seconds
        return ""

    def moves(self, version: KeptVersion, key: Hashable, finish: str) -> None:
        if finish == "memory":
            version.awaited.discard(key)
        if not version.awaited or finish in ("erred", "forgotten"):
            self._moved.set()

    async def _problem(self, version: KeptVersion, keys: Iterable[Hashable]) -> str:
        """Until all are in memory: nothing. Or why they will not be."""
        tasks = {key: compat.find_task(self._context.scheduler, key) for key in keys}
        version.awaited = {key for key, task in tasks.items() if task is None or not compat.holders(task)}
        awaited, looks = list(version.awaited), Counter[Hashable]()
        for key in awaited:
            self._awaiting.setdefault(key, []).append(version)
        try:
            while version.awaited:
                gone = []
                for key in version.awaited:
                    task = compat.find_task(self._context.scheduler, key)
                    if task is not None and task.state == "erred":
                        return f"{key!r} failed"
                    if task is None or (task.state == "released" and not compat.has_recipe(task)):
                        gone.append(key)
                self._moved.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await self._moved.wait()
                        continue
                looks.update(gone)  # its graph may come after the commit does, but not that late
                if lost := [key for key in gone if looks[key] >= _LOOKS]:
                    return f"{lost[0]!r} is lost"
        finally:
            for key in awaited:
                self._awaiting[key].remove(version)
                if not self._awaiting[key]:
                    del self._awaiting[key]
        return ""

    def _is_due(self, level: str) -> bool:
        """Whether the version that is committed now goes to that level. It is taken to get there."""
        return level in self.schedule.levels and (self._is_each or self.schedule.is_due(level))

    def _to_partner(self, version: KeptVersion) -> bool:
        """Whether it is copied there at all. What somebody asks to be kept is, if it can be nowhere else."""
        schedule = self.schedule
        if schedule.aim is None or version.store is None:
            return PARTNER in schedule.levels
        return PARTNER in schedule.chosen

    def _has(self, version: KeptVersion, level: str) -> None:
        version.levels.append(level)
        self.schedule.kept(level, version.begun)
        self.reached[level] = version.step

    def stored(self, version: KeptVersion, manifest: Manifest, seconds: float) -> None:
        self.reached[STORE] = version.step
        self._context.get(StoredResults).is_committed(version, manifest)
        self.schedule.kept(STORE, version.begun)
        if STORE in self.schedule.levels:
            self.schedule.measured(STORE, seconds)

    async def _note(self, version: KeptVersion) -> None:
        """Leave a note on the store. That it cannot be is no news: the version itself is to come there."""
        assert version.store is not None
        catalogue, root = self._context.catalogue, version.store["root"]
        where = sorted({agent for key in version.keys.values() for agent in catalogue.where(key)[1]})
        with suppress(OSError):
            await self._writer.patience(root).call(leave_note, root, self.name, version.as_plain(), where)

    @property
    def _is_direct(self) -> bool:
        """Whether agents are not even asked now."""
        known, schedule = self._direct, self.schedule
        if PARTNER not in schedule.levels:
            return True
        if known is None or STORE not in schedule.levels:
            return False
        tries_again = self._context.get(AgentChoice).rule.tries_again
        costs = schedule.costs
        return not tries_again(known, monotonic(), costs[STORE], costs[PARTNER], self.commits_left)

    def _no_copy(self, why: str) -> None:
        if STORE not in self.schedule.levels:
            return
        if self._direct is None:
            what = "versions go to the store directly until it pays to try agents again"
            self._context.tell("direct", one_line(f"{self.name}: {why}; {what}"))
        self._why_direct = why
        self._direct = failed(self._direct, monotonic())

    def room_comes(self) -> None:
        """There is another agent: the next version tries."""
        if self._direct is not None:
            self._direct = replace(self._direct, again_at=-inf)


class Commits:
    """All series of versions that programs commit."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.series: dict[str, Program] = {}
        #: versions that wait for a result, by its key
        self.awaiting: dict[Hashable, list[KeptVersion]] = {}

    def moves(self, key: Hashable, finish: str) -> None:
        for version in self.awaiting[key]:
            version.series.moves(version, key, finish)

    async def open(self, name: str, client: str) -> dict[str, Any]:
        """A program begins or goes on. Answers what is in memory, if anything."""
        if name not in self.series:
            self.series[name] = Program(self._context, name, self.awaiting)
        series = self.series[name]
        if series.client not in ("", client) and series.client in self._context.scheduler.client_comms:
            raise InputError("name", f"{shown(name)} is in use by another program", "another name")
        series.client = client
        return series.opened()

    async def commit(
        self,
        name: str,
        step: int,
        token: str,
        items: str,
        blocks: list[Any],
        levels: Sequence[str] = (PARTNER,),
        every: Every | None = None,
        store: Any = None,
        seconds_left: float = inf,
        commits_left: float = inf,
        aim: Sequence[Any] | None = None,
    ) -> dict[str, Any]:
        """Keep these results as one version: see ``Program.commit``. Each version goes to all levels, or if
        it is said how often, to those that are due. What is left of the program is told by whoever knows its
        end."""
        series = self.series[name]
        version = KeptVersion(
            series,
            {(label, place): key for label, place, key in blocks},
            name=name,
            store=store,
            items=json.loads(items),
            step=step,
            token=token,
            nodes=node_names(self._context),
            time=time(),
        )
        told = None if aim is None else Aim(*aim)
        return await series.commit(version, levels, every, seconds_left, commits_left, told)

    async def look(
        self,
        name: str,
        levels: Sequence[str],
        every: Every,
        aim: Sequence[Any],
        nbytes: float = 0.0,
        seconds_left: float = inf,
        patience: float = inf,
    ) -> dict[str, Any]:
        """How often a program commits to which levels from now on: see ``Program.look``."""
        return await self.series[name].look(levels, every, seconds_left, Aim(*aim), nbytes, patience)

    async def settled(self, name: str, number: int) -> dict[str, Any]:
        """Answers when a version is where it was to be, or cannot be."""
        return await self.series[name].arrived(number)

    async def stats(self, name: str) -> dict[str, Any]:
        return self.series[name].as_plain()

    async def close(self, name: str, forget: bool) -> dict[str, Any]:
        """The program ends: see ``Program.leave``. Then, if asked to, memory is free again. Answers the
        statistics."""
        series = self.series[name]
        may_go = await series.leave()
        told = series.as_plain()
        if forget and may_go:
            self.series.pop(name, None)
            self._context.get(StoredResults).forget(name)
            series.follow(series.close())
        return told
