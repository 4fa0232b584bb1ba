"""``dask_hpc.Bridge``: how a process that is no Dask worker puts blocks of its arrays on one."""

import asyncio
import os
import pickle
import socket
from collections.abc import Iterable
from contextlib import suppress
from math import inf
from secrets import token_hex
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np
from distributed import Client, Security
from distributed.comm import CommClosedError, connect
from distributed.core import ConnectionPool, rpc
from distributed.protocol import to_serialize
from distributed.utils import LoopRunner

from dask_hpc.bridge.grid import StreamGrid, check_name, check_step, seconds, stride_before
from dask_hpc.bridge.scheduler import BridgePlugin
from dask_hpc.bridge.worker import NAME
from dask_hpc.model.errors import InputError, shown

_Where = tuple[str, tuple[int, ...]]
_Array = np.ndarray[Any, Any]


class KeptSteps:
    """The blocks of the last ``most`` steps. The memory of older ones is used again: a new array costs more
    than copying into an old one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._steps: dict[int, dict[_Where, _Array]] = {}
        self._free: list[_Array] = []
        self._lock = Lock()

    def add(self, variable: str, step: int, index: tuple[int, ...], block: _Array) -> None:
        if self._most:
            with self._lock:
                blocks = self._steps.setdefault(step, {})
                if (variable, index) not in blocks:
                    alike = (old.shape == block.shape and old.dtype == block.dtype for old in self._free)
                    number = next((i for i, is_alike in enumerate(alike) if is_alike), None)
                    found = np.empty(block.shape, block.dtype) if number is None else self._free.pop(number)
                    blocks[variable, index] = found
                np.copyto(blocks[variable, index], block)

    def trim(self) -> None:
        """The newest step has been taken: steps before the last ones are not kept any more."""
        while len(self._steps) > self._most:
            self.drop(min(self._steps))

    def drop(self, step: int) -> None:
        """A step is not kept: nobody wants it."""
        with self._lock:
            self._free = list(self._steps.pop(step, {}).values()) or self._free

    def find(self, variable: str, step: int, index: tuple[int, ...]) -> _Array | None:
        """A copy of a block, if it is still kept: its memory may be used again while it is sent."""
        with self._lock:
            found = self._steps.get(step, {}).get((variable, index))
            return None if found is None else found.copy()


_SLICE = 30.0  # seconds for which a worker is asked at most whether there is room, before it is asked again


class Bridge:
    """The producer's end of a stream of arrays: each process of a simulation has one.

    ``address`` is that of the scheduler. All arrays have this ``shape``, are cut into ``chunks`` and are of
    this ``dtype``; ``dims`` are names of the axes. Every process says the same. ``rank`` tells the processes
    apart: one that died and comes back with its rank goes on in its place. ``size`` is how many there are:
    when so many have closed, whoever waits for more steps is told that there are none.

    Blocks go straight to the workers of the cluster, or to those of the ``job`` of that name, neighbours
    beside each other. At most ``most_steps`` steps are there that consumers have not had; then a new one
    waits. After ``stall`` (for each step; "none" for ever) happens what ``when_slow`` says:

    wait       it waits on, as long as it takes
    skip       it is dropped, on all workers, and listed
    subsample  it is dropped, and from then on only every 2nd step is put, then every 4th, and so on
    spill      it goes to files of the workers' local directories, and waits there for the consumers

    Of the last ``keep`` steps (by default ``most_steps``) copies stay here: if a worker dies they are put
    again. With ``keep=0`` nothing is copied here, and what a dying worker had is lost. A producer that goes
    without ``close`` has ``lost_after`` to return; then tasks that wait for its blocks fail.

    A consumer opens the other end: ``Bridge.open(client, name)``.
    """

    def __init__(
        self,
        address: str,
        name: str,
        shape: Any,
        chunks: Any,
        dtype: Any = "float64",
        *,
        dims: Iterable[str] | None = None,
        rank: int | str | None = None,
        size: int = 0,
        most_steps: int = 2,
        keep: int | None = None,
        stall: float | str = "1s",
        when_slow: str = "wait",
        lost_after: float | str = "60s",
        job: str = "",
        security: Security | None = None,
        timeout: float | str = "10s",
    ) -> None:
        self.name = check_name("bridge: name", name)
        names = None if dims is None else tuple(dims)
        self._grid = StreamGrid.declare(shape, chunks, dtype, names, most_steps, when_slow, lost_after, job)
        self._stall = seconds("stall", stall)
        self._timeout = seconds("timeout", timeout)
        #: as asyncio has it
        self._patience = None if self._timeout == inf else self._timeout
        if rank is None:
            rank = f"{socket.gethostname()}-{os.getpid()}-{token_hex(2)}"
        is_number = isinstance(rank, int | np.integer) and not isinstance(rank, bool)
        self._rank = int(rank) if is_number else check_name("bridge: rank", rank)
        if type(size) is not int or size < 0:
            raise InputError("bridge: size", f"found {shown(size)}", "a whole number")
        keep = most_steps if keep is None else keep
        if type(keep) is not int or keep < 0:
            raise InputError("bridge: keep", f"found {shown(keep)}", "a whole number of steps")
        self._kept = KeptSteps(keep)
        self._size = size
        if not isinstance(address, str) or not address.strip():
            raise InputError("bridge: address", f"found {shown(address)}", "the address of a scheduler")
        self._address = address.strip()
        self._security = (security or Security()).get_connection_args("client")
        self._workers: tuple[str, ...] = ()
        self._newest = -1
        self._over: dict[int, str] = {}
        self._strides: list[list[int]] = []
        #: workers that said there is room for one more step than they have
        self._room: dict[str, bool] = {}
        #: the newest step that each worker was sent something of
        self._let_in: dict[str, int] = {}
        #: the step of which each worker puts blocks into files
        self._spills: dict[str, int] = {}
        self._stalled: dict[int, float] = {}
        self._is_closed = False
        #: what could be measured of it
        self.messages = {"scheduler": 0, "workers": 0}
        self._loop = LoopRunner()  # a thread that sends, beside the simulation
        self._loop.start()
        try:
            self._loop.run_sync(self._connect)
        except BaseException:
            self._loop.stop()
            raise

    # MPI

    @classmethod
    def from_mpi(cls, comm: Any, address: str, name: str, *args: Any, **options: Any) -> "Bridge":
        """The end of this rank of an MPI communicator (mpi4py's, or anything with its ``Get_rank`` and
        ``Get_size``). All other arguments are those of ``Bridge``."""
        return cls(address, name, *args, rank=comm.Get_rank(), size=comm.Get_size(), **options)

    @staticmethod
    def open(client: Client, name: str, *, timeout: float | str = "30s", **declared: Any) -> Any:
        """The consumer's end, a ``BridgeReader``; an awaitable of one if the client is asynchronous.

        Waits until a producer has declared the stream; or says itself what it will be, with the arguments
        ``shape``, ``chunks`` and so on of ``Bridge``.
        """
        # Producers need no arrays of Dask, whose import takes longer than all the rest.
        from dask_hpc.bridge.client import open_reader

        return open_reader(client, name, timeout, declared)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self._address}, {len(self._workers)} workers"
        return f"<Bridge {self.name!r}, rank {self._rank}: {state}>"

    def put(self, variable: str, block: Any, index: Any, step: int) -> bool:
        """Put a block of a variable at a step. Whether it was taken: a step that is skipped is not.

        The block may be changed afterwards. Putting one again changes nothing.
        """
        if self._is_closed:
            raise RuntimeError(f"bridge {self.name} is closed")
        check_name("bridge: variable", variable)
        where, number = self._grid.read_index(index), check_step(step)
        found = np.asarray(block)
        if found.shape != self._grid.block_shape(where) or found.dtype.str != self._grid.dtype:
            raise InputError(
                f"bridge {self.name}: block {where} of {variable}",
                f"found {found.dtype} {found.shape}",
                f"{np.dtype(self._grid.dtype)} {self._grid.block_shape(where)}",
            )
        work, loop = self._put(variable, found, where, number), self._loop.loop.asyncio_loop
        putting = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            self._kept.add(variable, number, where, found)  # meanwhile it is sent
            is_taken = bool(putting.result())
        except BaseException:
            putting.cancel()
            raise
        if is_taken:
            self._kept.trim()
        else:
            self._kept.drop(number)
        return is_taken

    @property
    def skipped(self) -> dict[int, str]:
        """The steps that were dropped so far, and why."""
        return dict(sorted(self._over.items()))

    def stalled(self, step: int) -> float:
        """Seconds that this producer has waited with a step because the consumers were slow."""
        return self._stalled.get(step, 0.0)

    def close(self) -> None:
        """Say that no more steps come from here. What was put stays for the consumers."""
        if not self._is_closed:
            self._is_closed = True
            with suppress(OSError, TimeoutError):
                self._loop.run_sync(self._disconnect)
            self._loop.stop()

    def __enter__(self) -> "Bridge":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def _connect(self) -> None:
        self._routes_changed = asyncio.Event()
        self._repeating: set[asyncio.Task[None]] = set()
        self._pool = ConnectionPool(connection_args=self._security)
        await self._pool.start()
        try:
            async with asyncio.timeout(self._patience):
                await self._declare()
                self._comm = await connect(self._address, timeout=self._timeout, **self._security)
                self.messages["scheduler"] += 1
                hello = {"op": "hpc_bridge_producer", "name": self.name, "grid": self._grid.as_plain()}
                await self._comm.write(hello | {"rank": self._rank, "size": self._size})
                first = await self._comm.read()
        except InputError:
            raise
        except (OSError, TimeoutError, TypeError, ValueError) as error:  # TypeError: no certificates
            words = str(error) or "no answer"
            raise InputError(
                f"bridge {self.name}: address {self._address}", words, "the address of a running scheduler"
            ) from None
        if isinstance(first, dict):  # an error
            raise RuntimeError(f"bridge {self.name}: {first.get('text', first)}")
        self._stream = first[0]["stream"]
        self._hear(first)
        self._listening = asyncio.ensure_future(self._listen())

    async def _declare(self) -> None:
        async with rpc(self._address, connection_args=self._security) as scheduler:
            plugin = pickle.dumps(BridgePlugin())
            await scheduler.register_scheduler_plugin(plugin=plugin, name=NAME, idempotent=True)
            await scheduler.hpc_bridge_open(name=self.name, grid=self._grid.as_plain())

    async def _say(self, **message: Any) -> None:
        self.messages["scheduler"] += 1
        await self._comm.write([message])

    async def _listen(self) -> None:
        with suppress(OSError):
            while True:
                self._hear(await self._comm.read())
        self._change_routes(())

    def _hear(self, messages: Any) -> None:
        for message in messages:
            if "workers" in message:
                self._change_routes(tuple(message["workers"]))
            self._over.update(message.get("over", ()))
            self._strides = message.get("strides", self._strides)
            if message["op"] == "again":
                repeating = asyncio.ensure_future(self._put_again(message["blocks"]))
                self._repeating.add(repeating)
                repeating.add_done_callback(self._repeating.discard)

    def _change_routes(self, workers: tuple[str, ...]) -> None:
        self._workers = workers
        self._routes_changed.set()
        self._routes_changed = asyncio.Event()

    async def _disconnect(self) -> None:
        if self._repeating:
            await asyncio.wait(self._repeating, timeout=self._patience)
        for task in (self._listening, *self._repeating):
            task.cancel()
        with suppress(OSError):
            await self._say(op="close", steps=[self._newest])
            await self._comm.close()
        await self._pool.close()

    async def _put(self, variable: str, block: Any, index: tuple[int, ...], step: int) -> bool:
        self._newest = max(self._newest, step)
        while True:
            if self._leaves_out(step):
                return False
            if not self._workers:
                await self._new_routes("")
            worker = self._grid.place(index, self._workers)
            try:
                if not await self._is_let_in(worker, step):
                    if self._grid.when_slow != "spill":
                        slow = f"the consumers were slow: there was no room for {self._stall:g} s"
                        await self._drop(step, slow)
                        return False
                    self._spills[worker] = step
                spill = self._spills.get(worker) == step
                return await self._send(worker, variable, block, index, step, spill)
            except (OSError, CommClosedError):
                await self._new_routes(worker)

    async def _new_routes(self, without: str) -> None:
        """Wait until the scheduler knows that a worker is gone, or that there is one."""
        try:
            async with asyncio.timeout(self._patience):
                while not self._workers or without in self._workers:
                    if self._listening.done():
                        raise InputError(f"bridge {self.name}", f"the cluster at {self._address} is gone")
                    await self._routes_changed.wait()
        except TimeoutError:
            raise InputError(
                f"bridge {self.name}: address {self._address}",
                f"no worker took a block for {self._timeout:g} s",
                "a cluster with running workers",
            ) from None

    async def _is_let_in(self, worker: str, step: int) -> bool:
        """Whether a worker takes blocks of a step, or will within the time that this step may wait."""
        if self._spills.get(worker) == step or self._let_in.get(worker, -1) >= step or self._room.get(worker):
            return True
        since, waited = monotonic(), self._stalled.get(step, 0.0)
        limit = inf if self._grid.when_slow == "wait" else self._stall - waited
        try:
            while True:
                left = limit - (monotonic() - since)
                if left < 0 and waited:
                    return False
                patience = max(0.0, min(left, _SLICE))
                self.messages["workers"] += 1
                answer = await self._pool(worker).hpc_bridge_room(
                    stream_id=self._stream, step=step, most_steps=self._grid.most_steps, patience=patience
                )
                if answer or self._leaves_out(step):
                    return True
                if patience >= left:
                    return False
        finally:
            self._stalled = {step: waited + monotonic() - since} | {
                other: one for other, one in self._stalled.items() if other > step - 1000 and other != step
            }

    async def _send(
        self, worker: str, variable: str, block: Any, index: tuple[int, ...], step: int, spill: bool
    ) -> bool:
        self.messages["workers"] += 1
        answer = await self._pool(worker).hpc_bridge_put(
            stream_id=self._stream,
            variable=variable,
            step=step,
            index=index,
            block=to_serialize(block),
            rank=self._rank,
            most_steps=self._grid.most_steps,
            spill=spill,
        )
        self._room[worker] = answer["room"]
        self._let_in[worker] = max(step, self._let_in.get(worker, -1))
        if answer["over"]:
            await self._drop(step, answer["over"])
        return not answer["over"]

    async def _drop(self, step: int, why: str) -> None:
        if step not in self._over:
            self._over[step] = why
            await self._say(op="skip", steps=[step], why=why)

    async def _put_again(self, blocks: Any) -> None:
        """A worker has died; the scheduler says what it had. If it dies as well, all is over anyway."""
        gone = []
        with suppress(OSError, InputError):
            for variable, step, index in blocks:
                block = self._kept.find(variable, step, tuple(index))
                if block is None:
                    gone.append(step)
                else:
                    await self._put(variable, block, tuple(index), step)
            if gone:
                await self._say(op="skip", steps=sorted(set(gone)), why="the worker that had it has died")

    def _leaves_out(self, step: int) -> bool:
        return step in self._over or step % stride_before(step, self._strides) != 0
