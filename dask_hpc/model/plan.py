"""What a policy answers: decisions, each with its reason."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Start:
    """Start a waiting job on this many idle nodes."""

    job: str
    nodes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Bring a running job to this many nodes."""

    job: str
    nodes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop a running job and put it back into the queue, ahead of all but those that failed."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything decided at one instant.

    Bodies carry it out in this order: interrupts, shrinks, starts, growths. Starts and growths together
    need no more nodes than were idle when the plan was made: nodes that a shrink frees are given away
    by a later plan, once they are free indeed.
    """

    id: int
    time: float
    starts: tuple[Start, ...] = ()
    resizes: tuple[Resize, ...] = ()
    interrupts: tuple[Interrupt, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.starts or self.resizes or self.interrupts)
