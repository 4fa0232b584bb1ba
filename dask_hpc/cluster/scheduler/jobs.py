"""A live job: what it asked for, which tasks it has, and where they may run."""

from asyncio import Lock
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any, Literal, NamedTuple

from dask_hpc.dask import GATE, JobPlaces, Wishes
from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Indices
from dask_hpc.planning.figures import JobFigures

#: so many tasks must have ended since the last change of size before anything is concluded from them
ENOUGH = 10
#: and this share of the work must be done before an end is expected
ENOUGH_DONE = 0.05
#: prefixes of one job that are told apart even if nothing is left of them
KINDS = 1000
_ASIDE = 100  # keys that are not sorted, or void, in any row of ready tasks
#: an end that is expected is corrected if it is off by more than this share of the time that is left
_OFF = 0.1


@dataclass(slots=True)
class Work:
    """Tasks of one prefix in one job: how many are left, how many are done, and their compute seconds."""

    prefix: str
    left: int = 0
    done: int = 0
    seconds: float = 0.0
    #: whether Dask marks them as tasks that make data, such as by reading a file
    makes_data: bool = False


@dataclass(slots=True)
class Performance:
    """Of one job. Seconds are sums over all tasks; transfers may overlap with computing."""

    #: by prefix of the task names
    works: dict[str, Work] = field(default_factory=dict)
    compute: float = 0.0
    transfer: float = 0.0
    disk: float = 0.0
    #: results, and their bytes
    tasks: int = 0
    nbytes: int = 0
    # compute seconds of prefixes that are not told apart any more; at how many the next are forgotten
    _forgotten: float = 0.0
    _most_works: int = KINDS
    # at how many results somebody should look
    _telling: int = ENOUGH
    # what there was when the job came to its present size, and when that was
    _since: float = 0.0
    _tasks_before: int = 0
    _compute_before: float = 0.0
    _transfer_before: float = 0.0
    _noted: int = 0

    def work(self, prefix: str) -> Work:
        """The tasks of that prefix."""
        work = self.works.get(prefix)
        if work is None:
            if len(self.works) >= self._most_works:
                self._forget_works()
            work = self.works[prefix] = Work(prefix)
        return work

    def _forget_works(self) -> None:
        """Where every task has a name of its own there are as many prefixes: the oldest of which nothing is
        left are forgotten."""
        over = [work for work in self.works.values() if not work.left]
        for work in over[: max(0, len(over) - KINDS // 2)]:
            self._forgotten += work.seconds
            del self.works[work.prefix]
        self._most_works = len(self.works) + KINDS // 2

    def add(self, work: Work, startstops: Iterable[Mapping[str, Any]], nbytes: int) -> bool:
        """A task has a result, and Dask says what its worker spent on it. Whether it is time to look:
        there is enough evidence about this size now, or twice as much as the last time."""
        self.tasks = tasks = self.tasks + 1
        self.nbytes += nbytes
        work.done += 1
        for one in startstops:
            action, seconds = one["action"], one["stop"] - one["start"]
            if action == "compute":
                self.compute += seconds
                work.seconds += seconds
            elif action == "transfer":
                self.transfer += seconds
            elif action in ("disk-read", "disk-write"):
                self.disk += seconds
        if tasks < self._telling:
            return False
        self._telling = 2 * tasks - self._tasks_before
        return True

    def resized(self, now: float) -> None:
        """The job has another size from now on: what was seen before says nothing about it."""
        self._telling = self.tasks + ENOUGH
        self._tasks_before = self.tasks
        self._since = now
        self._compute_before = self.compute
        self._transfer_before = self.transfer

    @property
    def _is_enough(self) -> bool:
        return self.tasks - self._tasks_before >= ENOUGH

    @property
    def mtct(self) -> float | None:
        """Communication over compute time since the last change of size; None without enough evidence."""
        compute = self.compute - self._compute_before
        if not self._is_enough or compute <= 0:
            return None
        return (self.transfer - self._transfer_before) / compute

    def io_share(self, of_tasks: Callable[[Work], float]) -> float | None:
        """The share of all of the job's time in which it read and wrote files; None without enough evidence.
        ``of_tasks``: that of the time which tasks of a prefix computed, as Dask says."""
        busy = self.compute - self._forgotten + self.transfer + self.disk
        if self.tasks < ENOUGH or busy <= 0:
            return None
        files = sum(work.seconds * of_tasks(work) for work in self.works.values() if work.seconds)
        return min(1.0, (files + self.disk) / busy)

    def seconds_left(self, expected: Callable[[str], float | None]) -> float:
        """Compute seconds of the tasks that are left, by the mean of their prefix: in this job, else as
        ``expected`` anywhere, else by the mean of all that are done."""
        mean = self.compute / self.tasks if self.tasks else 0.0
        total = 0.0
        for work in self.works.values():
            if work.left:
                if work.done:
                    one = work.seconds / work.done
                else:
                    known = expected(work.prefix)
                    one = mean if known is None else known
                total += work.left * one
        return total

    def progress(self, expected: Callable[[str], float | None]) -> float | None:
        """The share of the known work that is done; None if nothing is known yet."""
        if not self.tasks:
            return None
        left = self.seconds_left(expected)
        if self.compute + left > 0:
            return self.compute / (self.compute + left)
        return self.tasks / (self.tasks + sum(work.left for work in self.works.values()))

    def time_left(self, now: float, expected: Callable[[str], float | None]) -> float | None:
        """Seconds until the known work is done, at the pace since the last change of size; None unless
        ``ENOUGH`` tasks have ended since then and ``ENOUGH_DONE`` of the work is done."""
        pace = (self.compute - self._compute_before) / max(now - self._since, 1e-3)
        if not self._is_enough or pace <= 0 or (self.progress(expected) or 0.0) < ENOUGH_DONE:
            return None
        return self.seconds_left(expected) / pace

    def note(
        self, job_id: str, mtct: float | None, indices: Indices, expected: Callable[[str], float | None]
    ) -> None:
        """Tell the indices what is new of a running job. A walltime stays the user's word."""
        if mtct is not None:
            indices.mtct[job_id] = mtct
        if self.tasks == self._noted:
            return
        self._noted = self.tasks
        progress = self.progress(expected)
        if progress is not None:
            indices.progress[job_id] = progress
        running = indices.running[job_id]
        if running.job.walltime < inf:
            return
        left = self.time_left(indices.now, expected)
        if left is not None and not abs(indices.now + left - running.expected_end) <= _OFF * left:
            indices.expect_end(job_id, indices.now + left)


class _Late(NamedTuple):
    """A key that came out of order."""

    priority: Any
    arrival: int
    key: Hashable


_NOT_THERE = object()


class Ready:
    """Keys by priority, and by arrival among equals. About 60 bytes for each: a job may have a million. What
    comes out of order waits aside until somebody asks for the best; then few go to a heap, of 100 bytes more
    for each, and many are sorted together with all others."""

    __slots__ = ("_arrivals", "_last", "_late", "_new", "_row", "_void", "_waiting")

    def __init__(self) -> None:
        #: each key that waits, with its priority, or with its entry in the heap
        self._waiting: dict[Hashable, Any] = {}
        #: keys in order, and the priority of the last; among equals they go before those of the heap
        self._row: deque[Hashable] = deque()
        self._last: Any = None
        #: how many entries of the row are void of a key, the first ones
        self._void: dict[Hashable, int] = {}
        #: those that came out of order since somebody asked
        self._new: dict[Hashable, None] = {}
        #: a heap of those that did before; what is not in ``_waiting`` is void
        self._late: list[_Late] = []
        self._arrivals = 0

    def add(self, priority: Any, key: Hashable) -> None:
        """One more. Adding it again replaces it."""
        if key in self._waiting:
            self.discard(key)
        if not self._waiting:
            self.clear()
        self._waiting[key] = priority
        if not self._new and (self._last is None or priority >= self._last):
            self._last = priority
            self._row.append(key)
        else:
            self._new[key] = None
            if len(self._new) > len(self._row) + _ASIDE:
                self._sort()

    def discard(self, key: Hashable) -> None:
        """It waits no more."""
        found = self._waiting.pop(key, _NOT_THERE)
        if found is _NOT_THERE:
            return
        if key in self._new:
            del self._new[key]
        elif type(found) is not _Late:
            self._void[key] = self._void.get(key, 0) + 1
        if len(self._row) + len(self._late) > 2 * len(self._waiting) + _ASIDE:
            self._sort()

    def first(self) -> tuple[Any, Hashable] | None:
        """The best, with its priority, or None."""
        if self._new:
            self._find_places()
        row, late, waiting = self._row, self._late, self._waiting
        while row and self._void and self._is_void(row[0]):
            row.popleft()
        while late and waiting.get(late[0].key) is not late[0]:
            heappop(late)
        if row and (not late or waiting[row[0]] <= late[0].priority):
            return waiting[row[0]], row[0]
        return (late[0].priority, late[0].key) if late else None

    def pop(self) -> Hashable | None:
        """Take the best out, or None."""
        best = self.first()
        if best is None:
            return None
        if type(self._waiting.pop(best[1])) is _Late:
            heappop(self._late)
        else:
            self._row.popleft()
        return best[1]

    def clear(self) -> None:
        """Nothing waits any more."""
        for known in (self._waiting, self._row, self._void, self._new, self._late):
            known.clear()
        self._last = None

    def _find_places(self) -> None:
        """For what came out of order."""
        if 8 * (len(self._new) + len(self._late)) > len(self._row):
            self._sort()
            return
        for key in self._new:
            self._arrivals += 1
            late = self._waiting[key] = _Late(self._waiting[key], self._arrivals, key)
            heappush(self._late, late)
        self._new.clear()

    def _sort(self) -> None:
        """All are in one row, and nothing is void."""
        waiting = self._waiting
        keys = [key for key in self._row if not self._is_void(key)]
        for late in sorted(late for late in self._late if waiting.get(late.key) is late):
            waiting[late.key] = late.priority
            keys.append(late.key)
        keys += self._new
        keys.sort(key=waiting.__getitem__)
        self._row, self._late = deque(keys), []
        self._new.clear()
        self._last = waiting[keys[-1]] if keys else None

    def _is_void(self, key: Hashable) -> bool:
        """Of the first entry of the row with this key, which is then taken out."""
        count = self._void.pop(key, 0)
        if count > 1:
            self._void[key] = count - 1
        return count > 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._waiting

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._waiting)


#: "done" is over, however it ended
State = Literal["waiting", "running", "done"]
Outcome = Literal["", "done", "failed", "cancelled"]

_ERRORS = 10  # of a job's tasks that are remembered


class LiveJob:
    """Mutable; owned by the control loop. Its gate set is shared by all its tasks."""

    def __init__(self, name: str, model: Job, arrival: int, layout: str = "", login: str = "") -> None:
        self.name = name
        self.model = model
        #: how its arrays lie on its nodes, if it has said so
        self.layout = layout
        #: who runs its client, as the client says; policies look at the user that the job names
        self.login = login
        #: whether its walltime is to follow from past runs; what is to follow it if it takes longer, and why
        self.wants_walltime = False
        self.walltimes: tuple[float, ...] = ()
        self.walltime_why = ""
        #: its place in the queue among equals; given back if it has to wait again
        self.arrival = arrival
        #: how far it goes ahead of the queue, if it was stopped
        self.ahead = 0
        self.state: State = "waiting"
        #: why it was decided what was decided of it last
        self.reason = ""
        self.nodes: tuple[str, ...] = ()
        self.started: float | None = None
        self.ended: float | None = None
        self.renew()
        #: whoever moves its results: two plans for them at once would undo each other
        self.moving = Lock()
        #: the tasks somebody still waits for, and those of them that Dask can place nowhere now
        self.unfinished: dict[Hashable, Work] = {}
        self.held: dict[Hashable, None] = {}
        #: what they cost
        self.performance = Performance()
        #: how long it waited and took, and what its last change of size cost
        self.figures = JobFigures(model.submitted, model.nodes)
        #: what the user said about single tasks
        self.wishes: dict[Hashable, Wishes] = {}
        #: the clients that submitted it, and whether its context is closed
        self.clients: set[str] = set()
        self.closed = False
        #: the clients in its own tasks that submit more of it
        self.helpers: set[str] = set()
        #: when its last task so far was done
        self.rests_since = -inf
        #: whether somebody cancelled it: what still arrives of it is cancelled, too
        self.is_cancelled = False
        #: how many of its tasks were not done then
        self.undone = 0
        #: its tasks that raised, or need one that did, and were not tried again; of those that Dask has
        #: forgotten, how many that were
        self.failed: set[Hashable] = set()
        self._failed_before = 0
        #: what the first of them raised, in one line, and of one that is forgotten
        self._errors: dict[Hashable, str] = {}
        self._error_before = ""
        #: how it ended, if it is over, and when it was known to have ended otherwise
        self.outcome: Outcome = ""
        self.corrected = -inf
        #: why somebody wants it not to start, if so
        self.kept_back = ""
        #: id of the job of the script it belongs to; that of a script's own job is its own
        self.script = ""
        #: tasks of other jobs that it needs, and those jobs
        self.needs: set[Hashable] = set()
        self.producers: set[LiveJob] = set()

    def renew(self) -> None:
        """It waits, and of what it had nothing is left."""
        #: addresses of the workers it holds
        self.workers: set[str] = set()
        #: whether its tasks start on these only; not so if there are no others
        self.confined = True
        #: the one set of addresses that restricts all its tasks; editing it in place moves them all.
        #: Empty if the job is not confined, or done
        self.gate: set[str] = JobPlaces({GATE})
        #: the set that restricts its root tasks while they are not in flight
        self.wave: set[str] = {GATE}
        #: root tasks: those that wait for a slot, and those that carry the gate: in flight, or handed to Dask
        self.ready = Ready()
        self.passed: set[Hashable] = set()

    def __repr__(self) -> str:
        return f"<LiveJob {self.model.id}: {self.state}, {len(self.unfinished)} unfinished tasks>"

    @property
    def id(self) -> str:
        """Unique among all jobs of the cluster."""
        return self.model.id

    @property
    def deadline(self) -> float:
        """On the clock of the management; infinite if it has none."""
        return inf if self.model.deadline is None else self.model.deadline

    def owe(self, key: Hashable, prefix: str, makes_data: bool = False) -> None:
        """Somebody waits for a task of it."""
        if key not in self.unfinished:
            work = self.unfinished[key] = self.performance.work(prefix)
            work.left += 1
            work.makes_data |= makes_data

    def settle(self, key: Hashable) -> Work | None:
        """Nobody waits for a task any more; answers what it was a part of, if somebody did."""
        work = self.unfinished.pop(key, None)
        if work is not None:
            work.left -= 1
        return work

    def forget(self, key: Hashable) -> None:
        """Dask forgot a task of it."""
        self.wishes.pop(key, None)
        if key in self.failed:
            self._error_before = self._error_before or self._errors.get(key, "")
            self.tries_again(key)
            self._failed_before += 1

    def fails(self, key: Hashable, error: str) -> None:
        """A task of it raised, or needs one that did."""
        self.failed.add(key)
        if len(self._errors) < _ERRORS:
            self._errors[key] = error

    def tries_again(self, key: Hashable) -> None:
        """A task of it that may have failed has not, so far."""
        self.failed.discard(key)
        self._errors.pop(key, None)

    @property
    def error(self) -> str:
        """The first line of the first error of its tasks; empty if none failed."""
        return self._error_before or next(iter(self._errors.values()), "")

    @property
    def ends_as(self) -> Outcome:
        """How it ended, if that was now. One that gives way goes on, perhaps."""
        if self.is_cancelled:
            return "cancelled"
        return "failed" if self.failures and (self.closed or not self.gives_way) else "done"

    @property
    def told_state(self) -> str:
        """What people are told of it: of one that is over, how it ended."""
        return self.outcome or self.state

    @property
    def failures(self) -> int:
        """How many of its tasks failed."""
        return len(self.failed) + self._failed_before

    @property
    def gives_way(self) -> bool:
        """Whether it leaves its nodes when it has nothing to run and others wait, though it is not over."""
        return self.script == self.id

    @property
    def blocking(self) -> "LiveJob | None":
        """A job that has to start before this one may be offered to the policy, or None."""
        return min(
            (job for job in self.producers if job.state == "waiting" and job.unfinished),
            key=lambda job: job.arrival,
            default=None,
        )

    def waits_for(self, other: "LiveJob") -> bool:
        """Whether, through any chain of producers, this job needs the other."""
        seen, todo = set(), [self]
        while todo:
            job = todo.pop()
            if job is other:
                return True
            if job not in seen:
                seen.add(job)
                todo.extend(job.producers)
        return False
