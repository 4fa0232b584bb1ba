"""The scheduler's half of bridges: tasks that take blocks wait behind a gate, and go to where the blocks are.

A task that takes a block is restricted to an address that no worker has; ready, it waits in Dask's state
``no-worker``. When a worker says that it has the block, the task is sent to it. Blocks themselves never come
here, and producers say nothing while all goes well: what this hears of a step is one message of each worker
and variable (``worker.py``).

Installed by the first producer or consumer, and gone with the last: tasks that still wait then fail.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from math import inf
from secrets import token_hex
from sys import maxsize
from time import monotonic
from typing import Any

from distributed import Status
from distributed.batched import BatchedSend
from distributed.comm import CommClosedError
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_hpc import dask as compat
from dask_hpc.bridge.grid import Asked, StreamGrid, asked_by, check_name, is_external, key_of
from dask_hpc.bridge.stream import BridgeStream, Producer
from dask_hpc.bridge.worker import NAME, Mailbox
from dask_hpc.cluster.scheduler.service import Guard, Service, Timer, context_of, guarded
from dask_hpc.model.errors import InputError, shown

_SEEN = ("no-worker", "memory")
_AGAIN, _MOST = 0.1, 100  # seconds until a failed hook is called again; errors after which none is


class BridgePlugin(Guard, SchedulerPlugin):
    """All streams of a cluster. It never gives up: who waits for its blocks has nobody else."""

    name = NAME
    idempotent = True
    concern = "bridge: "
    most_errors = maxsize

    def __init__(self) -> None:
        """It travels as plain data; all else is made where it starts."""

    def start(self, scheduler: Any) -> None:
        """Nothing here waits: two that come at once find one plugin."""
        Guard.__init__(self, scheduler)
        self.is_on = True
        self.streams: dict[str, BridgeStream] = {}
        #: workers that have a mailbox
        self._ready: set[str] = set()
        self._gate = {compat.GATE}
        #: until when a look at all that waits is on its way
        self._looks_until = 0.0
        self._to_look_at: dict[Hashable, None] = {}
        self._clock = Timer(self, "waiting for blocks", self._restart_clock)
        self._waiting: dict[Hashable, None] = {}
        self._mailbox = f"{NAME}-{token_hex(4)}"
        self._calls: dict[str, Callable[..., Any]] = {
            "hpc_bridge_producer": self._producer,
            "hpc_bridge_open": self._open,
            "hpc_bridge_leave": self._leave,
            "hpc_bridge_ready": self._worker_is_ready,
            "hpc_bridge_come": self._blocks_come,
            "hpc_bridge_status": self._status,
        }
        compat.add_calls(scheduler, self._calls)
        mailbox = compat.pickled(Mailbox(self._mailbox))
        self.do("telling workers", compat.add_worker_plugin(scheduler, self._mailbox, mailbox))

    def hook_failed(self, where: str, error: Exception, again: Callable[[], object]) -> None:
        """What is lost would make tasks wait for ever, so a hook is called again, and all that waits is
        looked at, as it may have come half way: passing errors do no harm."""
        self.count_error(where, error)
        if self.errors < _MOST:
            self.scheduler.loop.call_later(_AGAIN, again)
            if monotonic() >= self._looks_until:  # one look at a time: more would fail oftener than they mend
                self._looks_until = monotonic() + 2 * _AGAIN
                self.scheduler.loop.call_later(2 * _AGAIN, self._look_at_all)

    @guarded
    def _look_at_all(self) -> None:
        self._look(list(self._waiting))

    @guarded
    def update_graph(self, scheduler: Any, *, tasks: list[Any], **kwargs: Any) -> None:
        for key in tasks:
            if asked_by(key) is not None:
                task = compat.find_task(scheduler, key)
                if task is not None and compat.is_new(task):
                    compat.restrict(task, self._gate)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if start in _SEEN or finish in _SEEN:
            try:
                self._task_moves(key, start, finish)
            except Exception as error:
                self.hook_failed("transition", error, partial(self._look_again, key))

    def _look_again(self, key: Hashable) -> None:
        task = compat.find_task(self.scheduler, key)
        self.transition(key, "no-worker", "forgotten" if task is None else task.state)

    def _task_moves(self, key: Hashable, start: str, finish: str) -> None:
        asked = asked_by(key)
        if asked is None or not self.is_on:
            return
        if finish == "no-worker":
            self._waiting[key] = None
            self._look_soon([key])
            self._start_clock()
        elif start == "no-worker":
            self._waiting.pop(key, None)
        elif start == "memory" and (stream := self._by_id(asked.stream)) is not None:
            stream.block(asked).is_had = True

    @guarded
    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """A worker is gone, and its tasks wait again."""
        self._ready.discard(worker)
        for stream in self.streams.values():
            lost = []
            for asked, block in stream.lose(worker):
                block.is_gone = block.is_had and not self._is_needed(asked)
                if not block.is_gone:
                    lost.append(asked)
            self._route(stream)
            self._ask_again(stream, lost)
            self._look_soon(map(key_of, lost))

    @guarded
    def remove_client(self, scheduler: Any, client: str) -> None:
        """A client is gone, perhaps without closing what it had opened."""
        for stream in list(self.streams.values()):
            stream.consumers = [one for one in stream.consumers if one != client]
            self._perhaps_close(stream)

    @guarded
    def log_event(self, topic: str, msg: Any) -> None:
        """Something was logged: perhaps that a worker pauses, leaves, or goes on."""
        if isinstance(msg, dict) and msg.get("action") == "worker-status-change":
            self.scheduler.loop.add_callback(self._route_all)  # when Dask has noted it

    def valid_workers_downscaling(self, scheduler: Any, workers: list[Any]) -> list[Any]:
        """Workers with blocks that nobody else has are not to be closed for having no tasks."""
        used = self._having_blocks() or ()
        return [worker for worker in workers if worker.address not in used]

    @guarded
    def _having_blocks(self) -> set[str]:
        return {
            block.worker
            for stream in self.streams.values()
            for there in stream.steps.values()
            for block in there.values()
        }

    async def close(self) -> None:
        self._stop_clocks()
        for work in self._tasks:
            work.cancel()

    def _worker_is_ready(self, address: str) -> str:
        if address in self.scheduler.workers:
            self._ready.add(address)
            self._route_all()
        return "OK"

    @guarded
    def _blocks_come(
        self, worker: str, stream: str, variable: str, step: int, blocks: Any, gone: Any
    ) -> None:
        found = self._by_id(stream)
        if found is None or worker not in self.scheduler.workers:
            return
        found.messages["blocks"] += 1
        found.gone(worker, gone)
        if step not in found.over:
            come = found.come(
                worker, variable, step, ((tuple(index), rank, is_file) for index, rank, is_file in blocks)
            )
            self._look(map(key_of, come))
            had = [one for one in come if found.block(one).is_had and not self._is_needed(one)]
            if had:  # it was put again, by a producer that has returned
                self._tell_worker(worker, found, had=[[one.step, one.variable, one.block] for one in had])
        if found.grid.job:
            self._route(found)

    def _is_needed(self, asked: Asked) -> bool:
        task = compat.find_task(self.scheduler, key_of(asked))
        return task is not None and compat.is_unfinished(task)

    def _by_id(self, stream_id: str) -> BridgeStream | None:
        stream = self.streams.get(stream_id.rpartition(".")[0])
        return stream if stream is not None and stream.id == stream_id else None

    def _look_soon(self, keys: Iterable[Hashable]) -> None:
        """Look at tasks when Dask is not in the middle of something."""
        if not self._to_look_at:
            self.scheduler.loop.add_callback(self._look_now)
        self._to_look_at.update(dict.fromkeys(keys))

    @guarded
    def _look_now(self) -> None:
        keys, self._to_look_at = self._to_look_at, {}
        self._look(keys)

    @guarded
    def _look(self, keys: Iterable[Hashable]) -> None:
        """Of these tasks, send those that can run, and let those fail that never will."""
        places: dict[Hashable, str] = {}
        failed: dict[Hashable, Exception] = {}
        for key in keys:
            task, asked = compat.find_task(self.scheduler, key), asked_by(key)
            if task is None or asked is None or task.state != "no-worker":
                continue
            stream = self._by_id(asked.stream)
            block = stream.block(asked) if stream else None
            if block and block.worker and not block.is_in_file:
                places[key] = block.worker
            elif why := stream.why_not(asked) if stream else "the bridge is closed":
                name = asked.stream.rpartition(".")[0]
                what = f"step {asked.step} of {asked.variable} from bridge {name} is not there"
                failed[key] = LookupError(f"{what}: {why}")
            else:
                compat.restrict(task, self._gate)
        if places:
            compat.send(self.scheduler, places, "hpc-bridge")
        if failed:
            compat.fail(self.scheduler, failed, "hpc-bridge")

    async def _producer(
        self, comm: Any, name: Any = None, grid: Any = None, rank: Any = None, size: Any = 0
    ) -> Any:
        """A producer connects, and stays so."""
        stream = self._declared(name, grid)
        stream.messages["producer"] += 1
        if type(rank) not in (int, str):
            raise InputError("bridge: rank", f"found {shown(rank)}", "a whole number or a word")
        if type(size) is not int or size < 0:
            raise InputError("bridge: size", f"found {shown(size)}", "a whole number >= 1")
        stream.size = max(stream.size, size)
        if (producer := stream.producers.get(rank)) is None:
            late = Timer(self, "waiting for a producer", lambda: self._is_late(stream, rank))
            producer = stream.producers[rank] = Producer(rank, late)
        if producer.comm is not None:
            producer.comm.abort()
        producer.late.stop()
        way = BatchedSend(interval="2ms", loop=self.scheduler.loop)
        producer.comm, producer.has_ended, producer.is_lost = way, False, False
        stream.is_complete = False
        way.start(comm)
        way.send({"op": "hello", "stream": stream.id, "over": list(stream.skipped().items()),
                  "strides": stream.strides, "workers": stream.workers})  # fmt: skip
        self.tell("bridge", f"{name}: producer {rank} connects")
        try:
            while True:
                for message in await comm.read():
                    stream.messages[message["op"]] += 1
                    if message["op"] == "close":
                        producer.has_ended = True
                        stream.newest = max(stream.newest, *message["steps"])
                        return Status.dont_reply
                    for step in message["steps"]:  # it cannot bring them
                        self._give_up(stream, step, message["why"])
        except CommClosedError:
            return Status.dont_reply
        finally:
            way.abort()
            self._producer_goes(stream, producer, way)

    @guarded
    def _producer_goes(self, stream: BridgeStream, producer: Producer, way: Any) -> None:
        if producer.comm is not way:  # it has connected again
            return
        producer.comm = None
        if self.streams.get(stream.name) is not stream:
            return
        if producer.has_ended:
            self.tell("bridge", f"{stream.name}: producer {producer.rank} has ended")
            if stream.has_ended:
                self.do("telling workers", self._hear_all(stream))
        else:
            after = stream.grid.lost_after
            self.tell(
                "bridge", f"{stream.name}: producer {producer.rank} is gone; it may return in {after:g} s"
            )
            if after < inf:
                producer.late.set(after)
        self._perhaps_close(stream)

    def _is_late(self, stream: BridgeStream, rank: Any) -> None:
        self.do("telling workers", self._hear_all(stream, lost=stream.producers[rank]))

    async def _hear_all(self, stream: BridgeStream, lost: Producer | None = None) -> None:
        """All blocks that workers have are known here: now a producer counts as lost, or the stream as
        complete if all have ended."""
        message = {"op": "hpc_bridge_report", "stream_id": stream.id}
        await self.scheduler.broadcast(msg=message, workers=list(self._ready), on_error="ignore")
        if lost is None:
            stream.is_complete = stream.has_ended
        elif lost.comm is None:
            lost.is_lost = True
            self.tell("bridge", f"{stream.name}: producer {lost.rank} did not return")
        self._look(list(self._waiting))

    def _give_up(self, stream: BridgeStream, step: int, why: str) -> None:
        """A step for which there is no room is dropped, wherever blocks of it are."""
        if not stream.give_up(step, why):
            return
        if stream.grid.when_slow == "subsample" and stream.thin_out(step):
            why += f"; from now on only every {stream.stride}th step comes"
        self.tell("bridge", f"{stream.name}: step {step} is dropped: {why}")
        for worker in self._ready:
            self._tell_worker(worker, stream, over=[[step, why]])
        self._tell_producers(stream, {"op": "over", "over": [[step, why]], "strides": stream.strides})
        self._look([key for key in self._waiting if (asked := asked_by(key)) and asked.stream == stream.id])

    def _ask_again(self, stream: BridgeStream, lost: list[Asked]) -> None:
        """A worker has died: who still has the blocks is to put them again."""
        by_producer: dict[Any, list[Any]] = {}
        for asked in lost:
            rank = stream.brings.get(asked.block)
            by_producer.setdefault(rank, []).append([asked.variable, asked.step, asked.block])
        for rank, blocks in by_producer.items():
            producer = stream.producers.get(rank)
            if producer is not None and producer.comm is not None:
                producer.comm.send({"op": "again", "blocks": blocks})

    @guarded
    def _route_all(self) -> None:
        for stream in self.streams.values():
            self._route(stream)

    def _route(self, stream: BridgeStream) -> None:
        """Send blocks to the workers that may run tasks, or those of them that a named job has."""
        able = compat.running_workers(self.scheduler) & self._ready
        job, context = stream.grid.job, context_of(self.scheduler)
        jobs = context.jobs.values() if job and context else ()
        named = [one.workers for one in jobs if one.name == job and one.state == "running"]
        theirs = named[-1] & able if named else able
        in_order = compat.workers_by_name(self.scheduler)
        workers = tuple(address for address in in_order if address in (theirs or able))
        if workers == stream.workers:
            return
        before, stream.workers = stream.workers, workers
        expected = stream.grid.expected(workers) if workers else {}
        for worker in {*before, *workers} & self._ready:
            self._tell_worker(worker, stream, expected=expected.get(worker, 0))
        self._tell_producers(stream, {"op": "workers", "workers": workers})
        if before:
            self.tell("bridge", f"{stream.name}: blocks go to {len(workers)} workers from now on")

    def _tell_worker(self, worker: str, stream: BridgeStream, **news: Any) -> None:
        what = {"op": self._mailbox, "stream": stream.id, "most_steps": stream.grid.most_steps}
        self.scheduler.worker_send(worker, what | news)

    def _tell_producers(self, stream: BridgeStream, news: dict[str, Any]) -> None:
        for producer in stream.producers.values():
            if producer.comm is not None:
                producer.comm.send(news)

    def _open(self, name: Any = None, grid: Any = None, client: Any = None) -> dict[str, Any] | None:
        """A consumer wants to know a stream; nothing if there is none."""
        check_name("bridge: name", name)
        if grid is None and name not in self.streams:
            return {}
        stream = self.streams[name] if grid is None else self._declared(name, grid)
        if client is not None:
            if client not in self.scheduler.clients:
                raise InputError("client", f"found {shown(client)}", "the id of a connected client")
            stream.consumers.append(client)
        return stream.as_plain()

    def _leave(self, name: Any = None, client: Any = None) -> str:
        stream = self.streams.get(name) if isinstance(name, str) else None
        if stream is not None and client in stream.consumers:
            stream.consumers.remove(client)
            self._perhaps_close(stream)
        elif not self.streams:
            self._remove()
        return "OK"

    def _status(self) -> dict[str, Any]:
        return {
            "streams": [stream.as_plain() for stream in self.streams.values()],
            "waiting": len(self._waiting),
            "errors": self.errors,
        }

    def _declared(self, name: Any, plain: Any) -> BridgeStream:
        check_name("bridge: name", name)
        grid = StreamGrid.read(plain)
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = BridgeStream(name, grid)
            self._route(stream)
        elif stream.grid != grid:
            raise InputError(
                f"bridge {name}", f"found {shown(grid, 200)}", f"as declared before: {stream.grid}"
            )
        return stream

    def _perhaps_close(self, stream: BridgeStream) -> None:
        if stream.is_used or self.streams.get(stream.name) is not stream:
            return
        del self.streams[stream.name]
        for producer in stream.producers.values():
            producer.late.stop()
        for worker in self._ready:
            self._tell_worker(worker, stream, closed=True)
        self.tell("bridge", f"{stream.name} is closed: nobody uses it any more")
        self._look(list(self._waiting))
        if not self.streams:
            self._remove()

    def _remove(self) -> None:
        """No trace is left: of the tasks that waited all have been sent somewhere to fail."""
        self._stop_clocks()
        compat.remove_calls(self.scheduler, self._calls)
        for worker in self._ready:  # the last message of this name: others would end its connection
            self.scheduler.worker_send(worker, {"op": self._mailbox, "stream": "", "closed": True})
        if self.scheduler.plugins.get(NAME) is self:
            self.scheduler.remove_plugin(NAME)
        self.do("telling workers", compat.remove_worker_plugin(self.scheduler, self._mailbox))

    def _start_clock(self) -> None:
        """Dask would fail tasks that wait for workers for too long; ours wait for producers."""
        timeout = self.scheduler.no_workers_timeout
        if timeout is not None and not self._clock.is_set:
            self._clock.set(timeout / 2)

    def _restart_clock(self) -> None:
        if self._waiting:
            compat.restart_no_worker_clock(self.scheduler, self._waiting)
            self._start_clock()

    def _stop_clocks(self) -> None:
        self._clock.stop()
        for stream in self.streams.values():
            for producer in stream.producers.values():
                producer.late.stop()

    def tell(self, decision: str, reason: str) -> None:
        """Add to the story, if the cluster has one."""
        if (context := context_of(self.scheduler)) is not None:
            context.tell(decision, reason)


class BridgeService(Service):
    """Keeps the tasks of bridges out of jobs of a managed cluster: they go where blocks are, whoever asks."""

    def for_jobs(self, tasks: list[Hashable]) -> list[Hashable]:
        is_used = NAME in self.context.scheduler.plugins
        return [key for key in tasks if not is_external(key)] if is_used else tasks


SERVICE = BridgeService
