"""Who held which node when, read off the rows of a story."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

_TAKES = ("start", "grow", "shrink")  # the row names all nodes that the job holds now
_LEAVES = ("end", "requeue", "withdraw")
_ALL_LEAVE = ("off", "closed")


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
        if decision in _TAKES:
            now = set(nodes)
            self._leave(
                time, [node for node, span in self.held.items() if span.job == job and node not in now]
            )
            for node in nodes:
                if node not in self.held or self.held[node].job != job:
                    self._leave(time, [node] if node in self.held else [])
                    self.held[node] = Span(node, job, time, None, reason)
        elif decision in _LEAVES:
            self._leave(time, [node for node, span in self.held.items() if span.job == job])
        elif decision == "node-joined":
            self.joined.update((node, time) for node in nodes)
        elif decision == "node-left":
            self._leave(time, [node for node in nodes if node in self.held])
            for node in nodes:
                self.joined.pop(node, None)
        elif decision in _ALL_LEAVE:
            self._leave(time, list(self.held))

    def spans(self) -> Iterator[Span]:
        """All of them, those that are over first."""
        yield from self.over
        yield from self.held.values()

    def _leave(self, time: float, nodes: list[str]) -> None:
        for node in nodes:
            self.over.append(replace(self.held.pop(node), end=time))
