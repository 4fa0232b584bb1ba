"""Jobs where they and all others communicate best."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.snapshot import Neighbourhood, Picked
from dask_hpc.model.topology import Topology
from dask_hpc.planning.network.bounds import JobsTogether
from dask_hpc.planning.network.sends import sent_by, sent_by_all
from dask_hpc.strategies.nodes.contiguous import Contiguous
from dask_hpc.strategies.nodes.first import First
from dask_hpc.strategies.nodes.spread import SpreadOut
from dask_hpc.strategies.strategy import NodesStrategy

#: what comes first is taken where nothing is better
_OTHERS: Mapping[str, NodesStrategy] = {
    "contiguous": Contiguous(),
    "spread": SpreadOut(),
    "first": First(),
}
_NOTHING = 1e-6  # of a score: less is no reason
_UNKNOWN = (-1.0, 0.0)  # nobody knows over which links that goes: all that is known is better


@dataclass(frozen=True, slots=True)
class LeastCongested(NodesStrategy):
    """Nodes with which the job, and all that run, get most of what they send; ours, after seed 003, 7.5.

    What a placement is worth is the share of its demands that each job gets (theta), weighted by its nodes;
    of equals that is better in which the worst served job gets more. Compared are what ``contiguous``,
    ``spread`` and ``first`` would take, and then the best of them with nodes moved from one part of the
    machine to another, one after the other, as long as that helps. Thetas are the bounds of
    ``planning.network``, not a linear programme. Where the network is not known, or what the job sends, it is
    ``contiguous``.
    """

    name: ClassVar[str] = "least-congested"

    moves: Annotated[int, Parameter("moves of a node that are tried at most", low=0, high=100_000)] = 50

    def pick(
        self, job: Job, count: int, idle: Sequence[str], held: Sequence[str], around: Neighbourhood
    ) -> Picked:
        """The nodes to take, in order."""
        contiguous = _OTHERS["contiguous"].pick(job, count, idle, held, around)
        if around.topology is None or not job.traffic or len(held) + count < 2:
            return contiguous
        worth = _Worth(around.topology, job, count, held, around)
        known = {"contiguous": tuple(contiguous.nodes)}
        if not _is_better(worth.most, worth.of(known["contiguous"])):
            return contiguous
        for name in ("spread", "first"):
            known[name] = tuple(_OTHERS[name].pick(job, count, idle, held, around).nodes)
        scores = {name: worth.of(chosen) for name, chosen in known.items()}
        best = "contiguous"
        for name in known:
            if _is_better(scores[name], scores[best]):
                best = name
        chosen, score = self._improved(known[best], idle, worth, around)
        if not _is_better(score, scores["contiguous"]):
            return contiguous
        how = f"{best}, with nodes moved" if _is_better(score, scores[best]) else best
        instead = _told(worth, known["contiguous"])
        return Picked(chosen, f"{how}: {_told(worth, chosen)}; contiguous it would be: {instead}")

    def _improved(
        self, chosen: tuple[str, ...], idle: Sequence[str], worth: "_Worth", around: Neighbourhood
    ) -> tuple[tuple[str, ...], "_Score"]:
        """With a node moved to another part of the machine, as long as that helps."""
        score, left = worth.of(chosen), self.moves
        while True:
            best, best_score = chosen, score
            for other in _moves(chosen, idle, around):
                if not left:
                    return best, best_score
                left -= 1
                found = worth.of(other)
                if _is_better(found, best_score):
                    best, best_score = other, found
            if best is chosen:
                return chosen, score
            chosen, score = best, best_score


#: nodes that are served, as if each were whole or not at all, and the least theta
_Score = tuple[float, float]


def _is_better(one: _Score, other: _Score) -> bool:
    for mine, theirs in zip(one, other, strict=True):
        if abs(mine - theirs) > _NOTHING * max(1.0, abs(theirs)):
            return mine > theirs
    return False


class _Worth:
    """What placements of one job are worth."""

    def __init__(
        self, topology: Topology, job: Job, count: int, held: Sequence[str], around: Neighbourhood
    ) -> None:
        self._topology, self._job, self._count, self._held = topology, job, count, tuple(held)
        others = sent_by_all(topology, (one for one in around.running.values() if one.job.id != job.id))
        self._others = JobsTogether(topology, others)
        self._sizes = {name: len(around.running[name].nodes) for name in others}
        self._alone = self._others.thetas() if others else {}

    @property
    def most(self) -> _Score:
        """What none is better than: everybody gets everything."""
        return sum(self._sizes.values()) + len(self._held) + self._count, 1.0

    def thetas(self, chosen: tuple[str, ...]) -> tuple[float | None, Mapping[str, float]]:
        """Of the job, if its nodes are joined by any link that is known, and of the others."""
        sent = sent_by(self._topology, self._held + chosen, self._job.traffic)
        return (None, self._alone) if sent is None else self._others.thetas_with(sent)

    def of(self, chosen: tuple[str, ...]) -> _Score:
        """Of a placement."""
        if not all(name in self._topology.places for name in chosen):
            return _UNKNOWN
        own, others = self.thetas(chosen)
        size = len(self._held) + len(chosen)
        total = sum(theta * self._sizes[job] for job, theta in others.items())
        if own is None:
            return total, min(others.values(), default=inf)
        return total + own * size, min([own, *others.values()])


def _moves(chosen: tuple[str, ...], idle: Sequence[str], around: Neighbourhood) -> Iterator[tuple[str, ...]]:
    """From each innermost part that has some of them one node to each other part with an idle one: all nodes
    of a part are alike but for their own links."""
    taken = set(chosen)
    last = {around.nodes[name].place: at for at, name in enumerate(chosen)}
    free: dict[tuple[str, ...], str] = {}
    for name in idle:
        if name not in taken:
            free.setdefault(around.nodes[name].place, name)
    for part, at in last.items():
        for other, name in free.items():
            if other != part:
                yield (*chosen[:at], *chosen[at + 1 :], name)


def _told(worth: _Worth, chosen: tuple[str, ...]) -> str:
    own, others = worth.thetas(chosen)
    words = [] if own is None else [f"gets {own:.0%} of what it sends"]
    words += [f"others at worst {min(others.values()):.0%}"] if others else []
    return ", ".join(words) or "all is sent"
