"""Who has which copy, and what is copied or dropped next: a state machine without Dask, clock or network.

It hears of events (a copy was made or is gone, a result came somewhere, an agent says what it has, nobody
wants a key any longer) and says what is to be done: orders (a block that so many more agents are to have),
agents for each, the question that one is asked, and drops. A shell (``copies``) carries that out.

A content is safe if it is in one more failure domain than the number of copies that is wanted, the domain of
one of Dask's own holders included: then so many may die at once. So what nobody has in memory has one copy
more; and a copy beside one of several holders does not count while another domain is free, as Dask drops what
tasks have needed without telling, and that result may soon be the only one.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

from dask_hpc.checkpoint.scheduler.catalogue import Catalogue, Dealer
from dask_hpc.checkpoint.version import KeptVersion

Drops = dict[str, list[str]]  # by content, the agents that need not keep it


class View(Protocol):
    """What others decide: where results are, and which agents there are."""

    def holders(self, key: Hashable) -> Sequence[str]: ...
    def nbytes(self, key: Hashable) -> int: ...  # of its result
    def is_coming(self, key: Hashable) -> bool: ...  # it is being computed, or loaded
    def is_able(self, address: str) -> bool: ...  # that agent may be asked to keep something now
    def domain_of(self, address: str) -> str: ...  # what fails together with a worker
    def free_of(self, domains: Collection[str]) -> int: ...  # other domains with an agent that may be asked


@dataclass(slots=True)
class Order:
    """A block that so many more agents are to have, of ``wanted`` in all: that of a key, or a copy of a
    content. A key's may be ``like`` what an agent has already."""

    key: Hashable | None
    content: str
    nbytes: int
    copies: int
    wanted: int = 1
    #: agents that have it or could not take it
    not_to: set[str] = field(default_factory=set)
    #: whether only an agent in another failure domain will do
    is_choosy: bool = False
    like: str = ""
    #: an agent that is to have it if it can
    to: str = ""
    errors: int = 0

    def one(self) -> "Order":
        """The same block, for one agent of them."""
        return self if self.copies == 1 else replace(self, copies=1)


@dataclass
class Steps:
    """What follows from what was looked at: copies that are to be made, surplus ones that may go, and keys
    that are in nobody's memory and have no copy."""

    orders: list[Order] = field(default_factory=list)
    drops: Drops = field(default_factory=dict)
    gone: list[Hashable] = field(default_factory=list)


class CopyPlacement:
    """What is doubtful, owed or on its way, beside the catalogue of what is there."""

    def __init__(self, catalogue: Catalogue, view: View) -> None:
        self.catalogue = catalogue
        self._view = view
        #: versions that want a key to be copied
        self.wishes: dict[Hashable, list[KeptVersion]] = {}
        #: contents to be looked at; keys that were to be copied, and have no content yet
        self._doubtful: dict[str, None] = {}
        self.owed: dict[Hashable, None] = {}
        #: keys that have lost all copies, and are to be copied when they have been computed again
        self._lapsed: set[Hashable] = set()
        #: contents of which copies are made again, and those of them that somebody looked at meanwhile
        self._again: set[str] = set()
        self._passed_over: set[str] = set()
        #: keys that somebody has copied right now, and how many messages each of their blocks is in
        self.claimed: set[Hashable] = set()
        self._sent: Counter[Hashable] = Counter()
        #: by agent, what it is being told to drop, and for each question to it what it was told to meanwhile
        self._dropping: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._asking: defaultdict[str, list[set[str]]] = defaultdict(list)
        #: by content, agents that took it for nothing
        self._leftovers: Drops = {}

    def wanted(self, key: Hashable) -> int:
        """On how many agents somebody wants a key to be."""
        return max((wish.copies for wish in self.wishes.get(key, ())), default=0)

    def look_at(self, contents: Iterable[str] | None = None) -> None:
        """These, or all, may be on too few agents."""
        self._doubtful.update(dict.fromkeys(self.catalogue.contents if contents is None else contents))

    def arrived(self, address: str, keys: Iterable[Hashable]) -> None:
        """A worker fetched these results. If it has copies of some, Dask may soon drop the other ones."""
        domain = self._view.domain_of(address)
        for key in keys:
            content, where = self.catalogue.where(key)
            if any(self._view.domain_of(agent) == domain for agent in where):
                self.look_at([content])

    def in_memory(self, key: Hashable) -> None:
        """A key has its result, or nobody has it any more. It may be beside its only copy, or have no other
        than that."""
        if (content := self.catalogue.content_of.get(key)) is not None:
            self.look_at([content])

    def has(self, agent: str, contents: Iterable[str]) -> Drops:
        """These are all copies that an agent has. Those that it need not keep."""
        there, known = set(contents), set(self.catalogue.on(agent))
        unneeded = [one for one in there - known if not self.catalogue.add(one, agent)]
        self.look_at(self.catalogue.lost(agent, known - there))
        return {one: [agent] for one in unneeded}

    def owes(self, keys: Iterable[Hashable]) -> None:
        self.owed.update(dict.fromkeys(keys))

    def pay(self) -> None:
        """Owed keys were tried again: those that are copied or gone are owed no longer."""
        is_left = (key for key in self.owed if self._view.holders(key))
        self.owed = {key: None for key in is_left if not self.catalogue.content_of.get(key)}

    def release(self, key: Hashable) -> Drops:
        """Nobody wants it any longer. Copies that may go."""
        self._lapsed.discard(key)
        self.owed.pop(key, None)
        return self.catalogue.release(key) if key in self.catalogue.content_of else {}

    def lapse(self, key: Hashable) -> Drops:
        """It has no copy any more, and is copied anew when it has been computed."""
        drops = self.release(key)
        if key in self.wishes:
            self._lapsed.add(key)
        return drops

    def is_back(self, key: Hashable) -> bool:
        """A key has its result. Whether it had lost all its copies."""
        if key not in self._lapsed:
            return False
        self._lapsed.discard(key)
        return True

    def restart(self) -> None:
        self._lapsed.clear()
        self._sent.clear()

    def orders(
        self, wanted: Iterable[tuple[Hashable, int]], like: Mapping[Hashable, str] | None = None
    ) -> Iterator[Order | None]:
        """What there is to be done for each key, which so many agents are to have; nothing if it is not in
        memory, or has all its copies. ``like`` has the contents that some of them probably have: those need
        not move."""
        for key, copies in wanted:
            content = self.catalogue.content_of.get(key, "")
            known = self.catalogue.contents.get(content)
            there = len(known.where) if known is not None else 0
            if copies > there and self._view.holders(key):
                nbytes, similar = self._view.nbytes(key), (like or {}).get(key, "")
                yield Order(key, content, nbytes, copies - there, copies, like=similar)
            else:
                yield None

    def next_few(self, most: int) -> Steps | None:
        """Look at some of what is doubtful; nothing if nothing is."""
        some = list(islice(self._doubtful, most))
        for content in some:
            del self._doubtful[content]
        return self.steps(some) if some else None

    def steps(self, contents: Iterable[str]) -> Steps:
        found = Steps()
        for content in contents:
            if self.catalogue.contents.get(content) is None:
                continue
            self._again_of(content, found)
            if surplus := self._surplus(content):
                found.drops[content] = surplus
                for agent in surplus:
                    self.catalogue.lost(agent, [content])
        return found

    def _again_of(self, content: str, found: Steps) -> None:
        copies, keys = self.catalogue.contents[content], self.catalogue.keys_of(content)
        if any(key in self._sent for key in keys):
            return
        if content in self._again:
            self._passed_over.add(content)
            return
        holders = self._holders(keys)
        if not copies.where and not holders:
            found.gone += keys
            return
        if not holders and any(map(self._view.is_coming, keys)):
            return  # it is looked at when it has been loaded
        if lacking := self.lacking(content, holders):
            key = next((key for key in keys if not copies.where and self._view.holders(key)), None)
            is_choosy = len(copies.where) >= copies.wanted
            wanted, there = copies.wanted, set(copies.where)
            found.orders.append(Order(key, content, copies.nbytes, lacking, wanted, there, is_choosy))

    def lacking(self, content: str, holders: Iterable[str]) -> int:
        """In how many more failure domains it is to be, as far as there are any."""
        copies = self.catalogue.contents[content]
        there = set(map(self._view.domain_of, copies.where))
        held = set(map(self._view.domain_of, holders))
        least = max(0, copies.wanted + 1 - len(there | held), 0 if there else 1)
        wished = copies.wanted + 1 - len(there - held) - min(1, len(held))
        return least if wished <= least else max(least, min(wished, self._view.free_of(there | held)))

    def _surplus(self, content: str) -> list[str]:
        """Agents whose copies are more than is wanted, in a failure domain where the result itself is."""
        copies, domain_of = self.catalogue.contents[content], self._view.domain_of
        if len(copies.where) <= copies.wanted:
            return []
        held = set(map(domain_of, self._holders(self.catalogue.keys_of(content))))
        apart = {domain_of(one) for one in copies.where if self._view.is_able(one)} - held
        if len(apart) < copies.wanted:
            return []
        beside = [one for one in sorted(copies.where) if domain_of(one) in held]
        return beside[: len(copies.where) - copies.wanted]

    def leaving(
        self, agents: Iterable[str], hints: Mapping[str, str] | None = None, others: Collection[str] = ()
    ) -> list[Order]:
        """What makes that others have as many copies of all that these agents have. ``hints`` says of some
        contents who is to have them; ``others`` are about to leave as well."""
        leaving, found = set(agents), []
        away = leaving.union(others)
        for content in sorted({one for agent in leaving for one in self.catalogue.on(agent)}):
            copies = self.catalogue.contents[content]
            # What is no key's result is in nobody's memory: see above.
            wanted = copies.wanted + (not self.catalogue.keys_of(content))
            missing = min(wanted, len(copies.where)) - len(copies.where - away)
            if missing > 0:
                not_to, to = copies.where | away, (hints or {}).get(content, "")
                found.append(Order(None, content, copies.nbytes, missing, copies.wanted, not_to, to=to))
        return found

    def can_do_without(self, agents: Iterable[str]) -> bool:
        """Whether without these agents all that they have is still in as many failure domains, apart from its
        result, as it is to be, or as it was."""
        leaving, domain_of = set(agents), self._view.domain_of
        for content in {one for agent in leaving for one in self.catalogue.on(agent)}:
            copies = self.catalogue.contents[content]
            held = set(map(domain_of, self._holders(self.catalogue.keys_of(content))))
            before = set(map(domain_of, copies.where)) - held
            after = set(map(domain_of, copies.where - leaving)) - held
            if len(after) < min(copies.wanted, len(before)) or not copies.where - leaving:
                return False
        return True

    def forget(self, agents: Iterable[str]) -> Drops:
        """These agents keep nothing any longer of what others have. What they may drop."""
        drops: Drops = {}
        for agent in agents:
            for content in self.catalogue.lost(agent, list(self.catalogue.on(agent))):
                drops.setdefault(content, []).append(agent)
        return drops

    def _holders(self, keys: Iterable[Hashable]) -> set[str]:
        return {address for key in keys for address in self._view.holders(key)}

    def makes_again(self, orders: Iterable[Order]) -> set[str]:
        """From now on nobody else orders these. Their contents."""
        contents = {order.content for order in orders}
        self._again |= contents
        return contents

    def made_again(self, contents: set[str]) -> None:
        """Whoever wanted to order these meanwhile looks again."""
        self._again -= contents
        if again := self._passed_over & contents:
            self._passed_over -= again
            self.look_at(again)

    def claim(self, orders: Iterable[Order], mine: set[Hashable], later: dict[Hashable, int]) -> list[Order]:
        """What nobody else has copied right now; these are ``mine`` now, the others come ``later``."""
        found = []
        for order in orders:
            if order.key is not None and order.key in self.claimed and order.key not in mine:
                later[order.key] = order.wanted
                continue
            if order.key is not None:
                mine.add(order.key)
                self.claimed.add(order.key)
            found.append(order)
        return found

    def sends(self, keys: Iterable[Hashable]) -> list[Hashable]:
        """These are in a message that goes out. Those that were in none."""
        found = list(keys)
        new = [key for key in dict.fromkeys(found) if not self._sent[key]]
        self._sent.update(found)
        return new

    def sent(self, keys: Iterable[Hashable]) -> list[Hashable]:
        """That message was answered. Those that are in none any more."""
        free = []
        for key in keys:
            if key in self._sent:
                self._sent[key] -= 1
                if not self._sent[key]:
                    del self._sent[key]
                    free.append(key)
        return free

    def deal(self, order: Order, dealer: Dealer) -> list[str]:
        """Agents for a block, outside of where it is already; fewer than ordered if there is no room."""
        having = self._having(order)
        domains = {self._view.domain_of(address) for address in having}
        if order.to and order.to not in order.not_to | having and self._view.is_able(order.to):
            found = [order.to]
        else:
            found = self._alike(order, domains)
        domains.update(map(self._view.domain_of, found))
        if number := order.copies - len(found):
            not_to = order.not_to.union(having, found)
            found += dealer.deal(order.nbytes, number, domains, not_to, order.is_choosy)
        if len(found) < order.copies and not order.is_choosy and order.key is not None:
            found += self._beside_results(order, order.key, dealer, found)
        order.not_to.update(found)
        return found

    def _beside_results(self, order: Order, key: Hashable, dealer: Dealer, found: Sequence[str]) -> list[str]:
        """Agents where the result itself is: if it is in several failure domains, a copy in one of them is as
        good as one elsewhere, and nobody else may have room."""
        if len(set(map(self._view.domain_of, self._view.holders(key)))) < 2:
            return []
        copies = self.catalogue.contents.get(order.content)
        there = {*found, *(copies.where if copies is not None else ())}
        domains = set(map(self._view.domain_of, there))
        return dealer.deal(order.nbytes, order.copies - len(found), domains, order.not_to | there)

    def _alike(self, order: Order, domains: set[str]) -> list[str]:
        """Agents that have probably the same already, outside of these failure domains."""
        copies = self.catalogue.contents.get(order.like)
        found: list[str] = []
        for agent in sorted(copies.where) if copies and not order.errors else ():
            is_apart = self._view.domain_of(agent) not in domains and agent not in order.not_to
            if is_apart and len(found) < order.copies and self._view.is_able(agent):
                found.append(agent)
        return found

    def _having(self, order: Order) -> set[str]:
        having = set(self._view.holders(order.key)) if order.key is not None else set()
        if copies := self.catalogue.contents.get(order.content):
            having |= copies.where
            if order.key is None:
                having |= self._holders(self.catalogue.keys_of(order.content))
        return having

    def question(self, order: Order, agent: str) -> dict[str, Any] | None:
        """A block as an agent is asked to take it: from the nearest that has it. None if nobody has."""
        keys = [order.key] if order.key is not None else self.catalogue.keys_of(order.content)
        for key in keys:
            if held := self._view.holders(key):
                source = held[order.errors % len(held)]
                return {"key": key, "source": source, "have": [order.like or order.content]}
        copies, domain = self.catalogue.contents.get(order.content), self._view.domain_of(agent)
        if copies and copies.where:
            there = sorted(copies.where, key=lambda one: (self._view.domain_of(one) != domain, one))
            return {"content": order.content, "source": there[order.errors % len(there)]}
        return None

    def is_copied(self, agent: str, order: Order, content: str, nbytes: int, matters: bool = True) -> bool:
        """An agent has a copy that it was asked to take. Whether it counts: if not (nobody needs it by now,
        or the agent is gone), it goes when all orders are done, unless somebody else needs the same."""
        if order.key is None:
            counts = self.catalogue.add(content, agent)
        else:
            counts = matters and self.catalogue.copied(order.key, content, nbytes, agent, order.wanted)
        if not counts:
            self._leftovers.setdefault(content, []).append(agent)
        return counts

    def unneeded(self) -> Drops:
        """What orders that are done have left behind."""
        drops, known = self.catalogue.unneeded(), self.catalogue.contents
        taken, self._leftovers = self._leftovers, {}
        for content, agents in taken.items():
            there = known[content].where if content in known else ()
            drops.setdefault(content, []).extend(agent for agent in agents if agent not in there)
        return drops

    def to_drop(self, drops: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """By agent, what it need not keep, unless somebody needs it again by now."""
        by_agent: dict[str, list[str]] = {}
        for content, agents in drops.items():
            for agent in agents:
                by_agent.setdefault(agent, []).append(content)
        return by_agent

    def drops(self, agent: str, contents: Iterable[str]) -> list[str]:
        """An agent is about to hear that it may drop these. Those that it may by now."""
        found = [one for one in contents if one not in self.catalogue.on(agent)]
        self._dropping[agent].update(found)
        for doubted in self._asking.get(agent, ()):
            doubted.update(found)
        return found

    def dropped(self, agent: str, contents: Iterable[str]) -> None:
        self._dropping[agent] -= Counter(contents)

    def asks(self, agent: str) -> set[str]:
        """An agent is asked for copies. What of the answer is not to be believed, as it is told to drop that
        meanwhile."""
        doubted = set(self._dropping[agent])
        self._asking[agent].append(doubted)
        return doubted

    def answers(self, agent: str, doubted: set[str]) -> None:
        self._asking[agent] = [one for one in self._asking[agent] if one is not doubted]
        if not self._asking[agent] and not self._dropping[agent]:
            del self._asking[agent], self._dropping[agent]
