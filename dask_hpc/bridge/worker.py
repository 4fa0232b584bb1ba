"""The worker's half of a bridge: blocks that came from producers lie here until the consumers have had them.

1. A block goes into the mailbox as it came, and ``take`` gives Dask the very same array: nothing is copied.
2. The scheduler hears of blocks in one message for each variable and step, when all that this worker is to
   have of them are there; of those that come otherwise (a producer lags, or the routes have just changed) a
   moment after the first, ``linger`` seconds.
3. A block counts as consumed when a task has taken it and Dask has released its result. It stays for others
   who may ask until the room is needed.
4. At most ``most_steps`` steps of a stream are in memory here that are not consumed: for another one there
   is no room; it may come to be put into files, and can be had when it is read from there.
   A step older than one that is here is always let in: those who are waited for may wait for it.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import WorkerPlugin, get_worker

from dask_hpc import dask as compat
from dask_hpc.bridge.grid import asked_by

logger = logging.getLogger(__name__)

NAME = "dask-hpc-bridge"
_REMEMBERED = 1000  # steps that were given up, and why

THERE, TAKEN, CONSUMED = "there", "taken", "consumed"


@dataclass(slots=True)
class PutBlock:
    """One block: in memory, or in a file. ``rank`` is of the producer that brought it."""

    data: Any
    path: str
    rank: Any
    state: str = THERE

    def remove_file(self) -> None:
        with suppress(FileNotFoundError):
            os.remove(self.path)
        self.path = ""


class StreamShelf:
    """The blocks of one stream."""

    def __init__(self, most_steps: int) -> None:
        self.most_steps = most_steps
        #: how many blocks of one variable and step are to come to this worker
        self.expected = 0
        #: by step: by variable and index
        self.steps: dict[int, dict[tuple[str, tuple[int, ...]], PutBlock]] = {}
        #: steps that were given up, and why
        self.over: dict[int, str] = {}
        #: what the scheduler has not heard of yet, by variable and step: index, rank of the producer, and
        #: whether it is in a file
        self.untold: dict[tuple[str, int], list[tuple[tuple[int, ...], Any, bool]]] = {}
        #: steps whose blocks are not here any more, of which the scheduler has not heard yet
        self.gone: list[int] = []
        self.changed = asyncio.Event()
        self.timer: asyncio.TimerHandle | None = None
        #: reads blocks from files
        self.reading: asyncio.Task[None] | None = None

    def find(self, variable: str, step: int, index: Any) -> PutBlock | None:
        return self.steps.get(step, {}).get((variable, tuple(index)))

    def is_consumed(self, step: int) -> bool:
        return all(block.state == CONSUMED for block in self.steps[step].values())

    def has_room(self) -> bool:
        return self._fills_less() and not any(map(self._is_in_files, self.steps))

    def _fills_less(self) -> bool:
        """Whether fewer steps than there may be are in memory and not consumed."""
        filled = (
            any(block.state != CONSUMED and not block.path for block in blocks.values())
            for blocks in self.steps.values()
        )
        return sum(filled) < self.most_steps

    def _is_in_files(self, step: int) -> bool:
        return any(block.path for block in self.steps[step].values())

    def next_from_files(self) -> int | None:
        """The step that is to be read from files now."""
        return min(filter(self._is_in_files, self.steps), default=None) if self._fills_less() else None

    def lets_in(self, step: int) -> bool:
        """Whether blocks of this step may come."""
        return step in self.steps or step in self.over or self.has_room() or step < max(self.steps)

    def make_room(self) -> None:
        """Before another step comes into memory: throw away what is consumed."""
        in_memory = [step for step in sorted(self.steps) if not self._is_in_files(step)]
        consumed = [step for step in in_memory if self.is_consumed(step)]
        for step in consumed[: max(0, len(in_memory) + 1 - self.most_steps)]:
            self.throw_away(step)
            self.gone.append(step)

    def throw_away(self, step: int) -> None:
        for block in self.steps.pop(step, {}).values():
            block.remove_file()

    def change(self) -> None:
        """Those who wait for room look again."""
        self.changed.set()
        self.changed = asyncio.Event()


class Mailbox(WorkerPlugin):
    """The mailbox of a worker, for all streams."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._linger = 0.1  # seconds until it tells of blocks whose neighbours are late
        self.shelves: dict[str, StreamShelf] = {}

    async def setup(self, worker: Any) -> None:
        """Tasks of this worker start when this is over, so nothing here waits."""
        self._worker = worker
        self._files = 0
        self._calls: dict[str, Callable[..., Any]] = {
            "hpc_bridge_put": self.put,
            "hpc_bridge_room": self.room,
            "hpc_bridge_report": self.report,
        }
        compat.add_calls(worker, self._calls)
        self._hear_no_more = compat.put(worker.stream_handlers, self.name, self.tell)
        self._saying: set[asyncio.Task[Any]] = set()
        self._say(worker.scheduler.hpc_bridge_ready(address=worker.address))

    async def teardown(self, worker: Any) -> None:
        for saying in self._saying:
            saying.cancel()
        compat.remove_calls(worker, self._calls)
        for stream in list(self.shelves):
            self._forget(stream)

    async def report(self, stream_id: str) -> None:
        """Tell the scheduler what it has not heard of yet; it knows all when this is over."""
        if stream_id in self.shelves:
            self._report_all(stream_id)
        if self._saying:
            await asyncio.wait(self._saying)

    def _say(self, call: Any) -> None:
        """Tell the scheduler something. If it has gone, this worker goes as well."""
        saying = asyncio.ensure_future(call)
        self._saying.add(saying)
        saying.add_done_callback(self._has_said)

    def _has_said(self, saying: "asyncio.Task[Any]") -> None:
        self._saying.discard(saying)
        if not saying.cancelled() and (error := saying.exception()) is not None:
            logger.warning("dask-hpc: a bridge could not tell the scheduler: %s", error)

    async def room(self, stream_id: str, step: int, most_steps: int, patience: float) -> bool:
        """Whether blocks of this step may come; waits for that so many seconds at most."""
        # to some versions of Dask a first argument named "stream" is the connection
        shelf = self._shelf(stream_id, most_steps)
        try:
            async with asyncio.timeout(patience):
                while not shelf.lets_in(step):
                    await shelf.changed.wait()
        except TimeoutError:
            return False
        return True

    async def put(
        self,
        stream_id: str,
        variable: str,
        step: int,
        index: Any,
        block: Any,
        rank: Any,
        most_steps: int,
        spill: bool,
    ) -> dict[str, Any]:
        """A block comes. The same one again changes nothing. Whether there is room for one more step; and
        why this step is over, if it is."""
        shelf = self._shelf(stream_id, most_steps)
        if step in shelf.over:
            return {"room": shelf.has_room(), "over": shelf.over[step]}
        if shelf.find(variable, step, index) is None:
            path = ""
            if spill:
                self._files += 1
                path = os.path.join(self._worker.local_directory, f"{self.name}-{self._files}.npy")
                try:
                    await asyncio.to_thread(np.save, path, block)
                except OSError as error:
                    return {"room": False, "over": f"no file of it could be written: {error}"}
                block = None
            if step not in shelf.steps:
                shelf.make_room()
            shelf.steps.setdefault(step, {})[variable, tuple(index)] = PutBlock(block, path, rank)
            self._note(stream_id, shelf, variable, step, (tuple(index), rank, bool(path)))
            self._read_files(stream_id, shelf)
        return {"room": shelf.has_room(), "over": ""}

    def _change(self, stream: str, shelf: StreamShelf) -> None:
        """There may be room: first for what is in files, then for what comes."""
        self._read_files(stream, shelf)
        shelf.change()

    def _read_files(self, stream: str, shelf: StreamShelf) -> None:
        if shelf.reading is None and shelf.next_from_files() is not None:
            shelf.reading = asyncio.ensure_future(self._read(stream, shelf))

    async def _read(self, stream: str, shelf: StreamShelf) -> None:
        """Take steps back into memory, oldest first. Only then tasks can have their blocks: if they read them
        themselves, they would fill the memory."""
        try:
            while (step := shelf.next_from_files()) is not None:
                shelf.make_room()
                for (variable, index), block in list(shelf.steps[step].items()):
                    if block.path and step in shelf.steps:
                        block.data = await asyncio.to_thread(np.load, block.path)
                        block.remove_file()
                        if step in shelf.steps:
                            self._note(stream, shelf, variable, step, (index, block.rank, False))
        finally:
            shelf.reading = None

    def _shelf(self, stream: str, most_steps: int) -> StreamShelf:
        return self.shelves.setdefault(stream, StreamShelf(most_steps))

    def _note(self, stream: str, shelf: StreamShelf, variable: str, step: int, come: Any) -> None:
        untold = shelf.untold.setdefault((variable, step), [])
        untold.append(come)
        if len(untold) == shelf.expected:
            self._report(stream, shelf, variable, step)
        elif shelf.timer is None:
            shelf.timer = asyncio.get_running_loop().call_later(self._linger, self._report_all, stream)

    def _report(self, stream: str, shelf: StreamShelf, variable: str, step: int) -> None:
        blocks = shelf.untold.pop((variable, step))
        gone, shelf.gone = shelf.gone, []
        news = {"stream": stream, "variable": variable, "step": step, "blocks": blocks, "gone": gone}
        self._say(self._worker.scheduler.hpc_bridge_come(worker=self._worker.address, **news))
        if not shelf.untold and shelf.timer is not None:
            shelf.timer.cancel()
            shelf.timer = None

    def _report_all(self, stream: str) -> None:
        shelf = self.shelves[stream]
        shelf.timer = None
        for variable, step in list(shelf.untold):
            self._report(stream, shelf, variable, step)

    def tell(
        self,
        stream: str,
        most_steps: int = 1,
        expected: int | None = None,
        over: Any = None,
        had: Any = None,
        closed: bool = False,
    ) -> None:
        """How many blocks are to come to this worker; which steps are given up, and why; which blocks
        consumers have had already; that the stream is closed, or if it has no name, that there are no streams
        any more."""
        try:
            self._hear(stream, most_steps, expected, over, had, closed)
        except Exception:  # an error here would end the worker
            logger.exception("dask-hpc: a bridge goes on without some news of the scheduler")

    def _hear(
        self, stream: str, most_steps: int, expected: int | None, over: Any, had: Any, closed: bool
    ) -> None:
        if closed and not stream:
            self._hear_no_more()
        elif closed:
            self._forget(stream)
        if closed:
            return
        shelf = self._shelf(stream, most_steps)
        if expected is not None:
            shelf.expected = expected
            self._report_all(stream)
        for step, why in over or ():
            shelf.over.pop(step, None)
            shelf.over[step] = why
            shelf.throw_away(step)
            for variable, other in list(shelf.untold):
                if other == step:
                    del shelf.untold[variable, other]
        for step, variable, index in had or ():
            block = shelf.find(variable, step, index)
            if block is not None and block.state == THERE:
                block.state = CONSUMED
        while len(shelf.over) > _REMEMBERED:
            del shelf.over[next(iter(shelf.over))]
        self._change(stream, shelf)

    def _forget(self, stream: str) -> None:
        shelf = self.shelves.pop(stream, None)
        if shelf is not None:
            for one in (shelf.timer, shelf.reading):
                if one is not None:
                    one.cancel()
            for step in list(shelf.steps):
                shelf.throw_away(step)
            shelf.change()

    def take(self, stream: str, variable: str, step: int, index: tuple[int, ...]) -> Any:
        """The block, for a task. Called in its thread."""
        shelf = self.shelves.get(stream)
        what = f"step {step} of {variable} from bridge {stream.rpartition('.')[0]}"
        if shelf is None:
            raise LookupError(f"{what} is not there: the bridge is closed")
        block = shelf.find(variable, step, index)
        if block is None:
            why = shelf.over.get(step, "it has been consumed and its room was needed")
            raise LookupError(f"{what} is not there: {why}")
        block.state = TAKEN
        return block.data

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        asked = asked_by(key) if finish in ("released", "forgotten") else None
        shelf = None if asked is None else self.shelves.get(asked.stream)
        if asked is None or shelf is None:
            return
        block = shelf.find(asked.variable, asked.step, asked.block)
        if block is not None and block.state == TAKEN:
            block.state = CONSUMED if start == "memory" else THERE
            self._change(asked.stream, shelf)


def take(stream: str, variable: str, step: int, index: tuple[int, ...]) -> Any:
    """The work of a task that waits for a block: take it out of the mailbox of the worker where it runs."""
    boxes = [plugin for plugin in list(get_worker().plugins.values()) if isinstance(plugin, Mailbox)]
    for box in boxes:
        if stream in box.shelves or box is boxes[-1]:
            return box.take(stream, variable, step, tuple(index))
    name = stream.rpartition(".")[0]
    raise LookupError(f"step {step} of {variable} will not come: bridge {name} is closed")
