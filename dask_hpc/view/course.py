"""What a reader of the feed has seen of a cluster so far: who held which node when, power, jobs, the story.

Each answer of the feed is taken in and gives back what is new in it, as plain data that a browser can draw;
``whole`` is everything that is remembered, for somebody who opens his eyes later. Nodes are numbered in the
order in which they joined, and said as runs of numbers: [[0, 3], [7, 7]] are five nodes. ``past`` is the
same of a run that is over.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from threading import Lock
from typing import Any, Literal, NamedTuple

from dask_hpc.model.job import is_over, runs
from dask_hpc.model.story import Word
from dask_hpc.model.units import finite, show_duration
from dask_hpc.policy import Policy

#: how the words of the story are drawn
SIGNS = {str(word): word.sign for word in Word}


class Alert(NamedTuple):
    """What somebody should know without looking for it."""

    number: int
    time: float
    kind: Literal["job-failed", "corridor", "lost", "walltime"]
    words: str
    #: id of the job it is about
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A job held some nodes from one time to another. ``note`` shows when pointed at."""

    job: str
    nodes: Sequence[str]
    start: float
    end: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A job held a node from ``start`` to ``end``, None for still, and why it got it."""

    node: str
    job: str
    start: float
    end: float | None
    reason: str


def moved(holders: Mapping[str, str], decision: str, job: str, nodes: Iterable[str]) -> dict[str, str | None]:
    """The nodes that change hands by a row of the story, and who has them then; None for nobody."""
    word = Word.read(decision)
    match word.effect if word else "":
        case "has":
            now = dict.fromkeys(nodes, job)
            left = [node for node, holder in holders.items() if holder == job and node not in now]
            return dict.fromkeys(left) | {n: job for n in now if holders.get(n) != job}
        case "has too":
            return dict.fromkeys(nodes, job)
        case "leaves":
            return dict.fromkeys(node for node, holder in holders.items() if holder == job)
        case "go":
            return dict.fromkeys(node for node in nodes if node in holders)
        case "all leave":
            return dict.fromkeys(holders)
    return {}


def spans(rows: Iterable[Mapping[str, Any]]) -> Iterator[Span]:
    """Who held which node when, by the rows of a story; those that go on come last."""
    held: dict[str, Span] = {}
    for row in rows:
        holders = {node: span.job for node, span in held.items()}
        for node, holder in moved(holders, row["decision"], row["job"], row["nodes"]).items():
            if node in held:
                yield replace(held.pop(node), end=row["time"])
            if holder is not None:
                held[node] = Span(node, holder, row["time"], None, row["reason"])
    yield from held.values()


def past(
    held: Iterable[Held],
    nodes: Sequence[str],
    end: float,
    *,
    policy: str = "",
    order: Iterable[str] = (),
    jobs: Iterable[Mapping[str, Any]] = (),
    story: Iterable[tuple[float, str, str, int, str]] = (),
    samples: Iterable[Sequence[Any]] = (),
    count: int | None = None,
    presence: Iterable[tuple[float, str, Sequence[str]]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A run that is over, as ``Course.whole`` gives one that goes on. ``order`` are all jobs, each of which
    has its colour by its place; rows of the story are time, decision, job, number of nodes, reason. ``count``
    is how many nodes there were, if not all have names; ``presence`` says when they "joined" and "left", if
    they were not there all the time."""
    held = list(held)
    numbers = {name: number for number, name in enumerate(nodes)}
    changes: list[tuple[float, int, str | None, Any, str]] = []
    for one in held:
        where = runs(numbers[node] for node in one.nodes)
        changes.append((one.start, 1, one.job, where, one.note))
        if isfinite(one.end):
            changes.append((one.end, 0, None, where, ""))  # ends come before what begins at the same time
    samples = list(samples)
    begin = min([one.start for one in held] + [sample[0] for sample in samples[:1]], default=0.0)
    head = {"begin": begin, "time": end, "policy": policy, "state": "simulated", "count": 0}
    head |= dict.fromkeys(("version", "undo", "errors", "lost"), 0)
    head |= {"epoch": None, "nodes": len(nodes) if count is None else count}
    there = [(begin, "joined", nodes)] if presence is None else presence
    ids = [str(job) for job in order] or list(dict.fromkeys(one.job for one in held))
    return finite(
        {
            "head": head,
            "nodes": {"names": list(nodes), "gone": []},
            "presence": [[time, what, runs(numbers[one] for one in names)] for time, what, names in there],
            "marked": [],
            "alerts": [],
            "changes": [
                [time, job, where, note]
                for time, _, job, where, note in sorted(changes, key=lambda one: one[:2])
            ],
            "samples": samples,
            "order": {job: number for number, job in enumerate(ids)},
            "jobs": list(jobs),
            "story": [[number, *row] for number, row in enumerate(story)],
            "signs": SIGNS,
            **more,
        }
    )


def corridor_of(in_force: Mapping[str, Any]) -> list[list[float | None]]:
    """The steps of the corridor that a policy in force has: from when on, not below, not above."""
    power = Policy.parse(in_force["policy"], name=in_force["name"]).power
    steps = () if power is None else power.corridor.steps
    return [[time, lower, None if upper == inf else upper] for time, lower, upper in steps]


_CHANGES, _SAMPLES, _ROWS, _DONE, _MARKS, _PRESENCE, _ALERTS = 8_000, 7_200, 2_000, 500, 500, 5_000, 100

_TOGETHER = 1.0  # seconds within which nodes come or go together

#: of a job, for those who look often: what a table or a tip says of it
_SAID = (
    "id", "name", "state", "kind", "min_nodes", "max_nodes", "asks", "submitted", "started", "ended",
    "progress", "expected_end", "mtct", "unfinished_tasks", "finished_tasks", "compute", "transfer",
    "walltime", "reason", "waiting_because", "requested", "cancelled", "failed", "waited", "response",
    "bounded_slowdown", "adaptation", "error", "user", "node_seconds", "energy",
)  # fmt: skip
#: what grows all the time is told anew when it is by so much more
_GROWS, _MORE = ("node_seconds", "energy"), 1.01

_HEAD = ("time", "epoch", "began", "policy", "version", "undo", "state", "errors", "lost", "resizes")
_PARTS = (
    "in_force", "figures", "power_now", "checkpoint", "pipelines", "holds", "lanes", "files", "together",
    "marked",
)  # fmt: skip

#: and in brief, what does not change all the time
_BRIEF = ("id", "name", "state", "cancelled", "failed", "error", "asks", "submitted", "waiting_because")

#: seconds before the end of a job's walltime that somebody should know, and the share of it if that is less
_NEAR, _NEAR_SHARE = 600.0, 0.1


class Course:
    """Bounded: of everything the newest is remembered. One thread adds to it; any may ask for the whole."""

    def __init__(self) -> None:
        self._one_at_a_time = Lock()
        #: what holds for the whole cluster now: time, policy, state and so on
        self.head: dict[str, Any] = {}
        #: when the management began of which this is the course
        self.began: float | None = None
        #: number of every node there ever was, and those that are there
        self.numbers: dict[str, int] = {}
        self.there: dict[str, None] = {}
        #: jobs by id, the oldest first
        self.jobs: OrderedDict[str, dict[str, Any]] = OrderedDict()
        #: number of every job, in the order in which they came up: all views give one the same colour
        self.order: dict[str, int] = {}
        #: parts of the status that somebody asked for
        self.parts: dict[str, Any] = {}
        #: time, watts, lower and upper bound, least and most that is forecast, uncertainty, doubt
        self.samples: deque[list[Any]] = deque(maxlen=_SAMPLES)
        #: what was done for the sake of power: time, kind, what
        self.marks: deque[list[Any]] = deque(maxlen=_MARKS)
        #: rows of the story: number, time, decision, job, number of nodes, reason
        self.story: deque[list[Any]] = deque(maxlen=_ROWS)
        #: number, time, kind, words, job or None: what somebody should know without looking for it
        self.alerts: deque[list[Any]] = deque(maxlen=_ALERTS)
        self._alerts_ever = 0
        #: the jobs of which it was said that their walltime nears, and whether the corridor cannot be kept
        self._warned: set[str] = set()
        self._is_not_kept = False
        #: time, "joined" or "left", runs of nodes; and since when those were there that joined before
        self._presence: deque[list[Any]] = deque()
        self._there_before: dict[str, float] = {}
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
        parts = list(parts)
        if parts or jobs:
            parts.append("marked")
        if self.head and self.head["nodes"] != len(self.there):  # it has forgotten who came
            parts.append("nodes")
        return {**self._read, "jobs": self._jobs_seen if jobs else None, "parts": parts}

    def add(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Take in an answer. What is new in it; only ``head`` is there always."""
        with self._one_at_a_time:
            return self._take_in(answer)

    def _take_in(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        new: dict[str, Any] = {}
        known = len(self.numbers), len(self.there)
        self._read_story(answer["story"], new)
        if answer.get("nodes") is not None and answer["story"].get("is_whole", True):
            self._set_right(answer["nodes"], answer["time"], new)
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
            self._look_at_walltimes(answer["jobs"], answer["time"], new)
        if "marked" in answer:
            answer = {**answer, "marked": self._marked(answer["marked"])}
        for part in _PARTS:
            if part in answer and self.parts.get(part) != (found := finite(answer[part])):
                self.parts[part] = new[part] = found
        if "in_force" in new:
            self.parts["corridor"] = new["corridor"] = corridor_of(new["in_force"])
        self.began = answer.get("began")
        self.head = {key: answer.get(key) for key in _HEAD} | {
            "nodes": answer.get("size", len(self.there)),
            "allotted": len(self._holders),
            "count": self.head.get("count", 0) + 1,
        }
        return {"head": self.head, **new}

    def whole(self) -> dict[str, Any]:
        """All that is remembered, as one answer of ``add``."""
        with self._one_at_a_time:
            return self._remembered()

    def _remembered(self) -> dict[str, Any]:
        before: dict[tuple[float, str, str], list[int]] = {}
        for node, held in self._before.items():
            before.setdefault(held, []).append(self.numbers[node])
        return {
            "head": self.head,
            "nodes": self._nodes(),
            "presence": [
                *([time, "joined", numbers] for time, numbers in self._came_before()),
                *self._presence,
            ],
            "marked": [],
            "alerts": list(self.alerts),
            "changes": [
                *([time, job, runs(numbers), why] for (time, job, why), numbers in sorted(before.items())),
                *self._changes,
            ],
            "samples": list(self.samples),
            "marks": list(self.marks),
            "story": list(self.story),
            "signs": SIGNS,
            "order": dict(self.order),
            "jobs": list(self.jobs.values()),
            "turned": [_brief(job) for job in self.jobs.values()],
            **self.parts,
        }

    def _nodes(self) -> dict[str, Any]:
        gone = [number for name, number in self.numbers.items() if name not in self.there]
        return {"names": list(self.numbers), "gone": runs(gone)}

    def _came_before(self) -> Iterator[tuple[float, list[list[int]]]]:
        by_time: dict[float, list[int]] = {}
        for node, time in self._there_before.items():
            by_time.setdefault(time, []).append(self.numbers[node])
        return ((time, runs(numbers)) for time, numbers in sorted(by_time.items()))

    def _goes_or_comes(self, time: float, what: str, names: Iterable[str], new: dict[str, Any]) -> None:
        names = [name for name in names if (name in self.there) == (what == "left")]
        if not names:
            return
        new["nodes"] = None
        for name in names:
            self.numbers.setdefault(name, len(self.numbers))
            if what == "joined":
                self.there[name] = None
            else:
                del self.there[name]
        row: list[Any] = [time, what, runs(self.numbers[name] for name in names)]
        rows: list[list[Any]] = new.setdefault("presence", [])
        if rows and rows[-1][1] == what and time - rows[-1][0] < _TOGETHER:  # the story names them one by one
            rows[-1][2] = _joined(rows[-1][2], row[2])
            return
        self._presence.append(row)
        rows.append(row)
        while len(self._presence) > _PRESENCE:
            self._forget_presence(list(self.numbers), *self._presence.popleft())

    def _forget_presence(self, names: list[str], time: float, what: str, numbers: list[list[int]]) -> None:
        for number in _numbers(numbers):
            if what == "joined":
                self._there_before[names[number]] = time
            else:
                self._there_before.pop(names[number], None)

    def _set_right(self, names: Iterable[str], time: float, new: dict[str, Any]) -> None:
        """Who is there now, where the story no longer says since when."""
        there = dict.fromkeys(names)
        self._goes_or_comes(time, "left", [name for name in self.there if name not in there], new)
        self._goes_or_comes(time, "joined", [name for name in there if name not in self.there], new)

    def _marked(self, rows: Iterable[Sequence[Any]] | None) -> list[list[Any]]:
        """Rows of node names, state and reason, with the nodes as runs of numbers."""
        found = []
        for names, state, why in rows or ():
            numbers = [self.numbers[name] for name in names if name in self.there]
            if numbers:
                found.append([runs(numbers), state, why])
        return found

    def _alert(self, new: dict[str, Any], time: float, kind: str, words: str, job: str | None = None) -> None:
        row = [self._alerts_ever, time, kind, words, job]
        self._alerts_ever += 1
        self.alerts.append(row)
        new.setdefault("alerts", []).append(row)

    def _look_at_walltimes(self, jobs: Iterable[Mapping[str, Any]], now: float, new: dict[str, Any]) -> None:
        for job in jobs:
            walltime, started = job.get("walltime"), job.get("started")
            if walltime is None or started is None or job["state"] != "running" or job["id"] in self._warned:
                continue
            left = (job.get("expected_end") or started + walltime) - now
            if left <= min(_NEAR, _NEAR_SHARE * walltime):
                self._warned.add(job["id"])
                words = f"{show_duration(left)} are left" if left > 0 else "nothing is left"
                words = f"job {job['name']}: {words} of its walltime of {show_duration(walltime)}"
                self._alert(new, now, "walltime", words, job["id"])

    def _read_story(self, found: Mapping[str, Any], new: dict[str, Any]) -> None:
        changes, told, marks = [], [], []
        for number, row in enumerate(found["rows"], start=found["first"]):
            time, decision, job, nodes, reason, is_for_power = row
            told.append([number, time, decision, job, len(nodes), reason])
            if is_for_power:
                word = Word.read(decision)
                kind = word.kind if word else "other"
                marks.append([time, kind, f"{decision} {job}: {reason}" if job else f"{decision}: {reason}"])
            if job and job not in self.order:
                self._give_number(job, new)
            if decision == "node-joined":
                self._goes_or_comes(time, "joined", nodes, new)
            elif decision == "fail":
                self._alert(new, time, "job-failed", f"job {job}: {reason}", job)
            elif decision == "lost":
                self._alert(new, time, "lost", reason)
            changes += self._hand_over(time, decision, job, nodes, reason)
            if decision == "node-left":
                self._goes_or_comes(time, "left", nodes, new)
        self._read["story"] = found["first"] + len(found["rows"])
        if told:
            self.story.extend(told)
            new["story"] = told
        if marks:
            self.marks.extend(marks)
            new["marks"] = marks
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
        if "verdict" in found:
            verdict = found["verdict"] or {}
            is_not_kept = verdict.get("is_kept") is False
            if is_not_kept and not self._is_not_kept:
                words = f"the corridor cannot be kept: {verdict['reason']}"
                self._alert(new, verdict["time"], "corridor", words)
            self._is_not_kept = is_not_kept

    def _read_jobs(self, rows: Iterable[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
        """Those of which anything has changed, and in brief those that have turned into something else."""
        changed, turned = [], []
        for row in rows:
            said: dict[str, Any] = {key: row.get(key) for key in _SAID} | {"nodes": len(row["nodes"])}
            before = self.jobs.get(said["id"])
            if before is not None:
                said |= {key: before[key] for key in _GROWS if not _is_more(before, said, key)}
            if before != said:
                if before is None or _brief(before) != _brief(said):
                    turned.append(_brief(said))
                self.jobs[said["id"]] = said
                changed.append(said)
        done = [one for one, row in self.jobs.items() if is_over(row["state"])]
        for one in done[: max(0, len(done) - _DONE)]:
            del self.jobs[one]
            self._warned.discard(one)
        return changed, turned


def _numbers(of_runs: Iterable[Sequence[int]]) -> Iterator[int]:
    return (number for first, last in of_runs for number in range(first, last + 1))


def _joined(before: list[list[int]], more: list[list[int]]) -> list[list[int]]:
    """Runs of the numbers in both; mostly one comes after the other."""
    if len(more) == 1 and before[-1][1] + 1 == more[0][0]:
        before[-1][1] = more[0][1]
        return before
    return runs([*_numbers(before), *_numbers(more)])


def _is_more(before: Mapping[str, Any], now: Mapping[str, Any], key: str) -> bool:
    """Whether it has grown enough to be news, or is the last word."""
    if before[key] is None or now[key] is None or before["state"] != now["state"]:
        return True
    return bool(now[key] > _MORE * before[key])


def _brief(job: Mapping[str, Any]) -> dict[str, Any]:
    return {key: job[key] for key in _BRIEF}
