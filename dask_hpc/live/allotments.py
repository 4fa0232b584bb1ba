"""Who held which node when, read off the rows of a story."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

_TAKES = ("start", "grow", "shrink")  # the row names all nodes that the job holds now
_LEAVES = ("end", "requeue", "withdraw")
_ALL_LEAVE = ("off", "closed")


def moved(holders: Mapping[str, str], decision: str, job: str, nodes: Iterable[str]) -> dict[str, str | None]:
    """The nodes that change hands by a row of the story, and who has them then; None for nobody."""
    if decision in _TAKES:
        has_now = dict.fromkeys(nodes, job)
        left = [node for node, holder in holders.items() if holder == job and node not in has_now]
        return dict.fromkeys(left) | {n: job for n in has_now if holders.get(n) != job}
    if decision in _LEAVES:
        return dict.fromkeys(node for node, holder in holders.items() if holder == job)
    if decision == "node-left":
        return dict.fromkeys(node for node in nodes if node in holders)
    return dict.fromkeys(holders) if decision in _ALL_LEAVE else {}


@dataclass(frozen=True, slots=True)
class Span:
    """A job held a node from ``start`` to ``end``, None for still, and why it got it."""

    node: str
    job: str
    start: float
    end: float | None
    reason: str


class Allotments:
    """The spans, of those that are over the newest ``length``."""

    def __init__(self, length: int = 5_000) -> None:
        self.over: deque[Span] = deque(maxlen=length)
        self.held: dict[str, Span] = {}
        #: since when the nodes that are there have been there
        self.joined: dict[str, float] = {}

    def add(self, time: float, decision: str, job: str, nodes: Iterable[str], reason: str) -> None:
        """The next row of the story."""
        nodes = tuple(nodes)
        holders = {node: span.job for node, span in self.held.items()}
        for node, holder in moved(holders, decision, job, nodes).items():
            if node in self.held:
                self.over.append(replace(self.held.pop(node), end=time))
            if holder is not None:
                self.held[node] = Span(node, holder, time, None, reason)
        if decision == "node-joined":
            self.joined.update((node, time) for node in nodes)
        elif decision == "node-left":
            for node in nodes:
                self.joined.pop(node, None)

    def spans(self) -> Iterator[Span]:
        """All of them, those that are over first."""
        yield from self.over
        yield from self.held.values()
