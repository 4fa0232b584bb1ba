"""What is protected, what is copied, and where the copies are: plain state, no Dask, no clock.

A key's block has a content once it was copied; the copies belong to the content, so what is the same is kept
once, however many keys and versions it is in. Nobody needs a content whose keys are all forgotten and that is
in no version: then its copies may go.

Only agents that have joined have copies: what is heard of one after its death is not believed.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from dask_hpc.strategies.checkpoint.agents import AgentNode


@dataclass
class Copies:
    """Those of one content, by the addresses of the agents that have one."""

    nbytes: int
    where: set[str] = field(default_factory=set)
    #: keys and versions that need it, and on how many agents each wants it
    needed_by: dict[Hashable, int] = field(default_factory=dict)

    @property
    def wanted(self) -> int:
        return max(self.needed_by.values(), default=0)


class Catalogue:
    """All contents, and the keys whose blocks they are."""

    def __init__(self) -> None:
        self.contents: dict[str, Copies] = {}
        self.content_of: dict[Hashable, str] = {}
        #: by agent, what it has; by owner, what it needs
        self._on: dict[str, dict[str, None]] = {}
        self._needs: dict[Hashable, dict[str, None]] = {}
        self._bytes: dict[str, int] = {}
        #: contents that somebody has stopped to need
        self._unneeded: dict[str, None] = {}

    def joins(self, agent: str) -> None:
        """An agent may have copies from now on. Saying it twice does no harm."""
        self._on.setdefault(agent, {})
        self._bytes.setdefault(agent, 0)

    def copied(self, key: Hashable, content: str, nbytes: int, agent: str, copies: int = 1) -> bool:
        """An agent has a copy of a key's block, as it is now. Whether that is believed."""
        if agent not in self._on:
            return False
        before = self.content_of.get(key)
        if before is not None and before != content:  # it was computed again, and came out otherwise
            self.needs_no_longer(key, before)
        self.content_of[key] = content
        self.need(key, content, nbytes, copies)
        return self.add(content, agent)

    def add(self, content: str, agent: str) -> bool:
        """An agent has a copy of a content. Whether that is believed, and somebody needs it."""
        if agent not in self._on or content not in self.contents:
            return False
        if content not in self._on[agent]:
            self._on[agent][content] = None
            self.contents[content].where.add(agent)
            self._bytes[agent] += self.contents[content].nbytes
        return True

    def need(self, owner: Hashable, content: str, nbytes: int, copies: int = 1) -> None:
        needed_by = self.contents.setdefault(content, Copies(nbytes)).needed_by
        needed_by[owner] = max(copies, needed_by.get(owner, 0))
        self._needs.setdefault(owner, {})[content] = None

    def where(self, key: Hashable) -> tuple[str, list[str]]:
        """The content of a key's block, and the agents that have it; none if it was never copied."""
        content = self.content_of.get(key, "")
        there = self.contents.get(content)
        return content, sorted(there.where) if there else []

    def release(self, owner: Hashable) -> dict[str, list[str]]:
        """A key or a version needs nothing any longer. Contents that nobody needs, and who has them."""
        self.content_of.pop(owner, None)
        for content in self._needs.pop(owner, ()):
            self.contents[content].needed_by.pop(owner, None)
            self._unneeded[content] = None
        return self.unneeded()

    def unneeded(self) -> dict[str, list[str]]:
        """Contents that nobody needs any longer, each told once, and who has them."""
        found = {}
        for content in self._unneeded:
            copies = self.contents.get(content)
            if copies is not None and not copies.needed_by:
                found[content] = sorted(copies.where)
                for agent in copies.where:
                    del self._on[agent][content]
                    self._bytes[agent] -= copies.nbytes
                del self.contents[content]
        self._unneeded.clear()
        return found

    def lost(self, agent: str, contents: Iterable[str] | None = None) -> list[str]:
        """An agent is gone, or has not these copies any more. The contents that it had."""
        there = self._on.get(agent, {})
        had = [one for one in (list(there) if contents is None else contents) if one in there]
        for one in had:
            del there[one]
            self.contents[one].where.discard(agent)
            self._bytes[agent] -= self.contents[one].nbytes
        if contents is None:
            self._on.pop(agent, None)
            self._bytes.pop(agent, None)
        return had

    def keys_of(self, content: str) -> list[Hashable]:
        there = self.contents.get(content)
        return [one for one in there.needed_by if self.content_of.get(one) == content] if there else []

    def on(self, agent: str) -> Mapping[str, None]:
        return self._on.get(agent, {})

    def nbytes_on(self, agent: str) -> int:
        return self._bytes.get(agent, 0)

    def needs_no_longer(self, owner: Hashable, content: str) -> None:
        """A key, a version or somebody else needs this one no more: see ``unneeded``."""
        self._needs.get(owner, {}).pop(content, None)
        copies = self.contents.get(content)
        if copies is not None:
            copies.needed_by.pop(owner, None)
            self._unneeded[content] = None


class Dealer:
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
