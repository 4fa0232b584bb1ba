"""What a reader of the feed has seen of a cluster so far: who held which node when, power, jobs, the story.

Each answer of the feed is taken in and gives back what is new in it, as plain data that a browser can draw;
``whole`` is everything that is remembered, for somebody who opens his eyes later. Nodes are numbered in the
order in which they joined, and said as runs of numbers: [[0, 3], [7, 7]] are five nodes.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from dask_hpc.model.job import runs

_TAKES = ("start", "grow", "shrink")  # the row names all nodes that the job holds now
_LEAVES = ("end", "requeue", "withdraw")
_ALL_LEAVE = ("off", "closed")


def moved(holders: Mapping[str, str], decision: str, job: str, nodes: Iterable[str]) -> dict[str, str | None]:
    """The nodes that change hands by a row of the story, and who has them then; None for nobody."""
    if decision in _TAKES:
        has_now = dict.fromkeys(nodes, job)
        left = [node for node, holder in holders.items() if holder == job and node not in has_now]
        return dict.fromkeys(left) | {n: job for n in has_now if holders.get(n) != job}
    if decision in _LEAVES:
        return dict.fromkeys(node for node, holder in holders.items() if holder == job)
    if decision == "node-left":
        return dict.fromkeys(node for node in nodes if node in holders)
    return dict.fromkeys(holders) if decision in _ALL_LEAVE else {}


@dataclass(frozen=True, slots=True)
class Span:
    """A job held a node from ``start`` to ``end``, None for still, and why it got it."""

    node: str
    job: str
    start: float
    end: float | None
    reason: str


class Allotments:
    """The spans, of those that are over the newest ``length``."""

    def __init__(self, length: int = 5_000) -> None:
        self.over: deque[Span] = deque(maxlen=length)
        self.held: dict[str, Span] = {}
        #: since when the nodes that are there have been there
        self.joined: dict[str, float] = {}

    def add(self, time: float, decision: str, job: str, nodes: Iterable[str], reason: str) -> None:
        """The next row of the story."""
        nodes = tuple(nodes)
        holders = {node: span.job for node, span in self.held.items()}
        for node, holder in moved(holders, decision, job, nodes).items():
            if node in self.held:
                self.over.append(replace(self.held.pop(node), end=time))
            if holder is not None:
                self.held[node] = Span(node, holder, time, None, reason)
        if decision == "node-joined":
            self.joined.update((node, time) for node in nodes)
        elif decision == "node-left":
            for node in nodes:
                self.joined.pop(node, None)

    def spans(self) -> Iterator[Span]:
        """All of them, those that are over first."""
        yield from self.over
        yield from self.held.values()


_CHANGES, _SAMPLES, _ROWS, _DONE = 20_000, 7_200, 2_000, 500

#: of a job, for those who look often: what a table or a tip says of it
_SAID = (
    "id", "name", "state", "kind", "min_nodes", "max_nodes", "asks", "submitted", "started", "ended",
    "progress", "expected_end", "mtct", "unfinished_tasks", "finished_tasks", "compute", "transfer",
    "walltime", "reason", "waiting_because", "requested",
)  # fmt: skip

#: and in brief, what does not change all the time
_BRIEF = ("id", "name", "state", "asks", "submitted", "waiting_because")


class Course:
    """Bounded: of everything the newest is remembered."""

    def __init__(self) -> None:
        #: what holds for the whole cluster now: time, policy, state and so on
        self.head: dict[str, Any] = {}
        #: number of every node there ever was, and those that are there
        self.numbers: dict[str, int] = {}
        self.there: dict[str, None] = {}
        #: jobs by id, the oldest first
        self.jobs: OrderedDict[str, dict[str, Any]] = OrderedDict()
        #: number of every job, in the order in which they came up: all views give one the same colour
        self.order: dict[str, int] = {}
        #: parts of the status that somebody asked for
        self.parts: dict[str, Any] = {}
        self.samples: deque[list[Any]] = deque(maxlen=_SAMPLES)
        #: rows of the story: number, time, decision, job, number of nodes, reason
        self.story: deque[list[Any]] = deque(maxlen=_ROWS)
        #: time, job or None, runs of nodes, reason
        self._changes: deque[list[Any]] = deque()
        #: what held before the first of the changes that are remembered: since when, who, why
        self._before: dict[str, tuple[float, str, str]] = {}
        self._holders: dict[str, str] = {}
        self._read = {"story": 0, "power": 0}
        self._jobs_seen = -1.0
        self._jobs_ever = 0

    @property
    def holders(self) -> Mapping[str, str]:
        """Who has which node now."""
        return self._holders

    @property
    def in_force(self) -> tuple[Any, Any]:
        """Changes when the policy, a setting or the state of control does."""
        return self.head.get("version"), self.head.get("state")

    def wants(self, jobs: bool, parts: Iterable[str]) -> dict[str, Any]:
        """What to ask the feed for."""
        return {**self._read, "jobs": self._jobs_seen if jobs else None, "parts": list(parts)}

    def add(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Take in an answer. What is new in it; only ``head`` is there always."""
        new: dict[str, Any] = {}
        known = len(self.numbers), len(self.there)
        self._read_story(answer["story"], new)
        self._read_power(answer["power"], new)
        if (len(self.numbers), len(self.there)) != known or "nodes" in new:
            new["nodes"] = self._nodes()
        if answer.get("jobs") is not None:
            self._jobs_seen = answer["time"]
            jobs, turned = self._read_jobs(answer["jobs"])
            if jobs:
                new["jobs"] = jobs
            if turned:
                new["turned"] = turned
        for part in ("in_force", "power_now", "checkpoint", "pipelines", "holds"):
            if part in answer and self.parts.get(part) != (found := _finite(answer[part])):
                self.parts[part] = new[part] = found
        self.head = {
            key: answer[key] for key in ("time", "policy", "version", "undo", "state", "errors", "lost")
        } | {"count": self.head.get("count", 0) + 1}
        return {"head": self.head, **new}

    def whole(self) -> dict[str, Any]:
        """All that is remembered, as one answer of ``add``."""
        before: dict[tuple[float, str, str], list[int]] = {}
        for node, held in self._before.items():
            before.setdefault(held, []).append(self.numbers[node])
        return {
            "head": self.head,
            "nodes": self._nodes(),
            "changes": [
                *([time, job, runs(numbers), why] for (time, job, why), numbers in sorted(before.items())),
                *self._changes,
            ],
            "samples": list(self.samples),
            "story": list(self.story),
            "order": self.order,
            "jobs": list(self.jobs.values()),
            "turned": [_brief(job) for job in self.jobs.values()],
            **self.parts,
        }

    def _nodes(self) -> dict[str, Any]:
        gone = [number for name, number in self.numbers.items() if name not in self.there]
        return {"names": list(self.numbers), "gone": runs(gone)}

    def _read_story(self, found: Mapping[str, Any], new: dict[str, Any]) -> None:
        changes, told = [], []
        for number, row in enumerate(found["rows"], start=found["first"]):
            time, decision, job, nodes, reason = row
            told.append([number, time, decision, job, len(nodes), reason])
            if job and job not in self.order:
                self._give_number(job, new)
            if decision == "node-joined":
                for name in nodes:
                    self.numbers.setdefault(name, len(self.numbers))
                    if name not in self.there:
                        self.there[name] = None
                        new["nodes"] = None
            changes += self._hand_over(time, decision, job, nodes, reason)
            if decision == "node-left":
                for name in nodes:
                    if name in self.there:
                        del self.there[name]
                        new["nodes"] = None
        self._read["story"] = found["first"] + len(found["rows"])
        if told:
            self.story.extend(told)
            new["story"] = told
        if changes:
            self._remember(changes)
            new["changes"] = changes

    def _give_number(self, job: str, new: dict[str, Any]) -> None:
        self.order[job] = new.setdefault("order", {})[job] = self._jobs_ever
        self._jobs_ever += 1
        if len(self.order) > _CHANGES:
            del self.order[next(iter(self.order))]

    def _hand_over(self, time: float, decision: str, job: str, nodes: Any, reason: str) -> list[list[Any]]:
        by_holder: dict[str | None, list[int]] = {}
        for name, holder in moved(self._holders, decision, job, nodes).items():
            number = self.numbers.setdefault(name, len(self.numbers))
            by_holder.setdefault(holder, []).append(number)
            if holder is None:
                self._holders.pop(name, None)
            else:
                self._holders[name] = holder
        return [
            [time, holder, runs(numbers), reason if holder is not None else ""]
            for holder, numbers in by_holder.items()
        ]

    def _remember(self, changes: list[list[Any]]) -> None:
        self._changes.extend(changes)
        names = list(self.numbers) if len(self._changes) > _CHANGES else []
        while len(self._changes) > _CHANGES:
            time, job, numbers, reason = self._changes.popleft()
            for first, last in numbers:
                for name in names[first : last + 1]:
                    if job is None:
                        self._before.pop(name, None)
                    else:
                        self._before[name] = (time, job, reason)

    def _read_power(self, found: Mapping[str, Any], new: dict[str, Any]) -> None:
        samples = [list(sample) for sample in found["samples"]]
        self._read["power"] = found["first"] + len(samples)
        if samples:
            self.samples.extend(samples)
            new["samples"] = samples

    def _read_jobs(self, rows: Iterable[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
        """Those of which anything has changed, and in brief those that have turned into something else."""
        changed, turned = [], []
        for row in rows:
            said = {key: row[key] for key in _SAID} | {"nodes": len(row["nodes"])}
            before = self.jobs.get(said["id"])
            if before != said:
                if before is None or _brief(before) != _brief(said):
                    turned.append(_brief(said))
                self.jobs[said["id"]] = said
                changed.append(said)
        done = [one for one, row in self.jobs.items() if row["state"] == "done"]
        for one in done[: max(0, len(done) - _DONE)]:
            del self.jobs[one]
        return changed, turned


def _brief(job: Mapping[str, Any]) -> dict[str, Any]:
    return {key: job[key] for key in _BRIEF}


def _finite(found: Any) -> Any:
    """JSON knows no infinity and no nan: None stands for them."""
    if isinstance(found, dict):
        return {key: _finite(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_finite(value) for value in found]
    return None if isinstance(found, float) and not isfinite(found) else found
