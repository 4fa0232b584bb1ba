"""The scheduler's half of scratch files: it knows names, sizes and places of all, and never has their bytes.

Programs ask many things in one message (``do``). Whatever goes wrong with one of them is the answer to that
one: an error of ours breaks no computation. Installed by the first file system, and gone with the last.
"""

import asyncio
import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from statistics import fmean
from time import monotonic, time
from typing import Any, NamedTuple, cast

from distributed.diagnostics.plugin import SchedulerPlugin

from dask_hpc import config
from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.agents import agents_go
from dask_hpc.checkpoint.scheduler.context import NAME as CONTROLLER
from dask_hpc.checkpoint.scheduler.controller import Controller
from dask_hpc.cluster.scheduler.service import Guard, Timer, context_of, guarded
from dask_hpc.memory_files.scheduler.servers import KeepingNodes, StageOut
from dask_hpc.memory_files.scheduler.store_level import StoreLevel
from dask_hpc.memory_files.scheduler.table import FileTable, WriteSession
from dask_hpc.memory_files.settings import FilesSettings, check_files_name
from dask_hpc.memory_files.socket import socket_of
from dask_hpc.memory_files.worker.proxy import PROXY, FilesProxy
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.story import Explanation
from dask_hpc.strategies.files.files_view import FilesResize, FilesView
from dask_hpc.strategies.files.throughput import Throughput

NAME = "dask-hpc-files"
_FAREWELL = 5.0  # seconds for workers to let go
_STAGERS = 8  # files that are copied out at once
_JUDGED = 1.0  # seconds between two looks at how fast a file system is
_DEFAULT = Throughput()

Step = Mapping[str, Any]


async def gathered(work: Iterable[Any]) -> list[Any]:
    """What all of it gives; the first error ends it."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for one in tasks:
            one.cancel()


class JudgedThroughput(NamedTuple):
    """A strategy for files, asked as those are whose decisions are kept and can be made again."""

    strategy: Any

    def decide(self, view: FilesView, memory: None) -> tuple[FilesResize | None, None]:
        return self.strategy.decide(view), None

    def explained(self, view: FilesView) -> Explanation:
        inputs = {
            "nodes": view.servers,
            "at least": max(view.least, view.needed),
            "at most": view.most,
            "operations": len(view.rates),
            "bytes per second": fmean(view.rates) if view.rates else None,
            "recommended": view.recommended,
        }
        return Explanation(f"files: {self.strategy.name}", inputs, ())


class FilesPlugin(Guard, SchedulerPlugin):
    """All file systems of a cluster, by name."""

    name = NAME
    idempotent = True
    concern = "files: "
    farewell = "scratch files change their size no more after {} errors"

    def __init__(self) -> None:
        """It travels as plain data; all else is made where it starts."""

    def start(self, scheduler: Any) -> None:
        """Nothing here waits: two that come at once find one plugin."""
        Guard.__init__(self, scheduler)
        self.is_on, self.give_up = True, partial(self.tell, "off")
        self.systems: dict[str, KeepingNodes] = {}
        self._numbers = count(1)
        self._judging = Timer(self, "how fast files are", self._judge)
        self._calls: dict[str, Callable[..., Any]] = {
            "hpc_files_make": self.make,
            "hpc_files_do": self.do_steps,
            "hpc_files_set": self.set,
            "hpc_files_resize": self.resize,
            "hpc_files_status": self.status,
            "hpc_files_stage_out": self.stage_out,
            "hpc_files_close": self.end,
        }
        compat.add_calls(scheduler, self._calls)
        self._retire, self._give_back = compat.replace_retirement(scheduler, self.retire_workers)
        proxy = compat.pickled(FilesProxy(scheduler.id))
        self.do("telling workers", compat.add_worker_plugin(scheduler, PROXY, proxy))

    def _controller(self) -> Controller | None:
        """Who has the agents, if that is there."""
        found = self.scheduler.plugins.get(CONTROLLER)
        return found if isinstance(found, Controller) and found.is_on else None

    def tell(self, decision: str, reason: str) -> None:
        """Put it into the story, if the cluster is managed; else into Dask's event log."""
        if (managed := context_of(self.scheduler)) is not None:
            managed.tell(decision, one_line(reason))
        else:
            self.scheduler.log_event(NAME, {"decision": decision, "reason": one_line(reason)})

    # calls

    async def make(self, name: str, settings: Mapping[str, Any]) -> Any:
        """A file system of that name, which may be there already with the same settings. None if there is
        nobody to keep its blocks: then who asks installs that first."""
        if (controller := self._controller()) is None:
            return None
        try:
            name, wanted = check_files_name(name), FilesSettings.of(settings)
            if (known := self.systems.get(name)) is None:
                table = FileTable(name, wanted, self._numbers)
                known = self.systems[name] = KeepingNodes(table, controller.blocks)
                if wanted.store:
                    known.store = StoreLevel(self.scheduler, table, partial(self.tell, "files"))
                controller.blocks.join(self)
                await controller.agents.come()
                known.find_servers()
                self.tell("files", f"{name}: made on {len(known.nodes())} nodes")
            elif known.table.settings != wanted:
                raise InputError(f"files: {name}", "there is one with other settings", "the same, or set()")
        except InputError as error:
            return compat.refusal(error)
        return {"settings": known.table.settings.as_plain()}

    async def do_steps(self, owner: str, steps: Iterable[Step]) -> list[dict[str, Any]]:
        """What programs want of names and places, each with its answer: ``ok``, or ``error`` (number and
        path) or ``wrong`` (words)."""
        answers: list[dict[str, Any]] = []
        for step in steps:
            try:
                answers.append({"ok": await self._step(owner, step)})
            except OSError as error:
                answers.append({"error": [error.errno, error.strerror, error.filename]})
            except InputError as error:
                answers.append({"wrong": str(error)})
            except Exception as error:
                self.count_error(f"files: {step.get('do')}", error)
                answers.append({"error": [errno.EIO, f"{type(error).__name__}: {error}", step.get("path")]})
        for system in self.systems.values():
            system.follow()
            touched, system.table.touched = system.table.touched, {}
            if system.store is not None:
                system.store.follow(touched)
            news, system.table.news = system.table.news, []
            for one in news:
                self.tell("files", one)
        return answers

    async def _step(self, owner: str, step: Step) -> Any:
        what = step["do"]
        if what == "systems":
            return sorted(self.systems)
        if what == "agents":
            controller = self._controller()
            return controller.blocks.known() if controller is not None else []
        system = self._system(step["fs"])
        table = system.table
        match what:
            case "info":
                return table.info(step["path"])
            case "list":
                return table.listing(step["path"])
            case "below":
                return table.below(step["path"])
            case "mkdir":
                return table.make_folder(step["path"], step["parents"], step["may_exist"])
            case "rmdir":
                return table.remove_folder(step["path"])
            case "remove":
                return table.remove(step["path"], step["recursive"])
            case "rename":
                return table.rename(step["path"], step["to"])
            case "places":
                return await self._places(system, step)
            case "settings":
                return {"run": self.scheduler.id, **table.settings.as_plain()}
            case "begin":
                return self._begin(system, owner, step)
            case "announce":
                return self._announce(system, step)
            case "commit":
                return await self._commit(system, step)
            case "abandon":
                if (found := table.sessions.get(step["session"])) is not None:
                    table.abandon(found)
                return None
            case "did":
                return self._did(system, step["rates"])
        raise OSError(errno.EINVAL, f"nobody knows how to do {shown(what)}", step.get("path"))

    def _system(self, name: str) -> KeepingNodes:
        if (found := self.systems.get(name)) is None:
            raise OSError(
                errno.ENOENT, "no such file system: dask_hpc.MemoryFiles makes one", f"hpcmemory://{name}"
            )
        if self._controller() is None:
            raise OSError(errno.EIO, "its agents are gone", f"hpcmemory://{name}")
        return found

    async def _places(self, system: KeepingNodes, step: Step) -> dict[str, Any]:
        """Who has the blocks between two places of a file; all that nobody has with who had it. For a
        ``session`` what it has given, and all the rest of its file, whatever has its path."""
        table, size, begin, given = system.table, system.table.settings.block, step.get("begin", 0), {}
        if "session" in step:
            session = self._session(system, step["session"])
            table.put(session, step["put"])
            system.follow()
            file, given, length = session.file, session.put, step["end"]
            if file.is_gone:
                raise OSError(errno.ENOENT, "somebody removed it", f"hpcmemory://{table.name}/{file.path}")
        else:
            file = table.file(step["path"])
            length = file.size
        end = length if step.get("end") is None else min(step["end"], length)
        version, blocks = [file.number, file.version], []
        stored = ""
        if system.store is not None and file.stored == file.version:
            stored = system.store.url(file.path)
        wanted = range(begin // size, -(-end // size))
        there = [given.get(one) or (file.blocks[one] if one < len(file.blocks) else None) for one in wanted]
        for number, block in zip(wanted, there, strict=True):  # others may write while we wait
            if block is None:
                blocks.append([number, "", [], ""])
            else:
                where, lost = await system.where(block.content)
                blocks.append([number, block.content, where, lost])
        return {"version": version, "size": length, "block": size, "blocks": blocks, "stored": stored}

    def _session(self, system: KeepingNodes, number: int) -> WriteSession:
        found = system.table.sessions.get(number)
        if found is None:
            raise OSError(errno.ESTALE, "who opened this file is gone", f"hpcmemory://{system.table.name}")
        return found

    def _begin(self, system: KeepingNodes, owner: str, step: Step) -> dict[str, Any]:
        """``blocks`` of a whole file may be announced at once."""
        session = system.table.begin(step["path"], step["how"], owner, time())
        found: dict[str, Any] = {"session": session.number, "size": session.file.size}
        if step.get("blocks"):
            try:
                found["places"] = self._announce(system, {**step, "session": session.number})
            except BaseException:
                system.table.abandon(session)
                raise
        return found

    def _announce(self, system: KeepingNodes, step: Step) -> list[Any]:
        session = self._session(system, step["session"])
        system.table.put(session, step.get("put", ()))
        blocks, not_on = cast(Controller, self._controller()).blocks, step.get("not_on", ())
        for agent in step.get("full", ()):
            blocks.full(agent)
        try:
            return list(system.table.announce(session, step["blocks"], system.room(bool(not_on)), not_on))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            system.follow()  # some may have become free a moment ago
            return list(system.table.announce(session, step["blocks"], system.room(True), not_on))

    async def _commit(self, system: KeepingNodes, step: Step) -> list[int]:
        table = system.table
        session = self._session(system, step["session"])
        table.put(session, step.get("put", ()))
        new = [block.content for block in session.put.values()]
        file = table.commit(session, step["size"], step["ends"], time(), step.get("cuts", False))
        if "disk" in table.settings.levels and new and (controller := self._controller()) is not None:
            system.follow()
            if problem := await controller.blocks.on_disk(new):
                self.tell("files", f"{table.name}: {problem}")
        return [file.number, file.version]

    def _did(self, system: KeepingNodes, rates: Iterable[float]) -> None:
        system.rates.extend(rate for rate in rates if 0 < rate < inf)
        if not self._judging.is_set:
            self._judging.set(_JUDGED)

    async def set(self, name: str, changes: Mapping[str, Any]) -> Any:
        """Other settings from now on, for everybody."""
        try:
            system = self._system(name)
            system.change(system.table.settings.changed(changes))
        except (OSError, InputError) as error:
            return compat.refusal(error)
        plain = system.table.settings.as_plain()
        for address in compat.running_workers(self.scheduler):
            self.do("telling proxies", self._tell_proxy(address, name, plain))
        return {"settings": plain}

    async def _tell_proxy(self, address: str, name: str, settings: Mapping[str, Any]) -> None:
        try:
            await self.scheduler.rpc(address).hpc_files_settings(name=name, settings=settings)
        except OSError:  # it has gone
            return

    async def resize(self, name: str, nodes: int | None) -> Any:
        """So many nodes keep its files, or all."""
        try:
            system = self._system(name)
            if nodes is not None and (type(nodes) is not int or nodes < 1):
                raise InputError(
                    "files: nodes", f"found {shown(nodes)}", "a whole number >= 1, or None for all"
                )
            self.tell("files", await system.resize(nodes, config.settings()["drain"]))
        except (OSError, InputError) as error:
            return compat.refusal(error)
        return self._status_of(system)

    async def status(self, name: str | None = None) -> Any:
        """Of one file system, or of all."""
        if name is None:
            return self.rows()
        try:
            return self._status_of(self._system(name))
        except OSError as error:
            return compat.refusal(error)

    def rows(self) -> list[dict[str, Any]]:
        """The status of each file system."""
        return [self._status_of(system) for system in self.systems.values()]

    def _status_of(self, system: KeepingNodes) -> dict[str, Any]:
        return system.status() | {"socket": socket_of(self.scheduler.id)}

    async def stage_out(self, name: str, path: str, to: str) -> Any:
        """Have workers copy what is below a path to a directory or a URL; how many files and bytes."""
        try:
            system = self._system(name)
            found = [one for one in system.table.below(path) if one["type"] == "file"]
            workers = sorted(compat.running_workers(self.scheduler))
            if found and not workers:
                raise OSError(errno.EIO, "there are no workers", f"hpcmemory://{name}/{path}")
            told = StageOut(path, to, len(found))
            system.staging.append(told)
            try:
                sizes = await gathered(
                    self._stage_some(name, told, found[i::_STAGERS], workers[i % len(workers)])
                    for i in range(min(_STAGERS, len(found)))
                )
            finally:
                system.staging.remove(told)
        except OSError as error:
            return compat.refusal(error)
        return {"files": len(found), "nbytes": sum(sizes)}

    async def _stage_some(self, name: str, told: StageOut, files: Iterable[Step], worker: str) -> int:
        nbytes, path, to = 0, told.path, told.to
        for file in files:
            below = file["name"][len(path) :].lstrip("/") or file["name"].rpartition("/")[2]
            said = await self.scheduler.rpc(worker).hpc_files_stage(
                path=f"{name}/{file['name']}", to=f"{to.rstrip('/')}/{below}"
            )
            if said is None or "error" in said:
                raise OSError(
                    errno.EIO, one_line(said["error"] if said else "it has no proxy"), f"{to}/{below}"
                )
            nbytes += said["nbytes"]
            told.done += 1
        return nbytes

    async def end(self, name: str) -> None:
        """Its files are gone."""
        if (system := self.systems.get(name)) is None:
            return
        if system.store is not None:
            await system.store.all_is_there()
            system.store.close()
            system.store = None
        self.systems.pop(name, None)
        for path in list(system.table.files):
            system.table.remove(path)
        for session in list(system.table.sessions.values()):
            system.table.abandon(session)
        system.follow()
        self.tell("files", f"{name}: closed")
        if not self.systems:
            if (controller := self._controller()) is not None:
                controller.blocks.leave(self)
                controller.stop_if_unused()
            self._leave()
            await self._have_left()

    async def _have_left(self) -> None:
        """Until workers have nothing of files any more: a cluster may close right after this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await asyncio.gather(*self._tasks, *agents_go(self.scheduler), return_exceptions=True)

    def _leave(self) -> None:
        self.is_on = False
        self._judging.stop()
        self._give_back()
        compat.remove_calls(self.scheduler, self._calls)
        if self.scheduler.plugins.get(NAME) is self:
            self.scheduler.remove_plugin(NAME)
        self.do("taking proxies away", compat.remove_worker_plugin(self.scheduler, PROXY))

    # what happens

    async def retire_workers(
        self,
        workers: Iterable[Any] | None = None,
        *,
        names: Iterable[Any] | None = None,
        close_workers: bool = False,
        remove: bool = True,
        stimulus_id: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """As Dask's, or as that of a managed cluster; but files leave before their workers do."""
        how = {"close_workers": close_workers, "remove": remove, "stimulus_id": stimulus_id}
        controller = self._controller()
        if not self.is_on or controller is None or context_of(self.scheduler) is not None:
            return await self._retire(workers, names=names, **how, **kwargs)
        try:
            given = workers if names is None else names
            if given is None:
                given, kwargs = self.scheduler.workers_to_close(**kwargs), {}
            groups = compat.named_workers(self.scheduler, [given] if isinstance(given, str) else given)
            leaving = [address for group in groups.values() for address in group]
            await controller.keeper.drain(leaving)
        except Exception as error:
            self.count_error("a retirement", error)
            return await self._retire(workers, names=names, **how, **kwargs)
        found = await self._retire(leaving, **how)
        self.stay_after_all([one for one in leaving if compat.worker_status(self.scheduler, one)])
        return found

    @guarded
    def remove_client(self, scheduler: Any, client: str) -> None:
        self._owner_is_gone(client)

    @guarded
    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        self._owner_is_gone(worker)
        self.agents_change()

    def _owner_is_gone(self, owner: str) -> None:
        for system in self.systems.values():
            if number := system.table.owner_is_gone(owner):
                self.tell(
                    "files", f"{system.table.name}: {number} files that {owner} was writing are as before"
                )
            system.follow()

    def agents_change(self) -> None:
        """Some have come, or gone: files are kept by as many nodes as are wanted, if there are so many."""
        for system in self.systems.values():
            if system.find_servers():
                self.do("spreading files", self._spread(system))

    async def _spread(self, system: KeepingNodes) -> None:
        if told := await system.spread():
            self.tell("files", told)

    def lost(self, agent: str, contents: Iterable[str]) -> None:
        """An agent is gone, and had these."""
        there = list(contents)
        for system in self.systems.values():
            before = system.lost_blocks
            system.lost(agent, there)
            if more := system.lost_blocks - before:
                self.tell("files", f"{system.table.name}: {more} blocks were lost with {agent}")

    def announced(self, agents: Collection[str]) -> Mapping[str, Collection[str]]:
        """These are about to go: new blocks go to others. Contents that somebody is about to give them."""
        found: dict[str, set[str]] = {}
        for system in self.systems.values():
            for agent, contents in system.announced(agents).items():
                found.setdefault(agent, set()).update(contents)
        return found

    def leaving(self, agents: Collection[str]) -> Mapping[str, str]:
        """These are about to go: new blocks go to others. By content, who is to have what they have."""
        hints: dict[str, str] = {}
        for system in self.systems.values():
            hints |= system.leaving(agents)
        return hints

    async def prepare(self, agents: Collection[str]) -> None:
        """These are about to go: new blocks go to others, and what proxies keep back there is written."""
        self.announced(agents)
        await asyncio.gather(*(self._flush_proxy(agent) for agent in agents))

    async def _flush_proxy(self, agent: str) -> None:
        """What is kept back there is written before it goes."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self.scheduler.rpc(agent).hpc_files_flush()

    def stay_after_all(self, agents: Iterable[str]) -> None:
        """They were to go, and have not."""
        for system in self.systems.values():
            system.stay_after_all(agents)
        self.agents_change()

    def is_over(self, reason: str) -> None:
        """There are no agents any more."""
        self.tell("files", f"all scratch files are gone: {reason}")
        self.systems.clear()
        self._leave()

    async def close(self) -> None:
        """The scheduler closes."""
        self.is_on = False
        self._judging.stop()
        for task in self._tasks:
            task.cancel()
        for system in self.systems.values():
            if system.store is not None:
                system.store.close()

    # as fast as recommended

    @property
    def nodes_wanted(self) -> int:
        """So many nodes there are to be for the sake of files."""
        return max((system.wanted or 0 for system in self.systems.values()), default=0)

    def _judge(self) -> None:
        for system in self._judged():
            self.do("resizing files", self._follow_throughput(system))

    def _judged(self) -> Iterator[KeepingNodes]:
        for system in self.systems.values():
            if system.table.settings.recommended and system.rates and not system.is_shrinking:
                yield system

    def foresee(self, strategy: Any) -> Iterable[tuple[KeepingNodes, FilesResize]]:
        """What that strategy would have done now; None for the usual one."""
        for system in self._judged():
            view = self._view(system)
            found = (strategy or _DEFAULT).decide(view)
            if found is not None and found.servers != view.servers:
                yield system, found

    def _view(self, system: KeepingNodes) -> FilesView:
        settings, nodes = system.table.settings, len(system.nodes())
        most = settings.max_nodes or len(system.nodes(system.known))
        return FilesView(
            system.table.name, nodes, settings.nodes or 1, most, system.least_nodes(), settings.recommended,
            tuple(system.rates), monotonic() - system.changed, system.before,
        )  # fmt: skip

    async def _follow_throughput(self, system: KeepingNodes) -> None:
        managed = context_of(self.scheduler)
        if managed is not None and (managed.is_paused or managed.is_dry):
            return
        asked = JudgedThroughput((managed and managed.policy.files) or _DEFAULT)
        view = self._view(system)
        found, _ = asked.decide(view, None)
        if found is None or found.servers in (view.servers, system.wanted):
            return
        if managed is not None:
            managed.record(asked, view, None, found)
            managed.tell("files", f"{system.table.name}: {found.reason}", asked.explained(view))
        else:
            self.tell("files", f"{system.table.name}: {found.reason}")
        try:
            self.tell("files", await system.resize(found.servers, config.settings()["drain"]))
        except InputError as error:
            self.tell("files", str(error))
