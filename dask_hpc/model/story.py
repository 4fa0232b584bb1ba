"""The story: a bounded log of plans, so that "why?" always has an answer."""

from collections import deque
from collections.abc import Iterator

from dask_hpc.model.plan import Plan


class Story:
    """The newest plans, oldest first."""

    __slots__ = ("_plans",)

    def __init__(self, length: int = 10_000) -> None:
        self._plans: deque[Plan] = deque(maxlen=length)

    def add(self, plan: Plan) -> None:
        """Remember a plan, forgetting the oldest if the log is full."""
        self._plans.append(plan)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)
