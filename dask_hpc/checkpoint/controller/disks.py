"""Copies on the disks of agents' nodes: they survive the agents' processes.

An agent that has died may be followed by another on its node, which finds its files. What was on its disk is
waited for a while before it counts as lost.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from time import monotonic

from dask_hpc.checkpoint.controller.calling import Calling
from dask_hpc.checkpoint.controller.catalogue import Catalogue

_RETURN = 20.0  # seconds in which an agent that died is followed by another, if at all


@dataclass
class OnDisk:
    """What came of writing copies: contents that are on a disk now, bytes of those, and what went wrong."""

    there: set[str]
    nbytes: int
    seconds: float
    problem: str


class Disks:
    """Which copies are there. ``look_at(contents)`` hears which are not waited for any longer."""

    def __init__(
        self, calling: Calling, catalogue: Catalogue, look_at: Callable[[Iterable[str]], None]
    ) -> None:
        self._calling = calling
        self._catalogue = catalogue
        self._look_at = look_at
        #: by agent, what it has on disk
        self._on: dict[str, set[str]] = {}
        #: contents on disks of agents that died, and until when they may come back
        self._until: dict[str, float] = {}
        self._came = asyncio.Event()

    async def keep(self, keys: Iterable[Hashable]) -> OnDisk:
        """Have agents write the copies of these keys' blocks to their disks."""
        by_agent: dict[str, set[str]] = {}
        for key in keys:
            content, agents = self._catalogue.where(key)
            for agent in agents:
                by_agent.setdefault(agent, set()).add(content)
        began = monotonic()
        found = OnDisk(set(), 0, 0.0, "")
        await asyncio.gather(*(self._keep(agent, theirs, found) for agent, theirs in by_agent.items()))
        found.seconds = monotonic() - began
        return found

    async def _keep(self, agent: str, contents: set[str], found: OnDisk) -> None:
        known = self._on.setdefault(agent, set())
        known.intersection_update(self._catalogue.on(agent))
        found.there |= contents & known
        if not (new := sorted(contents - known)):
            return
        try:
            said = await self._calling.call(agent, "hpc_agent_keep", contents=new)
        except OSError as error:  # it has gone, and its copies are made again elsewhere
            found.problem = str(error)
            return
        if said is None:  # its agent has gone
            return
        known.update(said["disk"])
        found.there.update(said["disk"])
        there = self._catalogue.contents
        found.nbytes += sum(there[one].nbytes for one in said["disk"] if one in there)
        for content, why in said["trouble"].items():
            found.problem = f"{content[:16]} is not on {agent}'s disk: {why}"

    def agent_is_gone(self, agent: str) -> None:
        """It has died, or left for good."""
        theirs = self._on.pop(agent, set()) & self._catalogue.on(agent).keys()
        if theirs:
            until = monotonic() + _RETURN
            self._until.update(dict.fromkeys(theirs, until))
            asyncio.get_running_loop().call_later(_RETURN, self._give_up, theirs)

    def _give_up(self, contents: set[str]) -> None:
        now = monotonic()
        gone = [one for one in contents if self._until.get(one, now + 1) <= now]
        for one in gone:
            del self._until[one]
        self._came.set()
        self._look_at(gone)

    def agent_has(self, contents: Iterable[str]) -> None:
        """An agent has come, with these copies."""
        for content in contents:
            self._until.pop(content, None)
        self._came.set()

    def may_return(self, content: str) -> bool:
        """Whether a copy is on the disk of an agent that may come back."""
        return content in self._until

    async def returned(self, content: str) -> None:
        """Until that is decided."""
        while content in self._until:
            self._came.clear()
            await self._came.wait()
