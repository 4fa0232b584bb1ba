"""The story: a bounded log of plans and of what happened, so that "why?" always has an answer."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from dask_hpc.model.plan import Plan


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


class Story:
    """The newest plans and happenings, oldest first."""

    __slots__ = ("_plans", "happenings")

    def __init__(self, length: int = 10_000) -> None:
        self._plans: deque[Plan] = deque(maxlen=length)
        self.happenings: deque[Happening] = deque(maxlen=length)

    def add(self, plan: Plan) -> None:
        """Remember a plan, forgetting the oldest if the log is full."""
        self._plans.append(plan)

    def tell(self, happening: Happening) -> None:
        """Remember something that happened, forgetting the oldest if the log is full."""
        self.happenings.append(happening)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)
