"""What is known of the agents of a cluster: what each said last, what it was promised since, who is silent.

A heartbeat may be seconds old when blocks are dealt. What was dealt meanwhile is in our own books: what the
catalogue says an agent has, and what is on its way to it.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.worker.agent import METRIC, NAME, Agent
from dask_hpc.model.checkpoint import AgentNode
from dask_hpc.model.node import Nodes

_PATIENCE = 5.0  # seconds for agents to come
_FIRST_PAUSE, _LAST_PAUSE = 0.5, 30.0  # seconds in which an agent that did not answer is not asked
_MINUTE = 60.0


class Agents:
    """``nodes`` says which of them fail together."""

    def __init__(self, scheduler: Any, nodes: Nodes, catalogue: Catalogue) -> None:
        self._scheduler = scheduler
        self._nodes = nodes
        self._catalogue = catalogue
        #: by address, what each agent said first; its heartbeats say more
        self._said: dict[str, dict[str, Any]] = {}
        #: by address, bytes on their way, and when blocks were dealt to it first
        self._promised: dict[str, float] = {}
        self._since: dict[str, float] = {}
        #: by address, how much it kept when it said that it was full
        self._full_at: dict[str, float] = {}
        #: by address, until when it is not asked, and how long it was left alone the last time
        self._silent: dict[str, tuple[float, float]] = {}
        self._leaving: dict[str, int] = {}
        #: by address, how often it was asked for copies
        self._asked: dict[str, int] = {}
        #: by address, how much it kept at which time, and how fast that grew before
        self._kept_at: dict[str, tuple[float, float, float]] = {}
        self._new_agent = asyncio.Event()

    def ready(self, address: str, facts: dict[str, Any]) -> None:
        """A worker has an agent."""
        self._said[address] = facts
        self._silent.pop(address, None)
        self._catalogue.joins(address)
        self._new_agent.set()

    def gone(self, address: str) -> None:
        """A worker is gone."""
        for known in (
            self._said,
            self._promised,
            self._full_at,
            self._silent,
            self._since,
            self._asked,
            self._kept_at,
        ):
            known.pop(address, None)

    def facts(self) -> dict[str, dict[str, Any]]:
        """All agents by address, with what each said last."""
        heard = compat.metrics(self._scheduler, METRIC)
        return {address: facts | dict(found) for address, facts, found in self._with(dict(heard))}

    def _with(self, heard: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        for address, facts in self._said.items():
            found = heard.get(address)
            yield address, facts, found if isinstance(found, dict) else {}

    def __contains__(self, address: object) -> bool:
        return address in self._said

    def is_able(self, address: str) -> bool:
        """Whether it may be asked to keep something now."""
        is_here = address in self._said and compat.is_running(self._scheduler, address)
        return is_here and not self._leaving.get(address) and self._silent_until(address) <= monotonic()

    def node_of(self, address: str) -> str:
        """The node that a worker is on."""
        return self._nodes.node_of(address)

    def domain_of(self, address: str) -> str:
        """What fails together with a worker: its node; where there is but one, its process."""
        return self._nodes.node_of(address) if len(self._nodes) > 1 else address

    def free_of(self, domains: Collection[str]) -> int:
        """In how many other failure domains there is one that may be asked."""
        return len({self.domain_of(one) for one in self._said if self.is_able(one)}.difference(domains))

    def able(self, watts: Mapping[str, float] | None = None) -> list[AgentNode]:
        """Those that may be asked to keep something now."""
        found = []
        for address, said in self.facts().items():
            if not self.is_able(address):
                continue
            found.append(self._as_node(address, said, (watts or {}).get(self._nodes.node_of(address), 0.0)))
        return found

    def _as_node(self, address: str, said: Mapping[str, Any], watts: float) -> AgentNode:
        kept = _total(said, "used", "disk_used")
        budget = _total(said, "budget", "disk_budget")
        booked = self._catalogue.nbytes_on(address) + self._promised.get(address, 0.0)
        if address in self._full_at:
            if kept < self._full_at[address]:
                del self._full_at[address]
            else:
                kept = budget
        since = self._since.get(address)
        return AgentNode(
            address,
            budget,
            max(kept, booked),
            traffic=_number(said, "traffic"),
            link=_number(said, "link", float("inf")),
            commits=_number(said, "commits"),
            filling=self._filling(address, max(kept, booked)),
            watts=watts,
            joined=int(since is not None and monotonic() - since < _MINUTE),
            idle_for=_number(said, "idle_for"),
            domain=self.domain_of(address),
        )

    def _filling(self, address: str, kept: float) -> float:
        """Bytes per second, over the last second or more."""
        now = monotonic()
        before, since, rate = self._kept_at.get(address, (kept, now, 0.0))
        if now - since >= 1.0:
            rate = (kept - before) / (now - since)
            before, since = kept, now
        self._kept_at[address] = (before, since, rate)
        return rate

    def _silent_until(self, address: str) -> float:
        return self._silent.get(address, (0.0, 0.0))[0]

    # what happens to them

    def asked(self, address: str) -> int | None:
        """How often it was asked for copies so far; None while some are on their way."""
        return None if self._promised.get(address) else self._asked.get(address, 0)

    def promise(self, address: str, nbytes: float) -> None:
        """Bytes are on their way to an agent; or, if there are less than none, have arrived or never will."""
        if address in self._said:
            self._promised[address] = max(0.0, self._promised.get(address, 0.0) + nbytes)
            self._since.setdefault(address, monotonic())
            self._asked[address] = self._asked.get(address, 0) + 1

    def is_full(self, address: str) -> None:
        """It said so; until its heartbeats say otherwise."""
        said = self.facts().get(address)
        if said is not None:
            self._full_at[address] = _total(said, "used", "disk_used")

    def is_silent(self, address: str) -> None:
        """It did not answer: it is left alone for a while, each time for longer."""
        if address in self._said:
            _, pause = self._silent.get(address, (0.0, _FIRST_PAUSE / 2))
            pause = min(2 * pause, _LAST_PAUSE)
            self._silent[address] = (monotonic() + pause, pause)

    def answers(self, address: str) -> None:
        """It answered."""
        self._silent.pop(address, None)

    @contextmanager
    def without(self, addresses: Collection[str]) -> Iterator[None]:
        """Nothing new goes to these meanwhile."""
        for address in addresses:
            self._leaving[address] = self._leaving.get(address, 0) + 1
        try:
            yield
        finally:
            for address in addresses:
                self._leaving[address] -= 1
                if not self._leaving[address]:
                    del self._leaving[address]

    async def come(self) -> None:
        """Until all running workers have an agent, for a few seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while not compat.running_workers(self._scheduler) <= self._said.keys():
                    self._new_agent.clear()
                    await self._new_agent.wait()


def _number(said: Mapping[str, Any], name: str, default: float = 0.0) -> float:
    found = said.get(name)
    return float(found) if isinstance(found, int | float) else default


def _total(said: Mapping[str, Any], *names: str) -> float:
    return sum(_number(said, name) for name in names)


_PATIENCE_OF_DEPLOYMENT = 5.0  # seconds that workers have to give back their agents
#: by scheduler, what takes agents away
_ENDING: WeakKeyDictionary[Any, "asyncio.Future[None]"] = WeakKeyDictionary()


async def send_agents(scheduler: Any, share: float, disk: str = "") -> None:
    """To all workers, now and later; those that are just being taken away are away first."""
    while (ending := _ENDING.get(scheduler)) is not None:
        await asyncio.wait([ending])
    agent = Agent(share, disk, run=compat.scheduler_id(scheduler))
    portable = compat.pickled(agent)
    await compat.add_worker_plugin(scheduler, NAME, portable)


def take_agents_away(scheduler: Any) -> None:
    """A moment later they are gone, with all they keep."""
    ending = _ENDING[scheduler] = asyncio.ensure_future(_take_away(scheduler))
    ending.add_done_callback(lambda _: _ENDING.pop(scheduler, None))


async def _take_away(scheduler: Any) -> None:
    with suppress(TimeoutError, OSError):  # a worker that does not answer, or has gone
        async with asyncio.timeout(_PATIENCE_OF_DEPLOYMENT):
            await compat.remove_worker_plugin(scheduler, NAME)


class Calling:
    """What is asked of workers now."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._calls: dict[str, set[asyncio.Future[Any]]] = {}

    async def call(self, address: str, name: str, **what: Any) -> Any:
        """The worker's answer. Raises ``OSError`` if it cannot be had."""
        if compat.worker_status(self._scheduler, address) is None:
            raise ConnectionError(f"{address} has gone")
        call = asyncio.ensure_future(getattr(self._scheduler.rpc(address), name)(**what))
        self._calls.setdefault(address, set()).add(call)
        try:
            await asyncio.wait([call])
            if call.cancelled():
                raise ConnectionError(f"{address} has gone")
            return call.result()
        finally:
            call.cancel()
            theirs = self._calls.get(address, set())
            theirs.discard(call)
            if not theirs:
                self._calls.pop(address, None)

    def worker_is_gone(self, address: str) -> None:
        """Nobody waits for its answers any longer."""
        for call in self._calls.pop(address, ()):
            call.cancel()
