"""Blocks that other services keep with the agents: no results of tasks, but bytes that somebody gave.

A tenant says which blocks it expects before they are given, so that no agent drops them as unknown, and has
room for them; then that they arrived, and in the end that nobody needs them. Beside that they are like all
others: made again when an agent dies if they are to be on several, moved when one leaves, on disk when memory
is short.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass

from dask_hpc.checkpoint.scheduler.agents import Agents, Disks
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.scheduler.context import ControllerContext, Tenant
from dask_hpc.checkpoint.scheduler.copies import CopyKeeper, CopyMaker, Made
from dask_hpc.checkpoint.scheduler.placement import CopyPlacement, Order
from dask_hpc.strategies.checkpoint.agents import AgentNode


@dataclass(frozen=True, slots=True)
class OfTenant:
    """Who needs a block in the catalogue, if it is no result."""

    owner: Hashable


@dataclass(frozen=True, slots=True)
class GivenBlock:
    """Whose it is, its content and its size; and on how many more agents than one it is to be."""

    owner: Hashable
    content: str
    nbytes: int
    copies: int = 0


class TenantBlocks:
    """All of them."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._catalogue: Catalogue = context.catalogue
        self._agents, self._placement = context.get(Agents), context.get(CopyPlacement)
        self._maker, self._keeper = context.get(CopyMaker), context.get(CopyKeeper)
        self._disks = context.get(Disks)

    def join(self, tenant: Tenant) -> None:
        """The controller stays for it, and it hears of agents."""
        if tenant not in self._context.tenants:
            self._context.tenants.append(tenant)

    def leave(self, tenant: Tenant) -> None:
        if tenant in self._context.tenants:
            self._context.tenants.remove(tenant)

    def agents(self) -> list[AgentNode]:
        """Those that may be asked now."""
        return self._agents.able()

    def known(self) -> list[str]:
        """All that there are, in the order in which they came."""
        return list(self._agents.facts())

    def on(self, agent: str) -> Collection[str]:
        """The contents that it has, whoever they belong to."""
        return self._catalogue.on(agent)

    def nbytes(self, content: str) -> int:
        known = self._catalogue.contents.get(content)
        return known.nbytes if known is not None else 0

    def node_of(self, agent: str) -> str:
        return self._context.nodes.node_of(agent)

    def domain_of(self, agent: str) -> str:
        """What fails together with it."""
        return self._agents.domain_of(agent)

    def expect(self, block: GivenBlock, agents: Iterable[str]) -> None:
        """Somebody is about to give it to these."""
        self._catalogue.need(OfTenant(block.owner), block.content, block.nbytes, block.copies)
        for agent in agents:
            self._agents.promise(agent, block.nbytes)

    def settle(self, block: GivenBlock, agents: Iterable[str], there: Collection[str]) -> None:
        """Of the agents that it was expected on, these have it."""
        for agent in agents:
            self._agents.promise(agent, -float(block.nbytes))
            if agent in there:
                self._catalogue.add(block.content, agent)
        if block.copies and len(there) <= block.copies:
            self._keeper.look_at([block.content])

    def want(self, owner: Hashable, contents: Iterable[str], copies: int) -> None:
        """From now on these are to be on so many more agents than one."""
        there = list(contents)
        for content in there:
            if (known := self._catalogue.contents.get(content)) is not None and owner in known.needed_by:
                known.needed_by[owner] = copies
        self._keeper.look_at(there)

    def full(self, agent: str) -> None:
        """It said that it takes no more."""
        self._agents.is_full(agent)

    def release(self, owner: Hashable, contents: Iterable[str] | None = None) -> None:
        """Nobody needs these of an owner's any longer, or none of them."""
        if contents is None:
            drops = self._catalogue.release(OfTenant(owner))
        else:
            for content in contents:
                self._catalogue.needs_no_longer(OfTenant(owner), content)
            drops = self._catalogue.unneeded()
        self._keeper.drop_soon(drops)

    def where(self, content: str) -> Collection[str]:
        """The agents that have it."""
        known = self._catalogue.contents.get(content)
        return known.where if known is not None else ()

    def may_return(self, content: str) -> bool:
        """Whether it is on the disk of an agent that died a moment ago, which another one may take over."""
        return self._disks.may_return(content)

    async def returned(self, content: str) -> None:
        """Until that is decided."""
        await self._disks.returned(content)

    async def on_disk(self, contents: Iterable[str]) -> str:
        """Have agents write these to their disks; what went wrong, if so."""
        return (await self._disks.keep_contents(contents)).problem

    async def move(self, moves: Mapping[str, str], away: Collection[str], stays: bool = False) -> Made:
        """Blocks go from some agents to others: by content, to whom. What has arrived is dropped there.
        ``stays``: these agents may get others meanwhile."""
        orders = []
        for content, target in moves.items():
            copies = self._catalogue.contents.get(content)
            if copies is None or not copies.where:
                continue
            # As many as are wanted are elsewhere before one goes: of those that are, one may just have died.
            missing = min(copies.wanted + 1, len(copies.where)) - len(copies.where - set(away))
            if missing > 0:
                there, to = set(copies.where) | set(away), target if target not in copies.where else ""
                orders.append(Order(None, content, copies.nbytes, missing, copies.wanted, there, to=to))
        with self._agents.without(() if stays else away):
            made = await self._maker.make(orders)
        drops = {}
        for content in moves:
            copies = self._catalogue.contents.get(content)
            gone = sorted(copies.where & set(away)) if copies is not None else []
            if copies is not None and gone and copies.where - set(away):
                for agent in gone:
                    self._catalogue.lost(agent, [content])
                drops[content] = gone
        await self._maker.drop(drops)
        self._keeper.look_at(moves)
        return made
