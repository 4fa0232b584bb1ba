"""The worker's half of the checkpoint service: keeps copies of other workers' blocks, and gives out both
those and the blocks of its own results.

Results of Dask never change, so a copy may be made at any time beside running tasks, and all copies together
are a consistent cut.
"""

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any

import psutil
from distributed import WorkerPlugin
from distributed.comm import get_address_host
from distributed.protocol import pickle
from distributed.system import MEMORY_LIMIT

from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store.files import Trouble
from dask_hpc.checkpoint.store.seal import Damaged
from dask_hpc.checkpoint.worker.block import QUICK, Block, unpacked
from dask_hpc.checkpoint.worker.kept import Full, KeptCopies, Scratch, Shelf
from dask_hpc.checkpoint.worker.transfer import (
    WINDOW,
    AgentTraffic,
    Found,
    Giver,
    Stream,
    Wanted,
    Window,
    an_answer,
    is_there,
    together,
)
from dask_hpc.dask.scheduler import add_calls, remove_calls
from dask_hpc.dask.workers import forget_old_needs

logger = logging.getLogger(__name__)

Answer = dict[str, Any]

_MARGIN = 0.05  # of the limit, below the mark at which Dask would do something
_MARK = 0.8  # of the limit, if Dask does nothing


NAME = "dask-hpc-agent"
METRIC = "hpc_agent"
#: of the events with which an agent says what a person should know
SAYS = "hpc-agent-says"
_DISK_SHARE = 0.25  # of what is free on the disk
_LOOK = 0.1  # seconds between two looks at memory
_PATIENCE = 120.0  # seconds for which we hold something for others who are silent
_CALLS = 2  # functions at a time that are called with blocks


class Agent(WorkerPlugin):
    """``share`` is the part of the worker's memory limit that copies may take, or a number of bytes. Copies
    on disk lie below ``disk`` (empty: beside the worker's own folder). ``run`` tells the cluster from others
    on the same disk."""

    name = NAME

    def __init__(self, share: float, disk: str = "", run: str = "") -> None:
        self._share = share
        self._disk = disk
        self._run = run

    async def setup(self, worker: Any) -> None:
        """Tasks of this worker start when this is over, so nothing here waits."""
        self._worker = worker
        limit = self._limit
        self.kept = KeptCopies(self._share * limit if self._share <= 1 else min(self._share, limit))
        self.traffic = AgentTraffic()
        self.link = link_of(get_address_host(worker.address))
        self.giver = Giver(worker, self.kept, self.traffic)
        self._window = Window(2 * WINDOW)
        self._calls_at_once = asyncio.Semaphore(_CALLS)
        self._scratch: Scratch | None = None
        self._said = ""
        self._idle_since = monotonic()
        self._answers: dict[str, Callable[..., Any]] = {
            "hpc_agent_offers": self.giver.offers,
            "hpc_agent_part": self.giver.part,
            "hpc_agent_take": self.take,
            "hpc_agent_put": self.put,
            "hpc_agent_send": self.send,
            "hpc_agent_keep": self.keep,
            "hpc_agent_check": self.check,
            "hpc_agent_drop": self.drop,
            "hpc_agent_contents": self.kept.contents,
            "hpc_agent_run": self.run,
        }
        add_calls(worker, self._answers)
        self._end_forgetting = forget_old_needs(worker)
        worker.metrics[METRIC] = self._facts
        self._work = [asyncio.ensure_future(self._begin()), asyncio.ensure_future(self._look())]

    async def teardown(self, worker: Any) -> None:
        """The worker closes, or the service ends. What is on disk stays if another process is to follow."""
        for task in self._work:
            task.cancel()
        if worker.status.name == "running":  # else some may still ask, and Dask would complain
            remove_calls(worker, self._answers)
        self._end_forgetting()
        worker.metrics.pop(METRIC, None)
        if self._scratch is not None:
            follows = worker.nanny is not None and worker.status.name != "running"
            await asyncio.to_thread(self._scratch.leave, follows)

    def transition(self, key: Hashable, start: str, finish: str, **kwargs: Any) -> None:
        """A task on this worker changed its state; its result, if any, may be another one."""
        self.giver.changed(key)

    async def _begin(self) -> None:
        try:
            self.kept.shelf = await asyncio.to_thread(self._open_shelf)
        except OSError as error:
            self._say(f"keeps no copies on disk: {error}")
        # Heartbeats come later; until the first the controller goes by this.
        facts = await self._facts(self._worker)
        try:
            await self._worker.scheduler.hpc_agent_ready(
                worker=self._worker.address, facts={**facts, "contents": self.kept.contents()}
            )
        except OSError as error:  # the scheduler has gone, and so does this worker
            logger.warning("dask-hpc: an agent could not tell the scheduler: %s", error)

    def _open_shelf(self) -> Shelf:
        root = self._disk or os.path.dirname(self._worker.local_directory)
        self._scratch = Scratch(root, self._run or "cluster")
        self._scratch.take_over()
        shelf = Shelf(str(self._scratch.path), shutil.disk_usage(root).free * _DISK_SHARE)
        shelf.find()
        return shelf

    async def _facts(self, worker: Any) -> dict[str, Any]:
        """What the controller hears with every heartbeat."""
        shelf = self.kept.shelf
        return {
            "budget": min(self.kept.budget, self.kept.allowed),
            "used": self.kept.nbytes,
            "copies": len(self.kept),
            "disk_budget": shelf.budget,
            "disk_used": self.kept.on_disk,
            "disk_copies": len(shelf.contents()),
            "held": self.giver.held,
            "idle_for": 0.0 if len(self.kept) else monotonic() - self._idle_since,
            "trouble": self.kept.trouble,
            "link": self.link,
            **self.traffic.facts(),
        }

    def _say(self, what: str) -> None:
        """Once, until there is something else to say."""
        if what and what != self._said:
            self._worker.log_event(SAYS, {"agent": self._worker.address, "says": what})
        self._said = what

    async def _look(self) -> None:
        """Copies go to disk when the process is too full."""
        while True:
            try:
                self._may_take()
                if self.kept.nbytes > self.kept.allowed:
                    await asyncio.to_thread(self.kept.shrink)
                self._say(self.kept.trouble and f"no more copies on disk: {self.kept.trouble}")
                self.giver.forget(_PATIENCE)
            except Exception:
                logger.exception("dask-hpc: an agent could not look after its memory")
            await asyncio.sleep(_LOOK)

    @property
    def _limit(self) -> float:
        return self._worker.memory_manager.memory_limit or MEMORY_LIMIT or inf

    def _may_take(self) -> None:
        """As many bytes as do not bring the process to where Dask would do something."""
        manager = self._worker.memory_manager
        marks = [mark for mark in (manager.memory_spill_fraction, manager.memory_pause_fraction) if mark]
        mark = max(0.0, min(marks, default=_MARK) - _MARGIN) * self._limit
        free = self.kept.nbytes + mark - self._worker.monitor.get_process_memory()
        self.kept.allowed = max(0.0, min(self.kept.budget, free))

    async def send(self, blocks: list[Wanted], to: str) -> list[Answer]:
        """Have another agent fetch blocks here: of each what it is (``key`` or ``content``), and who on this
        node has it (``source``) if we have not. Answers as ``take`` does."""
        here = self._worker.address
        found: list[Any] = [None] * len(blocks)
        theirs = [(place, one) for place, one in enumerate(blocks) if one.get("source", here) != here]
        await self._fetch(theirs, found)
        gathered = [one for one in found if isinstance(one, Block)]
        asked: dict[int, Wanted] = {}
        for place, (what, block) in enumerate(zip(blocks, found, strict=True)):
            if not isinstance(block, Exception):
                content = block if isinstance(block, str | None) else block.content
                asked[place] = (what if content is None else {"content": content}) | {"source": here}
        self.giver.gathered.update((one.content, one) for one in gathered)
        reach("send-begun")
        try:
            answers = iter(await self._have_taken(to, list(asked.values())))
        finally:
            for one in gathered:
                self.giver.gathered.pop(one.content, None)
        return [next(answers) if place in asked else _answer(one) for place, one in enumerate(found)]

    async def _have_taken(self, to: str, blocks: list[Wanted]) -> list[Answer]:
        """What another agent says of blocks that it is to fetch."""
        rpc = self._worker.rpc(to)
        try:
            if not await is_there(rpc):
                raise ConnectionError(f"{to} does not answer")
            answers: list[Answer] = an_answer(await rpc.hpc_agent_take(blocks=blocks))
            return answers
        except (OSError, TimeoutError) as error:
            return [_answer(error)] * len(blocks)

    async def take(self, blocks: list[Wanted]) -> list[Answer]:
        """Make copies of blocks that other workers have: of each a ``source`` (an address), what to ask it
        for (``key`` or ``content``), and the contents that it may ``have``. Says of each what
        its content is and how many bytes came, or why there is no copy."""
        self._may_take()
        answers: list[Any] = [self._have(one.get("content", "")) for one in blocks]
        wanted = [(place, one) for place, one in enumerate(blocks) if answers[place] is None]
        await self._fetch(wanted, answers, self._keep, self.kept.room)
        return [one if isinstance(one, dict) else self._have(one) or _answer(one) for one in answers]

    async def put(
        self, blocks: list[dict[str, Any]], parts: list[Any], is_here: bool = False
    ) -> list[Answer]:
        """Keep blocks that somebody gives: what to know of each (``block.told``), and the bytes of all, one
        behind the other. Answers as ``take`` does. ``is_here``: it is this very worker that gives them."""
        self._may_take()
        answers: list[Answer] = []
        reach("put-begun")
        nbytes = sum(sum(one["sizes"]) for one in blocks)
        # One keeps the memory of its message, unless that is the sender's own.
        is_theirs = is_here or self._worker.address.startswith("inproc")
        is_one = len(blocks) == 1 and not is_theirs
        if nbytes <= QUICK:
            came = list(unpacked(blocks, parts, apart=not is_one))
        else:
            came = await asyncio.to_thread(lambda: list(unpacked(blocks, parts, apart=not is_one)))
        for what in came:
            answers.append(await self._keep(what) if isinstance(what, Block) else _answer(what))
        return answers

    async def _fetch(
        self,
        wanted: Iterable[tuple[int, Wanted]],
        into: list[Any],
        then: Callable[[Block], Awaitable[Answer]] | None = None,
        room: Any = None,
    ) -> None:
        """Fetch blocks, and put each (or what it becomes) into its place."""
        by_source: dict[str, list[tuple[int, Wanted]]] = {}
        for place, what in wanted:
            by_source.setdefault(what["source"], []).append((place, what))

        async def from_one(source: str, theirs: list[tuple[int, Wanted]]) -> None:
            async def found(number: int, block: Found) -> None:
                into[theirs[number][0]] = await then(block) if then and isinstance(block, Block) else block

            # for us, what we have need not come; for somebody else, what that one has
            asked = [
                {name: what[name] for name in ("key", "content") if name in what}
                | {"have": [one for one in what.get("have", ()) if then is None or one in self.kept]}
                for _, what in theirs
            ]
            rpc = self._worker.rpc(source)
            await Stream(rpc, found, room, self._window, self.giver.chunk).run(asked)

        if by_source:
            await together([from_one(*one) for one in by_source.items()])

    async def _keep(self, block: Block) -> Answer:
        """Keep a block that has come; what to answer to who wanted that."""
        try:
            if block.nbytes <= self.kept.allowed - self.kept.nbytes:
                self.kept.add(block)
            else:
                await asyncio.to_thread(self.kept.add, block)
        except Full as error:
            return _answer(error)
        self.traffic.came(block.nbytes)
        reach("take-kept")
        return {"content": block.content, "nbytes": block.nbytes, "moved": block.nbytes}

    def _have(self, content: Any) -> dict[str, Any] | None:
        """The answer if that is kept already."""
        if isinstance(content, str) and content in self.kept:
            with suppress(KeyError):
                return {"content": content, "nbytes": self.kept.get(content).nbytes, "moved": 0}
        return None

    async def keep(self, contents: list[str]) -> dict[str, Any]:
        """Have copies on disk, too. Those that are there now, and those that are not, with the reason."""
        there, trouble = [], {}
        for content in contents:
            try:
                if await asyncio.to_thread(self.kept.to_disk, content):
                    there.append(content)
                else:
                    trouble[content] = self.kept.trouble or "there is no disk"
            except KeyError:
                trouble[content] = "it is not here"
        return {"disk": there, "trouble": trouble}

    async def check(self, contents: list[str]) -> dict[str, str]:
        """Whether copies are intact. Those that are not are dropped, and told."""
        wrong = {}
        for content in contents:
            try:
                await asyncio.to_thread(self.kept.intact, content)
            except (KeyError, Damaged, Trouble) as error:
                wrong[content] = f"{type(error).__name__}: {error}"
                await self.drop([content])
        return wrong

    async def drop(self, contents: list[str]) -> None:
        had = len(self.kept)
        if self.kept.shelf.folder:
            await asyncio.to_thread(self.kept.drop, *contents)
        else:
            self.kept.drop(*contents)
        if had and not len(self.kept):
            self._idle_since = monotonic()

    async def run(self, call: bytes, content: str = "", key: Hashable = None) -> dict[str, Any]:
        """Call a function with the value of a copy or of a result, in a thread. Its
        ``result``, which has to be plain, or the ``error``."""
        async with self._calls_at_once:
            try:
                if content:
                    value = await asyncio.to_thread(lambda: self.kept.intact(content).value())
                else:
                    value = self._worker.data[key]
                return {"result": await asyncio.to_thread(lambda: pickle.loads(call)(value))}
            except KeyError:
                return {"error": f"{content or key!r} is not here", "gone": True}
            except Damaged as error:
                await self.drop([content])
                return {"error": str(error), "gone": True}
            except Exception as error:
                return {"error": f"{type(error).__name__}: {error}"}


def link_of(host: str) -> float:
    """Bytes per second of the network interface that has this address; without end if nobody knows."""
    interfaces = psutil.net_if_stats()
    for name, addresses in psutil.net_if_addrs().items():
        if name in interfaces and any(one.address == host for one in addresses):
            return interfaces[name].speed * 125_000.0 or inf  # it says Mbit/s, and 0 of what is no hardware
    return inf


def _answer(what: Any) -> dict[str, Any]:
    """To who wanted a copy, if there is none."""
    if isinstance(what, MemoryError):
        return {"full": str(what)}
    if isinstance(what, str):
        return {"error": f"{what} is not kept any longer"}
    return {"error": f"{type(what).__name__}: {what}" if what is not None else "it did not come"}
