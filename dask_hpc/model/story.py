"""The story: a bounded log of plans and of what happened, so that "why?" always has an answer."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from dask_hpc.model.explanation import Explanation
from dask_hpc.model.plan import Plan

#: what a policy decides for jobs; all else in a story brings its explanation along, or is an event
_DECIDED = frozenset({"start", "grow", "shrink", "hand-over", "interrupt"})


@dataclass(frozen=True, slots=True)
class Happening:
    """A decision carried out, or an event that led to one. ``id`` is that of the plan it came from, or
    the revision it found."""

    id: int
    time: float
    decision: str
    job: str = ""
    nodes: tuple[str, ...] = ()
    reason: str = ""
    #: why this and not another, if it was decided, but by no plan for jobs
    why: Explanation | None = None


class Story:
    """The newest plans and happenings, oldest first."""

    __slots__ = ("_explained", "_plans", "counts", "happenings")

    def __init__(self, length: int = 10_000) -> None:
        self._plans: deque[Plan] = deque(maxlen=length)
        self._explained: dict[tuple[int, str], Explanation] = {}
        self.happenings: deque[Happening] = deque(maxlen=length)
        #: how often which decision was told, including what is forgotten
        self.counts: Counter[str] = Counter()

    def add(self, plan: Plan, explained: Mapping[str, Explanation] | None = None) -> None:
        """Remember a plan, and why each of its jobs is in it, forgetting the oldest if the log is full."""
        if self._explained and len(self._plans) == self._plans.maxlen:
            oldest = self._plans[0]
            for job in oldest.jobs:
                self._explained.pop((oldest.id, job), None)
        self._plans.append(plan)
        for job, explanation in (explained or {}).items():
            self._explained[plan.id, job] = explanation

    def explanation(self, happening: Happening) -> Explanation | None:
        """Why that decision and not another; None of an event, or if it is forgotten."""
        if happening.decision not in _DECIDED:
            return happening.why  # an event may find the revision that a plan was made from
        return self._explained.get((happening.id, happening.job))

    def tell(self, happening: Happening) -> None:
        """Remember something that happened, forgetting the oldest if the log is full."""
        self.happenings.append(happening)
        self.counts[happening.decision] += 1

    def since(self, number: int) -> tuple[int, list[Happening]]:
        """What was told from that number on, as far as it is remembered, and the number of the first of it.

        Happenings are numbered from 0. A reader who asks next for that number plus those it got misses none.
        """
        told = self.counts.total()
        first = max(min(number, told), told - len(self.happenings))
        return first, list(islice(self.happenings, first - told + len(self.happenings), None))

    def __iter__(self) -> Iterator[Plan]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)
