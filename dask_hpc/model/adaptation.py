"""A change of the nodes of a job, as its program sees it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What ``on_resize`` is called with: which nodes stay, leave and join, each with the addresses of its
    workers, in the order of the allotment.

    The first one comes when the job starts: all its nodes join. One without any node that stays or joins says
    that all nodes were lost, and that the job waits again. What a job is told adds up to what it has.
    """

    staying: Mapping[str, tuple[str, ...]]
    leaving: Mapping[str, tuple[str, ...]]
    joining: Mapping[str, tuple[str, ...]]
    #: by ``time.monotonic()``: until then the change waits for the program. In the past already where nothing
    #: waits: the job starts, or nodes are gone that no policy took
    deadline: float

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those that the job has from now on. The place of a node among them is its rank."""
        return (*self.staying, *self.joining)

    @property
    def workers(self) -> tuple[str, ...]:
        """The addresses of the workers of these nodes."""
        kept = (*self.staying.values(), *self.joining.values())
        return tuple(address for addresses in kept for address in addresses)
