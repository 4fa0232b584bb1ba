"""Which agents keep the files of one file system: more of them, and fewer, while it is used.

Work 002, 3.2.2 and 3.2.3. Growing (*commissioning*) moves nothing and stops nobody; new blocks go to all from
then on. Shrinking (*decommissioning*) moves what lies on the node that goes, which is the one with least, and
came last. A node is all workers of one host, as everywhere.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from math import inf
from time import monotonic
from typing import Any, Literal

from dask_hpc.checkpoint.scheduler.tenant_blocks import GivenBlock, TenantBlocks
from dask_hpc.memory_files.scheduler.store_level import StoreLevel
from dask_hpc.memory_files.scheduler.table import Expect, FileTable, ServerRoom, Settle, Unneeded
from dask_hpc.memory_files.settings import FilesSettings
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import show_large
from dask_hpc.planning.moves.file_layout import next_to_go

State = Literal["ready", "commissioning", "decommissioning"]
_LOOK = 0.02  # seconds between two looks whether blocks are still on their way
_FRESH = 0.1  # seconds for which what agents said of their room is taken to be so
#: a look at all blocks for who wants to see them takes that many seconds, or so small a share of all time
_QUICK, _SHARE = 0.005, 0.01
_RATES = 256  # newest operations of which the speed is known


@dataclass(slots=True)
class StageOut:
    """So many of the files below a path have been copied to a directory or a URL."""

    path: str
    to: str
    files: int
    done: int = 0


class KeepingNodes:
    """Those of one table of files, and the agents' books about its blocks."""

    def __init__(self, table: FileTable, blocks: TenantBlocks) -> None:
        self.table = table
        self._blocks = blocks
        #: nodes that there are to be; None for all
        self.wanted = table.settings.nodes
        self.is_shrinking = False
        self._resizing = asyncio.Lock()
        #: agents that are about to go; and, of contents that are nowhere any more, who had them
        self._leaving: set[str] = set()
        #: nodes that are given up just now
        self._going: set[str] = set()
        self._lost_with: dict[str, str] = {}
        self._room, self._looked = ServerRoom({}, {}), -inf
        self._load: tuple[float, dict[str, int]] = (-inf, {})
        #: of agents that are there or were, which node: of one that died nobody else knows
        self._node_of: dict[str, str] = {}
        #: bytes per second of the newest operations, and the mean before the last growth
        self.rates: deque[float] = deque(maxlen=_RATES)
        self.changed = -inf
        self.before: float | None = None
        #: what is being copied out
        self.staging: list[StageOut] = []
        #: what is also in a store, if there is one
        self.store: StoreLevel | None = None

    @property
    def state(self) -> State:
        if self.is_shrinking:
            return "decommissioning"
        return "commissioning" if len(self.nodes()) < (self.wanted or 0) else "ready"

    def nodes(self, agents: Iterable[str] | None = None) -> dict[str, list[str]]:
        """Nodes with the agents that keep files there, in the order in which they came."""
        found: dict[str, list[str]] = {}
        for agent in self.table.servers if agents is None else agents:
            found.setdefault(self._blocks.node_of(agent), []).append(agent)
        return found

    # books

    def owner(self, file: int) -> tuple[str, str, int]:
        return ("scratch", self.table.name, file)

    def follow(self) -> list[str]:
        """Carry out what the table says. The contents that have been settled."""
        settled = []
        for one in self.table.take():
            match one:
                case Expect():
                    self._blocks.expect(self._given(one), one.agents)
                case Settle(expected, there):
                    self._blocks.settle(self._given(expected), expected.agents, there)
                    if there and not self._blocks.where(expected.content):  # it died meanwhile
                        self._lost_with[expected.content] = ", ".join(map(self._named, there))
                    settled.append(expected.content)
                case Unneeded(file, contents):
                    for content in contents or ():
                        self._lost_with.pop(content, None)
                    self._blocks.release(self.owner(file), contents)
        return settled

    def _given(self, one: Expect) -> GivenBlock:
        return GivenBlock(self.owner(one.file), one.content, one.nbytes, self.table.settings.copies)

    def room(self, is_now: bool = False) -> ServerRoom:
        """Who has room, as of a moment ago: with many agents a look at all of them takes some time."""
        if is_now or monotonic() - self._looked > _FRESH:
            able = self._blocks.agents()
            free, domains = {one.name: one.free for one in able}, {one.name: one.domain for one in able}
            self._room, self._looked = ServerRoom(free, domains), monotonic()
        return self._room

    def change(self, settings: FilesSettings) -> None:
        """Other settings from now on, for what is there as well."""
        before, self.table.settings = self.table.settings, settings
        if before.copies != settings.copies:
            for file in self.table.files.values():
                contents = [block.content for block in file.blocks if block is not None]
                self._blocks.want(self.owner(file.number), contents, settings.copies)

    async def where(self, content: str) -> tuple[list[str], str]:
        """Who has it; or with whom it was lost."""
        if not (there := self._blocks.where(content)) and self._blocks.may_return(content):
            await self._blocks.returned(content)
            there = self._blocks.where(content)
        return sorted(there), "" if there else self._lost_with.get(content, "nobody knows whom")

    def lost(self, agent: str, contents: Iterable[str]) -> None:
        """An agent is gone, and had these."""
        self._leaving.discard(agent)
        given = {block.content for one in self.table.sessions.values() for block in one.put.values()}
        for content in contents:
            is_ours = self.table.whose(content) is not None or content in given
            if is_ours and not self._blocks.where(content):
                self._lost_with[content] = self._named(agent)

    def _named(self, agent: str) -> str:
        """For a reader: an agent, and on which node it is, or was."""
        node = self._node_of.get(agent, agent)
        return f"{node} ({agent})" if node != agent else agent

    @property
    def lost_blocks(self) -> int:
        """How many blocks nobody has any more; what was on a disk may have come back."""
        return sum(not self._blocks.where(content) for content in self._lost_with)

    @property
    def known(self) -> list[str]:
        """All agents that could keep files."""
        return [one for one in self._blocks.known() if one not in self._leaving]

    def load(self) -> dict[str, int]:
        """How many blocks each agent has that keeps files."""
        found = dict.fromkeys(self.table.servers, 0)
        for agent in found:
            found[agent] = len(self._ours(agent))
        return found

    def _ours(self, agent: str) -> list[str]:
        return [one for one in self._blocks.on(agent) if self.table.whose(one) is not None]

    # more and fewer

    def find_servers(self) -> bool:
        """Have as many nodes as are wanted, of those that there are. Whether anything changed."""
        there = self.nodes(self.known)
        self._node_of.update((agent, name) for name, agents in there.items() for agent in agents)
        kept = [name for name in self.nodes() if name in there]
        others = [name for name in there if name not in kept and name not in self._going]
        nodes = (kept + others or list(there))[: self.wanted]
        servers = tuple(agent for name in nodes for agent in there[name])
        if servers == self.table.servers:
            return False
        if set(servers) - set(self.table.servers) and self.table.servers:
            self.before = sum(self.rates) / len(self.rates) if self.rates else None
        self._set(servers)
        return True

    def _set(self, servers: tuple[str, ...]) -> None:
        if self.table.servers:  # else these are the first ones
            self.changed = monotonic()
        self.table.servers = servers
        self._looked = -inf  # some may be new
        self.rates.clear()

    async def spread(self) -> str:
        """Where blocks are not dealt in turn, old ones go to servers that came. What to tell of it."""
        moves = self.table.dealt_anew()
        if not moves:
            return ""
        sources = {agent for content in moves for agent in self._blocks.where(content)}
        by_source = {one: {c: t for c, t in moves.items() if one in self._blocks.where(c)} for one in sources}
        moved = 0
        for source, theirs in by_source.items():
            made = await self._blocks.move(theirs, [source], stays=True)
            moved += made.moved
        return f"{self.table.name}: {show_large(moved, 'B')} went to new servers"

    def announced(self, agents: Collection[str]) -> Mapping[str, Collection[str]]:
        """These are about to go: new blocks go to others. Contents that somebody is about to give them."""
        self._leaving.update(agents)
        self.find_servers()
        found: dict[str, list[str]] = {}
        for session in self.table.sessions.values():
            for one in session.expected.values():
                for agent in one.agents:
                    found.setdefault(agent, []).append(one.content)
        return {agent: found[agent] for agent in agents if agent in found}

    def leaving(self, agents: Collection[str]) -> Mapping[str, str]:
        """These are about to go: new blocks go to others. By content, who is to have theirs."""
        self._leaving.update(agents)
        load = {agent: count for agent, count in self.load().items() if agent not in self._leaving}
        theirs = {agent: self._ours(agent) for agent in agents}
        self.find_servers()
        hints: dict[str, str] = {}
        for agent, contents in theirs.items():
            hints |= self.table.leaves(agent, contents, load)
        return hints

    def stay_after_all(self, agents: Iterable[str]) -> None:
        """They were to go, and have not."""
        self._leaving.difference_update(agents)

    async def resize(self, nodes: int | None, drain: float) -> str:
        """So many nodes from now on, or all; what to tell of it. Raises ``InputError``."""
        async with self._resizing:
            there = self.nodes()
            if nodes is None or nodes >= len(there):
                self.wanted = nodes
                self.find_servers()
                told = await self.spread()
                return told or f"{self.table.name}: {len(self.nodes())} nodes{self._short()}"
            return await self._shrink(nodes, drain)

    def _short(self) -> str:
        missing = (self.wanted or 0) - len(self.nodes())
        return f"; {missing} more when they come" if missing > 0 else ""

    async def _shrink(self, nodes: int, drain: float) -> str:
        stay, load = self.nodes(), self.load()
        left: dict[str, list[str]] = {}
        while len(stay) > nodes:
            by_node = {name: sum(load[one] for one in agents) for name, agents in stay.items()}
            name = next_to_go(by_node, list(stay))
            left[name] = stay.pop(name)
        going = [one for agents in left.values() for one in agents]
        self._check_room([one for agents in stay.values() for one in agents], going, nodes)
        before = self.wanted
        self.wanted, self.is_shrinking, self._going = nodes, True, set(left)
        try:
            self._set(tuple(one for agents in stay.values() for one in agents))
            moved, stayed = 0, 0
            until = monotonic() + drain
            for agent in going:
                while True:
                    room = {one: count for one, count in self.load().items() if one in self.table.servers}
                    moves = self.table.leaves(agent, self._ours(agent), room)
                    made = await self._blocks.move(moves, [agent])
                    moved += made.moved
                    # Somebody may be giving it a block that was announced before.
                    is_left = self._expects(agent) or self._ours(agent)
                    if not is_left or monotonic() > until:
                        break
                    await asyncio.sleep(_LOOK)
                stayed += len(self._ours(agent))
        except BaseException:
            self.wanted = before
            raise
        finally:
            self.is_shrinking, self._going = False, set()
        self.find_servers()  # some of those that were to stay may have gone meanwhile
        some = f"; {stayed} blocks found no room elsewhere, and stay until they do" if stayed else ""
        return f"{self.table.name}: {nodes} nodes; {show_large(moved, 'B')} moved{some}"

    def _expects(self, agent: str) -> bool:
        sessions = self.table.sessions.values()
        return any(agent in one.agents for session in sessions for one in session.expected.values())

    def _check_room(self, stay: Collection[str], going: Collection[str], nodes: int) -> None:
        needed, free = self.least_nodes(), {one.name: one.free for one in self._blocks.agents()}
        nbytes = sum(self._blocks.nbytes(content) for agent in going for content in self._ours(agent))
        if nbytes > sum(free.get(one, 0.0) for one in stay):
            what = f"{show_large(nbytes, 'B')} do not fit on {nodes} {'node' if nodes == 1 else 'nodes'}"
            raise InputError("files: nodes", what, f"{max(needed, nodes + 1)} or more")

    def least_nodes(self) -> int:
        """The fewest nodes that have room for what there is, as far as anybody knows."""
        room = {}
        free = {one.name: one.free for one in self._blocks.agents()}
        total = 0
        for name, agents in self.nodes().items():
            own = sum(self._blocks.nbytes(content) for agent in agents for content in self._ours(agent))
            total += own
            room[name] = own + sum(max(0.0, free.get(agent, 0.0)) for agent in agents)
        found, held = 0, 0.0
        for one in sorted(room.values(), reverse=True):
            if held >= total and found:
                break
            held += one
            found += 1
        return max(1, found)

    def _shown_load(self) -> dict[str, int]:
        """As it was the last time it was cheap enough to look: that passes over all blocks."""
        until, found = self._load
        if monotonic() >= until:
            began = monotonic()
            found = self.load()
            took = monotonic() - began
            self._load = (monotonic() + (took / _SHARE if took > _QUICK else 0.0), found)
        return {agent: found.get(agent, 0) for agent in self.table.servers}

    def status(self) -> dict[str, Any]:
        """As plain data."""
        table, load = self.table, self._shown_load()
        rates = list(self.rates)
        return {
            "name": table.name,
            "state": self.state,
            "files": len(table.files),
            "nbytes": table.nbytes,
            "writers": len(table.sessions),
            "wanted": self.wanted,
            "most": table.settings.max_nodes,
            "nodes": [
                {"name": name, "blocks": sum(load[one] for one in agents), "agents": agents}
                for name, agents in self.nodes().items()
            ],
            "throughput": sum(rates) / len(rates) if rates else None,
            "lost": self.lost_blocks,
            "staging": [asdict(one) for one in self.staging],
            "to_store": 0 if self.store is None else self.store.waiting,
            "store_problem": "" if self.store is None else self.store.problem,
            "settings": table.settings.as_plain(),
        }
