"""How a process reaches scheduler and agents, and which blocks go in one message: while one is on its way,
what comes next is gathered.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any
from weakref import ref

from distributed import Client

from dask_hpc.checkpoint.worker.agent import NAME as AGENT
from dask_hpc.checkpoint.worker.agent import Agent
from dask_hpc.checkpoint.worker.block import Block, first_few, packed, told
from dask_hpc.checkpoint.worker.transfer import Stream, Window, an_answer
from dask_hpc.memory_files.port import unpack

#: bytes of a block that goes alone
LARGE = 2**18
_MESSAGE = 8 * 2**20  # bytes that go to an agent at once
_SMALL = 4 * 2**20  # bytes of a block that comes in one message with others
_LANES = 2  # times that an agent is asked at once
_PATIENCE = 30.0  # seconds for an answer beside the time for the bytes
_SLOWEST = 2**20  # bytes per second; slower than that an answer does not come
_LOOK = 1.0  # seconds after which we ask whether an agent is still there that has not answered


class Reach:
    """How a process reaches scheduler and agents: by its client or its worker."""

    def __init__(self, server: Any) -> None:
        self._server = ref(server)
        #: who it is for the scheduler: what it has begun ends with it
        self.me: str = server.id if isinstance(server, Client) else server.address
        self.loop: asyncio.AbstractEventLoop = server.loop.asyncio_loop

    @property
    def _there(self) -> Any:
        found = self._server()
        if found is None or found.scheduler is None:
            raise ConnectionError("this client is closed")
        return found

    async def ask(self, call: str, **what: Any) -> Any:
        """The scheduler's answer."""
        return await getattr(self._there.scheduler, call)(**what)

    def agent(self, address: str) -> Any:
        """What calls an agent."""
        return self._there.rpc(address)

    def own_agent(self, address: str) -> Agent | None:
        """The agent itself, if it is that of this very worker."""
        found = self._there.plugins.get(AGENT) if address == self.me else None
        return found if isinstance(found, Agent) else None

    async def unless_gone(self, address: str, work: Coroutine[Any, Any, Any]) -> Any:
        """What comes of a call to an agent. Dask tries for half a minute to reach a dead one: then it is
        a ``ConnectionError`` as soon as the scheduler knows of it."""
        task, wait = asyncio.ensure_future(work), _LOOK
        try:
            while not (await asyncio.wait([task], timeout=wait))[0]:
                (said,) = await self.ask("hpc_files_do", owner=self.me, steps=[{"do": "agents"}]) or [None]
                if said is not None and address not in unpack(said):
                    raise ConnectionError(f"{address} is gone")
                wait *= 2
            return task.result()
        finally:
            task.cancel()


class BlockRequests:
    """Blocks that one agent is asked for: while it is, what is wanted next is gathered."""

    def __init__(self, reach: Reach, agent: str, window: Window) -> None:
        self._reach = reach
        self._agent = agent
        self._window = window
        self._next: list[tuple[str, asyncio.Future[Any]]] = []
        self._going: set[asyncio.Task[None]] = set()

    def get(self, content: str) -> "asyncio.Future[Any]":
        """The block, or what was wrong."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._next.append((content, answer))
        if len(self._going) < _LANES:
            task = asyncio.ensure_future(self._go())
            self._going.add(task)
            task.add_done_callback(self._going.discard)
        return answer

    async def _go(self) -> None:
        while self._next:
            some, self._next = self._next, []

            async def came(place: int, what: Any, some: Any = some) -> None:
                if not some[place][1].done():
                    some[place][1].set_result(what)

            stream = Stream(self._reach.agent(self._agent), came, window=self._window, small=_SMALL)
            try:
                work = stream.run([{"content": content} for content, _ in some])
                await self._reach.unless_gone(self._agent, work)
            except Exception as error:
                for _, answer in some:
                    if not answer.done():
                        answer.set_result(error)


class BlockLetters:
    """Blocks for one agent: while a message is on its way, what comes next goes into one."""

    def __init__(self, reach: Reach, agent: str) -> None:
        self._reach = reach
        self._agent = agent
        self._next: list[tuple[Block, asyncio.Future[dict[str, Any]]]] = []
        self._going: asyncio.Task[None] | None = None
        self._lanes = asyncio.Semaphore(_LANES)

    async def put(self, block: Block, is_alone: bool) -> dict[str, Any]:
        """What the agent says of a block. A large one goes alone: the agent keeps it in the memory in which
        it comes, where of several each has to be copied."""
        if is_alone or block.nbytes >= LARGE:
            async with self._lanes:
                return (await self._send([block]))[0]
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._next.append((block, answer))
        if self._going is None:
            self._going = asyncio.ensure_future(self._go())
        return await answer

    async def _go(self) -> None:
        try:
            while self._next:
                some: list[tuple[Block, asyncio.Future[dict[str, Any]]]] = []
                nbytes = 0
                while self._next and (not some or nbytes + self._next[0][0].nbytes <= _MESSAGE):
                    nbytes += self._next[0][0].nbytes
                    some.append(self._next.pop(0))
                said = await self._send([block for block, _ in some])
                for (_, answer), one in zip(some, said, strict=True):
                    if not answer.done():
                        answer.set_result(one)
        finally:
            self._going = None

    async def put_many(self, blocks: Sequence[Block]) -> list[dict[str, Any]]:
        """The same of several small ones, which go together."""
        said: list[dict[str, Any]] = []
        while len(said) < len(blocks):
            left = blocks[len(said) :]
            said += await self._send(list(left[: first_few((one.nbytes for one in left), _MESSAGE)]))
        return said

    async def _send(self, blocks: list[Block]) -> list[dict[str, Any]]:
        offers = [told(one) for one in blocks]
        if (own := self._reach.own_agent(self._agent)) is not None:
            return await own.put(offers, [piece for block in blocks for piece in block.pieces], is_here=True)
        try:
            rpc = self._reach.agent(self._agent)
            call = rpc.hpc_agent_put(blocks=offers, parts=packed(blocks))
            async with asyncio.timeout(_PATIENCE + sum(one.nbytes for one in blocks) / _SLOWEST):
                found: list[dict[str, Any]] = an_answer(await self._reach.unless_gone(self._agent, call))
            return found
        except (OSError, TimeoutError) as error:
            return [{"error": f"{type(error).__name__}: {error}"}] * len(blocks)
