"""Scratch files in the memory of simulated nodes: clients write or read the blocks of one file, while servers
come and go.

Each client does one block after the other, and takes the next that nobody has taken. Where a block goes is
its layout's word (``FileLayout``), how many servers there are that of the policy's ``files`` strategy, which
sees what it would see of a live file system; or servers are asked for once, when clients begin. All blocks on
one server share its rate, and all servers the network.

What differs from a live file system. New servers come after a delay, and they always come. Nobody asks what
a block costs beyond its bytes. Servers that are short of memory serve on, until there are more of them.
Blocks that move have clients wait, and share servers and network with what these have begun: growth is
on-line only if it moves nothing.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice
from math import ceil, inf
from statistics import fmean
from typing import NamedTuple

from dask_hpc.planning.moves.file_layout import BlockMove, FileLayout, next_to_go
from dask_hpc.policy import Policy
from dask_hpc.simulator.network import Clock, Network, Process, Signal
from dask_hpc.strategies.files.files_view import FilesResize, FilesView

_NETWORK = "network"


@dataclass(frozen=True, slots=True)
class FileServers:
    """What there is to keep files on. Rates are bytes per second."""

    #: of one server
    rate: float = 1e9
    #: of all of them together
    network: float = inf
    #: bytes that one has room for
    room: float = inf
    #: seconds from when more servers are wanted to when they serve
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class FileUse:
    """What clients do with one file: write all its blocks, or read them."""

    layout: FileLayout
    blocks: int
    #: bytes of a block
    nbytes: float
    clients: int = 16
    is_read: bool = False
    #: so many servers are asked for when it begins; None: none
    wanted: int | None = None
    #: bounds of a person, and the rate that operations should have, for a strategy
    least: int = 1
    most: int = 16
    recommended: float = 0.0


class ServersChanged(NamedTuple):
    """From this second on another number of servers; so many bytes were moved for that."""

    time: float
    before: int
    servers: int
    moved: float
    reason: str


@dataclass(frozen=True, slots=True)
class FileRun:
    """What came of it."""

    use: FileUse
    seconds: float
    #: where blocks lie at the end
    layout: FileLayout
    changes: tuple[ServersChanged, ...]
    #: seconds for which blocks moved, and clients began nothing
    held: float

    @property
    def throughput(self) -> float:
        """Bytes per second, of all clients together."""
        return self.use.blocks * self.use.nbytes / self.seconds

    @property
    def moved(self) -> float:
        """Bytes that went from one server to another."""
        return sum(one.moved for one in self.changes)

    @property
    def servers(self) -> int:
        """How many there are at the end."""
        return len(self.layout.servers)


def use_file(machine: FileServers, use: FileUse, policy: Policy | None = None) -> FileRun:
    """Until all blocks are done. The policy is asked after each."""
    world = _FilesWorld(machine, use, policy)
    world.clock.run()
    return FileRun(use, world.seconds, world.layout, tuple(world.changes), world.held)


class _FilesWorld:
    def __init__(self, machine: FileServers, use: FileUse, policy: Policy | None) -> None:
        self.machine, self.use = machine, use
        self._strategy = policy.files if policy is not None else None
        self.layout = use.layout
        self.seconds = self.held = 0.0
        self.changes: list[ServersChanged] = []
        self.clock = Clock()
        self._network = Network(self.clock, {_NETWORK: machine.network})
        self._join(use.layout.servers)
        self._begun = self._done = 0
        self._is_changing = False
        #: fires when clients may go on
        self._held: Signal | None = None
        self._rates: deque[float] = deque(maxlen=self._strategy.window if self._strategy is not None else 1)
        self._changed_at = -inf
        self._before: float | None = None
        if use.wanted not in (None, len(self.layout.servers)):
            self._change(FilesResize(use.wanted, "asked for"))
        for _ in range(use.clients):
            self.clock.start(self._client())

    def _join(self, servers: Sequence[str]) -> None:
        self._network.links.update(dict.fromkeys(servers, self.machine.rate))

    def _client(self) -> Process:
        while True:
            while self._held is not None:
                yield self._held
            if self._begun == self.use.blocks:
                return
            block, since = self._begun, self.clock.now
            self._begun += 1
            yield self._network.send(self.use.nbytes, (self.layout.server(block), _NETWORK), inf)
            self._rates.append(self.use.nbytes / (self.clock.now - since))
            self._done += 1
            self.seconds = self.clock.now
            if not self._is_changing:
                self._ask()

    def _ask(self) -> None:
        if self._strategy is None:
            return
        use, servers = self.use, len(self.layout.servers)
        view = FilesView(
            "scratch", servers, use.least, use.most, ceil(self._kept * use.nbytes / self.machine.room),
            use.recommended, tuple(self._rates), self.clock.now - self._changed_at, self._before,
        )  # fmt: skip
        if (found := self._strategy.decide(view)) is not None:
            self._change(found)

    @property
    def _kept(self) -> int:
        """Blocks that lie on servers, or will in a moment."""
        return self.use.blocks if self.use.is_read else self._begun

    def _change(self, to: FilesResize) -> None:
        self._is_changing = True
        self.clock.start(self._resize(to))

    def _resize(self, to: FilesResize) -> Process:
        before = self.layout.servers
        if to.servers > len(before):
            yield self.machine.delay
        if self._done < self.use.blocks:  # else nobody is there any more
            moves = self._grow(to.servers) if to.servers > len(before) else self._shrink(to.servers)
            is_known = to.servers > len(before) and self._rates
            self._before = fmean(self._rates) if is_known else None
            if moves:
                since, self._held = self.clock.now, Signal()
                yield from self._send(moves)
                self.held += self.clock.now - since
                self._held.fire()
                self._held = None
            self._rates.clear()
            self._changed_at = self.clock.now
            nbytes = len(moves) * self.use.nbytes
            self.changes.append(ServersChanged(self.clock.now, len(before), to.servers, nbytes, to.reason))
        self._is_changing = False

    def _grow(self, servers: int) -> Sequence[BlockMove]:
        known = self.layout.servers
        names = (f"s{number}" for number in count() if f"s{number}" not in self._network.links)
        new = tuple(islice(names, servers - len(known)))
        self._join(new)
        self.layout, moves = self.layout.grown((*known, *new), self._kept, self._begun)
        return moves

    def _shrink(self, servers: int) -> Sequence[BlockMove]:
        moves: list[BlockMove] = []
        while len(self.layout.servers) > servers:
            stay = self.layout.servers
            lie = Counter(self.layout.server(block) for block in range(self._kept))
            load = {name: lie[name] for name in stay}
            gone = next_to_go(load, stay)
            if self.layout.dealing == "round-robin":
                self.layout, more = self.layout.without(gone, self._kept, load)
            else:
                self.layout, more = self.layout.dealt_anew([s for s in stay if s != gone], self._kept)
            moves += more
        return moves

    def _send(self, moves: Sequence[BlockMove]) -> list[Signal]:
        """All at once, those of one way in one stream."""
        ways = Counter((one.source, one.target, _NETWORK) for one in moves)
        return [self._network.send(blocks * self.use.nbytes, way, inf) for way, blocks in ways.items()]
