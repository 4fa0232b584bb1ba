"""What the checkpoint service did: counts, and one line of the story for each event, however many blocks it
is about."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_hpc import dask as compat
from dask_hpc.model.errors import one_line
from dask_hpc.model.units import show_duration, show_large

if TYPE_CHECKING:
    from dask_hpc.checkpoint.scheduler.controller import Controller

_TOGETHER = 1.0  # seconds in which copies that are made again are one event
_SETTLED = ("memory", "erred", "forgotten")
_COUNTS = (
    "commits",
    "copies",
    "moved",
    "unchanged",
    "failed",
    "recoveries",
    "recovered",
    "unrecovered",
    "damaged",
)


@dataclass
class Tally:
    """What came of copies that agents were asked for at one go."""

    copies: int = 0
    #: bytes that went from one worker to another, and those that were there already
    moved: int = 0
    unchanged: int = 0
    #: why there is no copy, and how often
    failed: Counter[str] = field(default_factory=Counter)

    def copied(self, nbytes: int, moved: int) -> None:
        """An agent has one copy more."""
        self.copies += 1
        self.moved += moved
        self.unchanged += nbytes - moved

    def plus(self, other: "Tally") -> "Tally":
        """Both together."""
        return Tally(
            self.copies + other.copies,
            self.moved + other.moved,
            self.unchanged + other.unchanged,
            self.failed + other.failed,
        )

    def said(self, seconds: float) -> str:
        """In words. ``seconds`` is how long it took."""
        took = f"in {show_duration(seconds)}"
        parts = [f"{_many(self.copies, 'copy', 'copies')}, {show_large(self.moved, 'B')} moved, {took}"]
        if self.unchanged:
            parts.append(f"{show_large(self.unchanged, 'B')} unchanged")
        if self.failed:
            why, _ = self.failed.most_common(1)[0]
            parts.append(f"{_many(self.failed.total(), 'copy', 'copies')} not made: {why}")
        return "; ".join(parts)


@dataclass(frozen=True)
class Commit:
    """One that has ended, by the process's clock."""

    ended: float
    seconds: float
    moved: int
    unchanged: int

    def as_plain(self) -> dict[str, Any]:
        """Without a clock: how long ago."""
        return {
            "ago": monotonic() - self.ended,
            "seconds": self.seconds,
            "moved": self.moved,
            "unchanged": self.unchanged,
        }


@dataclass
class _Recovery:
    """From the first result that is missing until none is."""

    began: float
    missing: set[Hashable] = field(default_factory=set)
    workers: dict[str, None] = field(default_factory=dict)
    loaded: int = 0
    #: results that no intact copy was left of, and copies that could not be read
    without: int = 0
    damaged: int = 0
    why: str = ""

    def __str__(self) -> str:
        where = (
            f", lost with {' and '.join(f'worker {one}' for one in self.workers)}," if self.workers else ""
        )
        took = show_duration(monotonic() - self.began)
        parts = [f"{_many(self.loaded, 'result', 'results')}{where} loaded from copies in {took}"]
        if self.without:
            parts.append(f"{_many(self.without, 'result', 'results')} without an intact copy")
        if self.damaged:
            parts.append(f"{_many(self.damaged, 'copy', 'copies')} could not be read")
        return "; ".join(parts) + (f": {self.why}" if self.why else "")


class Diary:
    """``tell(decision, reason)`` puts a line into the story, ``later(seconds, call)`` calls something
    then."""

    def __init__(
        self, tell: Callable[[str, str], None], later: Callable[[float, Callable[[], None]], Any]
    ) -> None:
        self._tell = tell
        self._later = later
        #: copies that were made again lately, the seconds of it, and of how many blocks
        self._again: tuple[Tally, float, int] | None = None
        #: see ``as_plain``
        self.counts: Counter[str] = Counter()
        #: the last one of each name
        self.commits: dict[str, Commit] = {}
        self._recovery: _Recovery | None = None

    def committed(self, name: str, tally: Tally, seconds: float) -> None:
        """All that was ready of a name is copied, if there was anything to be copied."""
        if tally.copies or tally.failed:
            self.commits[name] = Commit(monotonic(), seconds, tally.moved, tally.unchanged)
            self.counts["commits"] += 1
            self._count(tally)
            self._say("commit", f"{name}: {tally.said(seconds)}")

    def copied_again(self, contents: int, tally: Tally, seconds: float) -> None:
        """Copies that were lost were made again, as far as there is anything to make them from."""
        self._count(tally)
        if not tally.copies and not tally.failed:
            return
        if self._again is None:
            self._again = (Tally(), 0.0, 0)
            self._later(_TOGETHER, self._tell_of_copies)  # of one death one line
        before, took, blocks = self._again
        self._again = (before.plus(tally), took + seconds, blocks + contents)

    def _tell_of_copies(self) -> None:
        if self._again is not None:
            (tally, seconds, contents), self._again = self._again, None
            blocks = _many(contents, "block", "blocks")
            self._say("agents", f"{blocks} had too few copies; made again: {tally.said(seconds)}")

    def moves(self, key: Hashable, start: str, finish: str) -> None:
        """A result that is loaded from a copy when it is lost changes its state."""
        recovery = self._recovery
        if start == "memory" and finish != "forgotten":
            if recovery is None:
                recovery = self._recovery = _Recovery(monotonic())
            recovery.missing.add(key)
        elif recovery is not None and key in recovery.missing and finish in _SETTLED:
            recovery.loaded += finish == "memory"
            self._settles(recovery, key)

    def worker_is_gone(self, worker: str) -> None:
        """What is missing now was lost with it."""
        if self._recovery is not None:
            self._recovery.workers[worker] = None

    def cannot_be_read(self, agent: str, why: str) -> None:
        """A copy is damaged, or its agent does not answer."""
        self.counts["damaged"] += 1
        if self._recovery is None:
            self._say("recovery", f"a copy on {agent} could not be read: {why}")
        else:
            self._recovery.damaged += 1
            self._recovery.why = self._recovery.why or why

    def cannot_be_loaded(self, key: Hashable, why: str) -> None:
        """There is no intact copy: the result is computed again, if that is possible."""
        self.counts["unrecovered"] += 1
        recovery = self._recovery
        if recovery is None or key not in recovery.missing:
            self._say("recovery", f"no copy of {key!r} could be loaded: {why}")
        else:
            recovery.without += 1
            recovery.why = recovery.why or why
            self._settles(recovery, key)

    def as_plain(self) -> dict[str, Any]:
        """The last commit of all, and how often what happened: ``copies``, ``moved`` and ``unchanged``
        (bytes), ``failed`` (copies that were not made), ``recovered`` (results), ``unrecovered`` (results
        without an intact copy), ``damaged`` (copies that could not be read)."""
        last = max(self.commits.values(), key=lambda one: one.ended, default=None)
        return {
            "last_commit": None if last is None else last.as_plain(),
            "counts": {name: self.counts[name] for name in _COUNTS},
        }

    def _settles(self, recovery: _Recovery, key: Hashable) -> None:
        """If that was the last one that was missing, say how it went."""
        recovery.missing.discard(key)
        if recovery.missing:
            return
        self._recovery = None
        if recovery.loaded or recovery.without:
            self.counts["recoveries"] += 1
            self.counts["recovered"] += recovery.loaded
            self._say("recovery", str(recovery))

    def _count(self, tally: Tally) -> None:
        failed = tally.failed.total()
        self.counts.update(copies=tally.copies, moved=tally.moved, unchanged=tally.unchanged, failed=failed)

    def _say(self, decision: str, reason: str) -> None:
        self._tell(decision, one_line(reason))


def _many(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"


#: a look at all copies that takes the scheduler at most so many seconds is made each time somebody asks; a
#: longer one as seldom as keeps it below this share of all time
_QUICK, _SHARE = 0.005, 0.01


class Look:
    """How the controller and all agents are now."""

    def __init__(self, controller: "Controller", scheduler: Any) -> None:
        self._controller = controller
        self._scheduler = scheduler
        self._seen: dict[str, Any] = {}
        self._again = 0.0

    def status(self) -> dict[str, Any]:
        """``protected``: by name how much of it is copied, its last commit, when the next is due.
        ``nodes``: what of it each holds, and of which nodes it keeps copies, in bytes. ``exposed``: results
        whose copies are all on the node that has them, too. ``levels``: copies and bytes
        of each; those on disk are some of all that partners have.
        ``agents``: what each said last. ``versions``: the newest of each checkpoint, with the levels that
        have it. ``store``: bytes on their way there, and what is wrong with it. ``counts``: see
        ``Diary.as_plain``. Times are seconds ago, and from now."""
        controller = self._controller
        return {
            "protected": [self._protected(name) for name in controller.protected],
            **self._places(),
            "agents": self._agents(),
            "versions": [row for one in controller.commits.as_plain() for row in _versions(one)],
            "store": controller.flushing.as_plain(),
            **controller.diary.as_plain(),
            "errors": controller.errors,
        }

    def _protected(self, name: str) -> dict[str, Any]:
        controller = self._controller
        last = controller.diary.commits.get(name)
        found = controller.protected[name].as_plain(controller.catalogue)
        return {"next_due": None, **found, "last_commit": None if last is None else last.as_plain()}

    def _agents(self) -> list[dict[str, Any]]:
        node_of = self._controller.nodes.node_of
        agents = self._controller.agents.facts().items()
        return [{"address": address, "node": node_of(address), **facts} for address, facts in agents]

    def _places(self) -> dict[str, Any]:
        began = monotonic()
        if began >= self._again:
            self._seen = self._look_at_copies()
            took = monotonic() - began
            self._again = began + (took / _SHARE if took > _QUICK else 0.0)
        return self._seen

    def _look_at_copies(self) -> dict[str, Any]:
        """Passes over all protected results and all copies."""
        controller, nodes = self._controller, self._controller.nodes
        own: Counter[str] = Counter()
        home: dict[Any, str] = {}  # of a result: a node that holds it
        protected = (key for one in controller.protected.values() for key in one.keys)
        for key in {*protected, *controller.catalogue.content_of}:
            task = compat.find_task(self._scheduler, key)
            for address in compat.holders(task)[:1] if task is not None else ():
                home[key] = nodes.node_of(address)
                own[home[key]] += compat.size(task)
        kept: dict[str, Counter[str]] = {}
        copies, total, exposed = 0, 0, 0
        agents = controller.agents.facts().values()
        for one, found in controller.catalogue.contents.items():
            copies, total = copies + len(found.where), total + found.nbytes * len(found.where)
            homes = [home[key] for key in controller.catalogue.keys_of(one) if key in home]
            there = [nodes.node_of(address) for address in found.where]
            exposed += sum({of} == {*there} for of in homes)
            for node in there:
                kept.setdefault(node, Counter())[homes[0] if homes else ""] += found.nbytes
        return {
            "nodes": [_node(node, own[node], kept.get(node, {})) for node in sorted(nodes)],
            "exposed": exposed,
            "levels": {
                "partner": {"copies": copies, "nbytes": total},
                "disk": {
                    name: sum(agent.get(f"disk_{said}", 0) for agent in agents)
                    for name, said in (("copies", "copies"), ("nbytes", "used"))
                },
            },
        }


def _node(name: str, own: int, kept: Mapping[str, int]) -> dict[str, Any]:
    """``kept`` is by the nodes that hold the results now; "" for what nobody holds: of older versions, or
    lost a moment ago."""
    return {"name": name, "own": own, "kept": dict(kept)}


def _versions(series: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of one checkpoint, the oldest first."""
    levels: dict[int, list[str]] = {}
    for level, step in series["versions"].items():
        levels.setdefault(step, []).append(level)
    complete = series["complete"]
    for step in sorted(levels):
        nbytes = complete["nbytes"] if complete is not None and complete["step"] == step else None
        yield {"name": series["name"], "version": step, "nbytes": nbytes, "levels": levels[step]}
