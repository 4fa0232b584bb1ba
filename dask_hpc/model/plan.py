"""What a strategy answers: decisions, each with its reason."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Start:
    """Start a waiting job on this many nodes."""

    job: str
    nodes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything decided at one instant, in the order it is to be carried out."""

    id: int
    time: float
    starts: tuple[Start, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.starts)
