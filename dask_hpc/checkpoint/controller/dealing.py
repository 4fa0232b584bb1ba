"""Which agents get a copy of which block, as blocks are dealt one after another: plain state, no clock.

A strategy says once for a commit which agents an item has, in which shares (its slots). Blocks go to them
by turns, each outside of the failure domains in which the block is already. What is dealt is taken off the
room of an agent at once, so that one commit cannot overfill one that has not said yet how full it is. Dealing
a block costs the look at a few agents, however many there are.
"""

from collections.abc import Collection, Iterable, Sequence
from math import inf

from dask_hpc.model.agents import AgentNode


class Dealing:
    """``agents`` are ranked, the best first. ``slots`` names those that an item has, each as often as it is
    to be dealt a share; all of them if it is empty."""

    def __init__(self, agents: Sequence[AgentNode], slots: Sequence[str] = ()) -> None:
        self._free = {one.name: one.free for one in agents}
        self._domain = {one.name: one.domain or one.name for one in agents}
        order = list(self._free)
        mine = [name for name in slots if name in self._free] or order
        self._groups = (mine, [name for name in order if name not in set(mine)])
        #: by group and the domains to avoid, whose turn it is
        self._turn: dict[tuple[int, frozenset[str]], int] = {}
        #: blocks of that size and more fit nowhere
        self._too_large = inf

    def deal(
        self,
        nbytes: float,
        number: int,
        domains: Iterable[str],
        not_to: Collection[str] = (),
        is_choosy: bool = False,
    ) -> list[str]:
        """Agents for so many copies; fewer if there is no room. ``domains`` have the block already; another
        process there is taken only if nobody else has room, and not at all if ``is_choosy``."""
        found: list[str] = []
        taken = set(domains)
        while len(found) < number:
            name = self._next(nbytes, taken, not_to, found, is_choosy)
            if name is None:
                return found
            self._free[name] -= nbytes
            taken.add(self._domain[name])
            found.append(name)
        return found

    def is_full(self, name: str) -> None:
        """That agent has no room after all."""
        self._free[name] = 0.0

    def gives_back(self, name: str, nbytes: float) -> None:
        """What was dealt to that agent does not come."""
        if name in self._free:
            self._free[name] += nbytes
            self._too_large = inf

    def _next(
        self, nbytes: float, taken: set[str], not_to: Collection[str], found: list[str], is_choosy: bool
    ) -> str | None:
        if nbytes >= self._too_large:
            return None
        avoid = frozenset(taken)
        for number, group in enumerate(self._groups):
            count = len(group)
            first = self._turn.setdefault((number, avoid), len(self._turn))
            for step in range(count):
                name = group[(first + step) % count]
                if self._domain[name] not in taken and self._fits(name, nbytes, not_to, found):
                    self._turn[number, avoid] = (first + step + 1) % count
                    return name
        if all(free < nbytes for free in self._free.values()):
            self._too_large = nbytes
        beside = (name for name in self._free if self._fits(name, nbytes, not_to, found))
        return None if is_choosy else next(beside, None)

    def _fits(self, name: str, nbytes: float, not_to: Collection[str], found: list[str]) -> bool:
        return self._free[name] >= nbytes and name not in not_to and name not in found
