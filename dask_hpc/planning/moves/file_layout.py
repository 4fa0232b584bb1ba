"""On which servers the blocks of a scratch file lie, and which of them move when servers come or go.

Work 002, 3.2 (Hercules) deals blocks in turn and writes down, for a file that was there when servers came,
from which block on the longer list holds: nothing moves. 3.3 (GekkoFS) has no list but a hash of each block,
modulo the number of servers, so almost everything moves. We take a block's number, and the file's offset, for
its hash. Rendezvous hashing is ours, for comparison: of old blocks only those move that belong to the new
servers.

3.2 says of a server that goes that all blocks are dealt anew (*total*), or only those that lie there
(*partial*); the second needs an exception for each block, which is kept beside the intervals.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal

from dask_hpc.model.errors import InputError, shown

Dealing = Literal["round-robin", "hash", "rendezvous"]
DEALINGS: tuple[Dealing, ...] = ("round-robin", "hash", "rendezvous")


@dataclass(frozen=True, slots=True)
class BlockInterval:
    """From this block on, up to the next interval, these servers have the blocks."""

    first: int
    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlockMove:
    """A block goes from one server to another."""

    block: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Where the blocks of one file lie. ``offset`` keeps small files from all beginning on the same server;
    ``moved`` has the blocks that lie elsewhere than their interval says."""

    intervals: tuple[BlockInterval, ...]
    dealing: Dealing = "round-robin"
    offset: int = 0
    moved: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        firsts = [one.first for one in self.intervals]
        if (
            firsts[:1] != [0]
            or firsts != sorted(set(firsts))
            or not all(one.servers for one in self.intervals)
        ):
            allowed = "intervals that begin at 0 and at ever later blocks, each with a server"
            raise InputError("layout", f"found {shown(self.intervals)}", allowed)
        if self.dealing not in DEALINGS:
            raise InputError("dealing", f"found {shown(self.dealing)}", ", ".join(DEALINGS))

    @classmethod
    def on(cls, servers: Sequence[str], dealing: Dealing = "round-robin", offset: int = 0) -> "FileLayout":
        """A new file's."""
        return cls((BlockInterval(0, tuple(servers)),), dealing, offset)

    @property
    def servers(self) -> tuple[str, ...]:
        """Who gets new blocks."""
        return self.intervals[-1].servers

    def server(self, block: int) -> str:
        """Who has a block, or will."""
        return self.moved.get(block) or self._dealt(block)

    def blocks_of(self, server: str, blocks: int) -> list[int]:
        """Those of the first so many blocks that lie there."""
        return [block for block in range(blocks) if self.server(block) == server]

    def grown(
        self, servers: Sequence[str], blocks: int, promised: int
    ) -> tuple["FileLayout", list[BlockMove]]:
        """More servers have come. So many ``blocks`` are written; of those up to ``promised`` somebody was
        told where they go. Dealt in turn, what follows is dealt among all; else blocks move to where they
        belong."""
        if self.dealing == "round-robin":
            return self._from(max(blocks, promised), tuple(servers)), []
        return self.dealt_anew(servers, blocks)

    def dealt_anew(self, servers: Sequence[str], blocks: int) -> tuple["FileLayout", list[BlockMove]]:
        """All blocks lie where they would had these servers always been the only ones."""
        found = FileLayout.on(servers, self.dealing, self.offset)
        return found, list(self._moves(found, blocks))

    def without(
        self, server: str, blocks: int, load: Mapping[str, int]
    ) -> tuple["FileLayout", list[BlockMove]]:
        """A server goes; only its blocks move, each to the one that has the fewest by then. ``load`` says how
        many blocks of all files those have that stay. New blocks go to others."""
        left = {one: load.get(one, 0) for one in load if one != server}
        if not left:
            raise InputError("servers", f"{server} is the only one", "another one to take its blocks")
        moves = []
        for block in self.blocks_of(server, blocks):
            target = min(left, key=lambda one: (left[one], one))
            left[target] += 1
            moves.append(BlockMove(block, server, target))
        stay = tuple(one for one in self.servers if one != server) or tuple(sorted(left))
        found = replace(self, moved=dict(self.moved) | {one.block: one.target for one in moves})
        if server in self.servers:
            found = found._from(blocks, stay)
        return found, moves

    def _from(self, first: int, servers: tuple[str, ...]) -> "FileLayout":
        before = tuple(one for one in self.intervals if one.first < first)
        return replace(self, intervals=(*before, BlockInterval(first, servers)))

    def _dealt(self, block: int) -> str:
        servers = next(one.servers for one in reversed(self.intervals) if one.first <= block)
        if self.dealing == "rendezvous":
            return max(servers, key=lambda one: (_weight(one, self.offset, block), one))
        return servers[(block + self.offset) % len(servers)]

    def _moves(self, to: "FileLayout", blocks: int) -> Iterator[BlockMove]:
        for block in range(blocks):
            source, target = self.server(block), to.server(block)
            if source != target:
                yield BlockMove(block, source, target)


def next_to_go(load: Mapping[str, int], added: Sequence[str]) -> str:
    """Of servers in the order in which they came, the one to do without: it has the least, and came last."""
    return min(reversed(added), key=lambda one: load.get(one, 0))


def _weight(server: str, offset: int, block: int) -> bytes:
    return blake2b(f"{server} {offset} {block}".encode(), digest_size=8).digest()
