"""What a files strategy sees of one file system in the memory of nodes; what it answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FilesView:
    """One file system, as it is now. Rates are bytes per second, and of one operation each."""

    name: str
    #: nodes that keep its blocks
    servers: int
    #: bounds that a person gave
    least: int
    most: int
    #: fewest nodes that have room for what is kept
    needed: int
    #: the rate that operations should have; 0.0: none was given
    recommended: float
    #: those of the newest operations since the number of servers was changed, the newest last
    rates: tuple[float, ...]
    #: seconds since then; inf: it never was
    since_change: float
    #: their mean just before, if that change was an expansion
    before: float | None
    #: it is being given up: nothing is to be decided any more
    ended: bool = False


@dataclass(frozen=True, slots=True)
class FilesResize:
    """From now on so many nodes keep its blocks."""

    servers: int
    reason: str
