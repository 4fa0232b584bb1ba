"""Agents and the catalogue agree on who has which copies.

An agent says with every heartbeat how many copies it has. If that is another number than we know of, twice in
a row and with nothing on its way, it is asked which: it drops what nobody needs, and what it has lost is
copied again. Copies that a new worker finds on the disk of the one before it are counted again.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from dask_hpc.checkpoint.controller.agents import Agents
from dask_hpc.checkpoint.controller.catalogue import Catalogue
from dask_hpc.checkpoint.controller.copying import Copying


class Agreeing:
    """``look_at(contents)`` hears which may be on too few agents."""

    def __init__(
        self,
        scheduler: Any,
        catalogue: Catalogue,
        agents: Agents,
        copying: Copying,
        look_at: Callable[[Iterable[str]], None],
    ) -> None:
        self._scheduler = scheduler
        self._catalogue = catalogue
        self._agents = agents
        self._copying = copying
        self._look_at = look_at
        #: by agent whose number differed at the last look, how often it had been asked for copies by then
        self._doubted: dict[str, int] = {}

    async def has(self, agent: str, contents: Iterable[str]) -> None:
        """These are all copies that an agent has."""
        there, known = set(contents), set(self._catalogue.on(agent))
        unneeded = [one for one in there - known if not self._catalogue.add(one, agent)]
        self._look_at(self._catalogue.lost(agent, known - there))
        if unneeded:
            await self._copying.drop({one: [agent] for one in unneeded})

    async def look(self) -> None:
        """At what heartbeats say."""
        before, self._doubted = self._doubted, {}
        for agent, facts in self._agents.facts().items():
            asked = self._agents.asked(agent)
            if asked is None or facts.get("copies") == len(self._catalogue.on(agent)):
                continue
            if before.get(agent) != asked:
                self._doubted[agent] = asked
                continue
            with suppress(OSError):
                found = await self._scheduler.rpc(agent).hpc_agent_contents()
                if self._agents.asked(agent) == asked:  # nothing has come meanwhile
                    await self.has(agent, found)
