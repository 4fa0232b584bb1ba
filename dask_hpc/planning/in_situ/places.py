"""Which workers simulate and which stage, and where each block of the state lives: a partition made concrete.

Blocks lie in rows (block 3 beside block 4), so every node gets a contiguous, even part, and so does every
worker of it. Of all nodes those simulate that hold most of the state already, and each gets the part of which
it holds most: a change of partition moves few blocks.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from dask_hpc.model.errors import InputError
from dask_hpc.planning.in_situ.partition import Mode, Partition


@dataclass(frozen=True, slots=True)
class PipelineNode:
    """A node that a pipeline may use: the addresses of its workers, and the threads of each."""

    name: str
    workers: tuple[tuple[str, int], ...]

    @property
    def cores(self) -> int:
        """Threads of all its workers."""
        return sum(threads for _, threads in self.workers)


@dataclass(frozen=True, slots=True)
class SimulationPlace:
    """A worker that simulates: how many of its threads step, how many analyse in situ, and its blocks."""

    address: str
    node: str
    step_cores: int
    helper_cores: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StagingPlace:
    """A worker that runs analyses in transit."""

    address: str
    node: str
    cores: int


@dataclass(frozen=True, slots=True)
class Places:
    """Everything that the tasks of one iteration have to know about where they run."""

    mode: Mode
    simulation: tuple[SimulationPlace, ...]
    staging: tuple[StagingPlace, ...]
    in_situ: frozenset[str]
    in_transit: frozenset[str]

    @property
    def home(self) -> dict[int, str]:
        """The worker of each block."""
        return {block: place.address for place in self.simulation for block in place.blocks}

    @property
    def addresses(self) -> frozenset[str]:
        """All workers that have something to do."""
        simulating = (place.address for place in self.simulation)
        return frozenset([*simulating, *(place.address for place in self.staging)])


def make_places(
    partition: Partition, nodes: Sequence[PipelineNode], blocks: int, home: Mapping[int, str] | None = None
) -> Places:
    """Where a pipeline of so many blocks runs; ``home`` is where they are now.

    Fractions of nodes and cores are rounded up, as the partition's source does. A worker that analyses in
    situ has one helper core at least, and one core to step with, even if this is the same one.
    """
    if not nodes:
        raise InputError("nodes", "found none", "at least one worker")
    home = home or {}
    many = min(max(ceil(partition.nodes), 1), len(nodes) - bool(partition.in_transit))
    if many < 1:
        raise InputError("placement", "found analyses in transit on a single node", "two nodes, or in situ")
    node_of = {address: node.name for node in nodes for address, _ in node.workers}
    held = Counter(node_of.get(address, "") for address in home.values())
    ranked = sorted(nodes, key=lambda node: -held[node.name])  # stable: else as they were given
    kept = {node.name for node in ranked[:many]}
    simulating = [node for node in nodes if node.name in kept]
    staging = [node for node in nodes if node.name not in kept] if partition.in_transit else []
    owners = {block: node_of.get(address, "") for block, address in home.items()}
    parts = _shares({node.name: node.cores for node in simulating}, range(blocks), owners)
    return Places(
        partition.mode,
        tuple(place for node in simulating for place in _on_node(node, partition, parts[node.name], home)),
        tuple(StagingPlace(*worker[:1], node.name, worker[1]) for node in staging for worker in node.workers),
        frozenset(partition.in_situ),
        frozenset(partition.in_transit),
    )


def _on_node(
    node: PipelineNode, partition: Partition, blocks: Sequence[int], home: Mapping[int, str]
) -> list[SimulationPlace]:
    """The workers of a node that get any of its blocks. Helper cores are dealt out one by one."""
    rooms = dict(node.workers)
    parts = _shares(rooms, blocks, home)
    helpers = dict.fromkeys(rooms, 0)
    for _ in range(ceil(partition.helper_cores) if partition.mode == "async" else 0):
        freest = max(rooms, key=lambda address: rooms[address] - helpers[address])
        helpers[freest] += 1
    places = []
    for address, threads in rooms.items():
        if parts[address]:
            helper = max(min(helpers[address], threads - 1), 1 if partition.in_situ else 0)
            step = max(threads - helper, 1)
            if partition.mode == "sync":
                step = helper = threads
            places.append(SimulationPlace(address, node.name, step, helper, tuple(parts[address])))
    return places


def _shares(
    rooms: Mapping[str, int], blocks: Sequence[int], home: Mapping[int, str]
) -> dict[str, Sequence[int]]:
    """A contiguous part of the blocks for each, in proportion to its room. Those of equal room get the
    parts of which as much as possible stays, the largest overlap first."""
    cuts, total, seen = [0], sum(rooms.values()), 0
    for room in rooms.values():
        seen += room
        cuts.append(round(len(blocks) * seen / total))
    parts = [blocks[low:high] for low, high in pairwise(cuts)]
    names = list(rooms)
    overlaps = sorted(
        (-held, name, at)
        for at, part in enumerate(parts)
        for name, held in Counter(home.get(block, "") for block in part).items()
        if name in rooms and rooms[name] == rooms[names[at]]
    )
    given: dict[str, Sequence[int]] = {}
    taken: set[int] = set()
    for _, name, at in overlaps:
        if name not in given and at not in taken:
            given[name] = parts[at]
            taken.add(at)
    for room in set(rooms.values()):  # those that hold nothing of what is left, in order
        left = [at for at in range(len(parts)) if at not in taken and rooms[names[at]] == room]
        late = [name for name in names if name not in given and rooms[name] == room]
        given.update({name: parts[at] for name, at in zip(late, left, strict=True)})
    return given
