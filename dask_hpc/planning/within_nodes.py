"""Which worker of its node has which chunk: the one that has it, unless that leaves others without work."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dask_hpc.planning.redistribution import Blocks, Index, JointPlan, NewChunk

#: beyond an even share of its node by so much, a worker keeps no more chunks only because it has them
_LEAN = 0.2


def within_nodes(
    arrays: Sequence[Blocks], plan: JointPlan, workers: Mapping[str, Sequence[str]]
) -> list[dict[Index, tuple[str, ...]]]:
    """For each array the workers of each new chunk, one on each of its nodes. ``arrays`` say which workers
    hold what, where the plan speaks of nodes."""
    on_node: Counter[str] = Counter()
    for one in plan.arrays:
        for chunk in one.chunks:
            for node in chunk.targets:
                on_node[node] += _nbytes(chunk)  # type: ignore[assignment]
    load: Counter[str] = Counter()
    found = []
    for blocks, one in zip(arrays, plan.arrays, strict=True):
        places = {}
        for chunk in one.chunks:
            places[chunk.index] = tuple(
                _worker(chunk, blocks, workers[node], on_node[node] / len(workers[node]), load)
                for node in chunk.targets
            )
        found.append(places)
    return found


def _worker(chunk: NewChunk, blocks: Blocks, workers: Sequence[str], share: float, load: Counter[str]) -> str:
    nbytes = _nbytes(chunk)
    held: Counter[str] = Counter()
    for piece in chunk.pieces:
        for worker in blocks.holders.get(piece.old, ()):
            held[worker] += piece.nbytes  # type: ignore[assignment]
    by_load = sorted(workers, key=lambda worker: load[worker])
    best = max(by_load, key=lambda worker: held[worker])
    is_fair = held[best] and load[best] + nbytes / 2 <= share * (1 + _LEAN)
    chosen = best if is_fair else by_load[0]
    load[chosen] += nbytes  # type: ignore[assignment]
    return chosen


def _nbytes(chunk: NewChunk) -> float:
    return sum(piece.nbytes for piece in chunk.pieces)
