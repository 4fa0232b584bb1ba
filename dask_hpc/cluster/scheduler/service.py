"""The contract by which services join a managed cluster, and what all its parts share.

A service is a room that adds a capability: it hears what happens, adds facts to what decisions look at,
carries out its part of plans, and shows what it knows. ``dask_hpc.services`` lists them; the core names none.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Coroutine, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from math import inf
from time import monotonic, time
from typing import Any, ClassVar, TypeVar

from dask_hpc import dask as compat
from dask_hpc.cluster.request import NAME
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.model.lending import ToService
from dask_hpc.model.node import Node, Nodes
from dask_hpc.model.plan import Plan
from dask_hpc.model.snapshot import Indices, Running, Snapshot
from dask_hpc.model.story import Explanation, Happening, Story
from dask_hpc.policy import Policy, Recorded

logger = logging.getLogger(__name__)

Part = TypeVar("Part")
#: samples of one metric: amounts by the values of its labels (of a single label the value itself, of none "")
Samples = dict[Any, float]

_PATIENCE = 5.0  # seconds that workers have to hear of a setting
_RECORDED = 200  # decisions that are kept with all they were made from
_LEAST = 0.001  # seconds of a timer


class Guard:
    """What the parts of a plugin share: the scheduler, each other, and what becomes of errors of ours. Too
    many of them, and it gives up."""

    #: of whose errors, in the story; and what is told when it gives up after so many
    concern = ""
    farewell = "it is off after {} errors"

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.is_on = False
        #: of our own, or of a policy, since it was switched on
        self.errors = 0
        self._parts: list[object] = []
        self._tasks: set[asyncio.Task[None]] = set()  # the event loop alone would not keep them alive
        #: what is to happen when there were too many errors
        self.give_up: Callable[[str], None] = lambda reason: None

    @property
    def most_errors(self) -> int:
        """So many, and it gives up."""
        return 10

    def tell(self, decision: str, reason: str) -> None:
        """Add to the story."""
        raise NotImplementedError

    def add(self, part: Part) -> Part:
        """A part that others may ask for."""
        self._parts.append(part)
        return part

    def find(self, kind: type[Part]) -> Part | None:
        """The part of this type, if there is one."""
        return next((part for part in self._parts if isinstance(part, kind)), None)

    def get(self, kind: type[Part]) -> Part:
        """The part of this type, which is there."""
        found = self.find(kind)
        if found is None:
            raise LookupError(f"no {kind.__name__} here")
        return found

    def count_error(self, where: str, error: BaseException) -> None:
        """One more error of ours. The last one that is allowed switches us off."""
        logger.error("dask-hpc: error in %s", where, exc_info=error)
        self.errors += 1
        is_last = self.is_on and self.errors >= self.most_errors
        self.is_on = self.is_on and not is_last  # before it is told: what fails then may be who hears of it
        self.tell("error", f"{self.concern}in {where}: {type(error).__name__}: {error}")
        if is_last:
            # We may be inside one of Dask's transitions, where no other may be asked for.
            self.scheduler.loop.add_callback(self.give_up, self.farewell.format(self.errors))

    def hook_failed(self, where: str, error: Exception, again: Callable[[], object]) -> None:
        """A hook of Dask's did, and could be called again."""
        self.count_error(where, error)

    def do(self, where: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do this beside all else. An error of it is counted."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, where))
        return task

    def _ended(self, where: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.count_error(where, error)


def guarded(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook of Dask's: errors of ours stay ours, and nothing is done when it is off."""

    @wraps(hook)
    def safe(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_on:
            try:
                return hook(self, *args, **kwargs)
            except Exception as error:
                self.hook_failed(hook.__name__, error, partial(safe, self, *args, **kwargs))
        return None

    return safe


class Context(Guard):
    """What the parts of one managed cluster share: scheduler, clock, story, the policy in force, and who is
    where. It lasts as long as the management; ``renew`` begins anew after errors switched control off."""

    farewell = "control is off after {} errors; all tasks run as in plain Dask"
    nodes: Nodes
    indices: Indices
    #: all jobs by id, in order of submission; of those that are done only the newest
    jobs: dict[str, LiveJob]
    #: the job of every task of every job
    owner: dict[Hashable, LiveJob]
    #: the newest decisions, each of which can be made again
    recorded: deque[Recorded]

    def __init__(self, scheduler: Any, policy: Policy, settings: Mapping[str, Any]) -> None:
        super().__init__(scheduler)
        self.policy = policy
        #: the configuration's keys under ``hpc``, as they are now
        self.settings = settings
        since = monotonic()
        #: seconds of the management; a test may have another clock
        self.clock: Callable[[], float] = lambda: monotonic() - since
        #: in wall-clock seconds: another management of the same cluster began at another time
        self.began = time()
        self.story = Story(settings["story-length"])
        #: decisions are made and told, and nothing is done
        self.is_dry: bool = settings["dry-run"]
        #: whether somebody wants nothing to be decided
        self.is_paused = False
        #: until when a unit that was asked for may come at any moment, by ``clock``
        self.comes_until = -inf
        self.services: list[Service] = []
        #: the services that hear of moves of tasks now, and of which: ``watch`` and ``unwatch`` change it
        self.watching: list[tuple[Service, Container[Hashable]]] = []
        self._lasting: list[object] = []
        #: whether a decision follows, and since when
        self.is_awake = False
        self._woken = 0.0
        #: when that happened which the decision under way is about; None if none is
        self.woken: float | None = None
        #: what ``wake`` asks for
        self.decide: Callable[[], None] = lambda: None

    @property
    def most_errors(self) -> int:
        """As configured."""
        found: int = self.settings["max-errors"]
        return found

    def renew(self) -> None:
        """Nothing is known but the workers that are connected."""
        self.nodes = Nodes.of(self.settings["node"], compat.worker_identities(self.scheduler))
        self.indices = Indices((Node(name) for name in self.nodes), self.policy.queue, self.clock())
        self.indices.picker = self.policy.nodes
        self.jobs = {}
        self.owner = {}
        self.recorded = deque(maxlen=_RECORDED)
        self._parts = []
        self.watching.clear()
        self.errors = 0
        self.is_paused = self.is_awake = False

    # who is there

    def add(self, part: Part, lasts: bool = False) -> Part:
        """A part of the core that others may ask for, until control is switched on anew or for good."""
        (self._lasting if lasts else self._parts).append(part)
        return part

    def find(self, kind: type[Part]) -> Part | None:
        """The service or part of this type, if there is one."""
        found = (part for part in (*self._parts, *self._lasting, *self.services) if isinstance(part, kind))
        return next(found, None)

    def watch(self, service: "Service", tasks: Container[Hashable]) -> None:
        """From now on ``task_moves`` of the service hears of these tasks, whatever they are by then."""
        self.unwatch(service)
        self.watching.append((service, tasks))

    def unwatch(self, service: "Service") -> None:
        """It hears of none any more."""
        self.watching[:] = [found for found in self.watching if found[0] is not service]

    def each(self, where: str, act: "Callable[[Service], object]") -> None:
        """All services hear of something. An error of one is counted and keeps nothing from the others; and
        as a lost event could make somebody wait for ever, it then hears of it again."""
        for service in self.services:
            self._one(service, where, act)

    def _one(self, service: "Service", where: str, act: "Callable[[Service], object]") -> None:
        try:
            act(service)
        except Exception as error:
            self.count_error(f"{where} ({type(service).__name__})", error)
            if self.is_on:
                self.scheduler.loop.add_callback(self._one, service, where, act)

    def record(self, strategy: Any, question: Any, memory: Any, answer: Any) -> None:
        """A strategy was asked this, and its answer is carried out."""
        self.recorded.append(Recorded(self.indices.revision, strategy, question, memory, answer))

    # what is told

    def tell(self, decision: str, reason: str, why: Explanation | None = None) -> None:
        """Add to the story."""
        self.tell_of(decision, reason=reason, why=why)

    def tell_of(
        self,
        decision: str,
        job: LiveJob | None = None,
        nodes: tuple[str, ...] = (),
        reason: str = "",
        why: Explanation | None = None,
    ) -> None:
        """Add to the story what happened to a job or to nodes."""
        number, job_id = self.indices.revision, job.id if job else ""
        self.story.tell(Happening(number, self.clock(), decision, job_id, nodes, reason, why))

    # what is so

    def ask_about(self, job: LiveJob) -> None:
        """Services may know more of a job than its user said."""
        self.each("knows_of", lambda service: self.learn_of(job, **service.knows_of(job)))

    def learn_of(self, job: LiveJob, **known: Any) -> None:
        """More is known of a job: these fields of its description."""
        if known:
            job.model = replace(job.model, **known)
            self.indices.describe(job.model)

    def wake(self) -> None:
        """Something happened: decide once, when this turn of the event loop is over."""
        if not self.is_awake:
            self.is_awake = True
            self._woken = self.clock()
            self.scheduler.loop.add_callback(self._turn_ends)

    def _turn_ends(self) -> None:
        self.is_awake = False
        self.woken = self._woken
        self.decide()
        self.woken = None

    @property
    def epoch(self) -> float:
        """Wall-clock seconds at time 0 of the clock, as of now: machines are suspended, and set right."""
        return round(time() - self.clock(), 1)

    def look_at_the_clock(self) -> None:
        """It is now."""
        self.indices.now = self.clock()

    def snapshot(self, policy: Policy | None = None, indices: Indices | None = None) -> Snapshot:
        """What a decision by this policy looks at; by default the one in force, now."""
        facts: dict[str, Any] = {}
        for service in self.services:
            facts |= service.facts(policy or self.policy)
        return Snapshot(indices or self.indices, **facts)

    @property
    def drain(self) -> float:
        """Seconds that running tasks are waited for where nodes or workers leave."""
        seconds: float = self.settings["drain"]
        return seconds

    def waiting_jobs(self) -> Iterator[LiveJob]:
        """Those that have not started."""
        return (job for job in self.jobs.values() if job.state == "waiting")

    def running_jobs(self) -> Iterator[LiveJob]:
        """Those that hold nodes."""
        return (self.jobs[job_id] for job_id in self.indices.running)

    def holders(self) -> dict[str, LiveJob]:
        """The running job of every node that is allotted."""
        return {name: job for job in self.running_jobs() for name in job.nodes}

    def staying(self, running: Running) -> Iterator[str]:
        """Addresses of the workers on the nodes that the job is not giving up."""
        return (w for name in running.nodes[: running.target] for w in self.nodes.workers(name))

    def workers_of(self, job: LiveJob) -> list[str]:
        """The workers of a running job, without those it is giving up; none if it does not run."""
        running = self.indices.running.get(job.id)
        return list(self.staying(running)) if running else []

    def groups(self) -> Iterator[tuple[LiveJob | None, list[str]]]:
        """The running jobs with their workers, and None with the workers of no running job."""
        free = dict.fromkeys(self.nodes)
        for job in self.running_jobs():
            yield job, self.workers_of(job)
            for name in job.nodes:
                free.pop(name, None)
        yield None, [address for name in free for address in self.nodes.workers(name)]


def context_of(scheduler: Any) -> Context | None:
    """What is shared on a managed scheduler; None on one that is not managed."""
    plugin = scheduler.plugins.get(NAME)
    return plugin.context if isinstance(plugin, Managed) else None


class Managed:
    """What a scheduler plugin that manages its cluster has."""

    context: Context


class Timer:
    """Calls a function later, once. An error of it is counted. The last time that is set is the one."""

    def __init__(self, context: Guard, where: str, act: Callable[[], None]) -> None:
        self._context = context
        self._where = where
        self._act = act
        self._handle: Any = None

    @property
    def is_set(self) -> bool:
        """Whether it will call."""
        return self._handle is not None

    def set(self, seconds: float) -> None:
        """Call in so many seconds, and not when it was said before. Never at once: what is left by rounding
        may be less than a clock shows, and who is called too early sets it again and again."""
        self.stop()
        self._handle = self._context.scheduler.loop.call_later(max(seconds, _LEAST), self._call)

    def stop(self) -> None:
        """Do not call."""
        if self._handle is not None:
            self._context.scheduler.loop.remove_timeout(self._handle)
            self._handle = None

    def _call(self) -> None:
        self._handle = None
        try:
            self._act()
        except Exception as error:
            self._context.count_error(self._where, error)


class WorkerSetting:
    """One value that all workers, or their nannies, are to have, now and later: it travels as a plugin, made
    of the value (several of a tuple); with the ``normal`` one they have none. They hear of a change a moment
    later, and of the last one if several come at once.
    """

    def __init__(self, context: Context, plugin: type[Any], normal: Any = None) -> None:
        self._context = context
        self._scheduler = context.scheduler
        self._plugin = plugin
        self._normal = self._told = normal
        #: what is in force
        self.value = normal
        self._telling: asyncio.Task[None] | None = None

    def set(self, value: Any) -> None:
        """From now on this."""
        self.value = value
        if self._telling is None and value != self._told:
            self._telling = self._context.do(f"telling workers ({self._plugin.name})", self._tell_workers())

    async def settle(self) -> None:
        """The workers have heard of it, or had time to."""
        if self._telling is not None:
            await asyncio.wait([self._telling], timeout=_PATIENCE)

    def cancel(self) -> None:
        """The scheduler closes: nothing of ours goes on."""
        if self._telling is not None:
            self._telling.cancel()

    async def _tell_workers(self) -> None:
        try:
            while self._told != self.value:
                self._told = self.value
                with suppress(OSError):  # a worker that does not answer, or has gone
                    async with asyncio.timeout(_PATIENCE):
                        await self._tell(self._told)
        finally:
            self._telling = None

    async def _tell(self, value: Any) -> None:
        if value != self._normal:
            plugin = self._plugin(*value) if isinstance(value, tuple) else self._plugin(value)
            await compat.replace_worker_plugin(self._scheduler, plugin)
        else:
            await compat.remove_worker_plugin(self._scheduler, self._plugin.name)


class Shelter:
    """Where workers that leave put results that nobody else can take. Without a service there is none."""

    #: what a worker writes with, pickled to it; None if nothing can be written
    for_workers: Any = None

    def takes(self, key: Hashable) -> bool:
        """Whether to ask for that result."""
        return False

    def wrote(self, keys: Iterable[Hashable]) -> None:
        """A worker put these results there."""

    def failed(self, address: str, problem: str) -> None:
        """This worker could not put there all it was asked for."""

    def missing(self, keys: Iterable[Hashable]) -> list[Hashable]:
        """Those of the keys that have to be computed again if they are lost."""
        return list(keys)


class Service:
    """A capability of a managed cluster. By default it hears everything and does nothing.

    Its life: made once; ``begin`` and ``release`` whenever control is switched on and off; ``start`` when all
    else stands; at the end of the management ``release``, ``settle``, ``close``; when the scheduler closes,
    ``cancel`` instead.
    """

    #: name -> whether it only grows, what it is, by which labels samples are told apart
    metrics: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    #: parts of its status that a feed may ask for -> their keys in the answer
    parts: ClassVar[Mapping[str, str]] = {}
    #: key of its own in every feed, if it has something to be read on
    feed_key: ClassVar[str] = ""
    #: why it holds nodes that jobs may have all the same
    hold_reason: ClassVar[str] = ""
    #: what is on the nodes that an adaptive cluster needs for its sake: see ``nodes_wanted``
    nodes_for: ClassVar[str] = ""
    #: under which name it asks for nodes of its own, if it does: see ``NodeDesk``
    borrows: ClassVar[str] = ""
    #: takes what leaving workers cannot hand over
    shelter: Shelter | None = None

    def __init__(self, context: Context) -> None:
        self.context = context

    def begin(self) -> None:
        """Control is switched on: jobs and nodes are known anew."""

    def start(self) -> None:
        """The cluster is managed."""

    def release(self) -> None:
        """Control ends, or is switched off: let go of everything."""

    async def settle(self) -> None:
        """What ``release`` began is done."""

    def close(self) -> None:
        """The management is over: nothing is left behind."""

    def cancel(self) -> None:
        """The scheduler closes: nothing goes on."""

    # what happens

    def graph_arrives(self, tasks: list[Hashable]) -> None:
        """Tasks were submitted; jobs have taken theirs, and none has moved yet."""

    def task_moves(self, key: Hashable, start: str, finish: str) -> None:
        """One of the tasks that it watches (``context.watch``) changed its state."""

    def tasks_vanish(self) -> None:
        """Dask cleared all its tasks."""

    def worker_joins(self, address: str) -> None:
        """A worker connected; nothing has been sent to it yet."""

    def worker_leaves(self, address: str) -> None:
        """A worker is gone."""

    def worker_dies(self, address: str, tasks: list[Hashable]) -> None:
        """A worker is about to be gone that did not say good-bye; it had been given these tasks."""

    def log_event(self, topic: str, message: Any) -> None:
        """Something was logged."""

    def policy_changes(self) -> None:
        """Another policy, or other settings, are in force."""

    def nodes_given(self, nodes: tuple[str, ...]) -> None:
        """A job gets these nodes."""

    def job_ends(self, job: LiveJob) -> None:
        """A job that ran is over; it still has what it had."""

    def loop_ends(self, name: str, run: Mapping[str, Any]) -> None:
        """The loop of a program of that name is over: how long it took on how many nodes, and what else is
        known of it. It may be that of a job of the same name."""

    # what decisions look at

    def refresh(self) -> None:
        """Before a decision: what it adds to the indices is as of now."""

    def decides(self) -> None:
        """A decision is made from what is so now."""

    def facts(self, policy: Policy) -> Mapping[str, Any]:
        """What a snapshot for this policy has besides the indices."""
        return {}

    def knows_of(self, job: LiveJob) -> Mapping[str, Any]:
        """What it adds to the description of a job that was just submitted: fields of ``Job``."""
        return {}

    def file_share(self, name: str, makes_data: bool) -> float:
        """The share of their time that tasks of that name (Dask's prefix) read and write files, if it knows;
        Dask counts that as computing. ``makes_data``: Dask marks them as producers of data."""
        return 0.0

    def prepare(self, indices: Indices, policy: Policy) -> None:
        """Add to these indices what another policy than the one in force would look at."""

    def freeze(self, snapshot: Snapshot) -> None:
        """Take out of a lasting snapshot what is the policy's own."""

    def foresees(self, policy: Policy) -> Iterable[tuple[str, str]]:
        """What it would do now under this policy, by no plan: decisions and their reasons."""
        return ()

    # what is done

    def carry_out(self, plan: Plan, snapshot: Snapshot) -> None:
        """Its part of a plan that was made from this snapshot."""

    def keep(self) -> None:
        """After a decision: what earlier plans said is still so."""

    def keeps_first(
        self, is_theirs: Callable[[Hashable], bool], at_once: bool, done: Callable[[], None]
    ) -> bool:
        """A job with these results is to stop. Whether they are kept first, at once or when they are anyway;
        then ``done`` is called when they are, or cannot be."""
        return False

    # what it answers

    def for_jobs(self, tasks: list[Hashable]) -> list[Hashable]:
        """Of the tasks of a graph, those that may belong to a job."""
        return tasks

    def not_safe(self, keys: list[Hashable]) -> list[Hashable]:
        """Those of the results that have to be computed again if they are lost."""
        return keys

    def hears_who_leaves(self) -> bool:
        """Whether it binds tasks to workers, hears which of them leave, and moves away."""
        return False

    async def drain(self, addresses: Iterable[str]) -> None:
        """These workers leave: others take over what they have for it."""

    def watts(self) -> Mapping[str, float]:
        """What each node draws, if it knows."""
        return {}

    def seen_watts(self) -> Mapping[str, float]:
        """The same, if somebody looks at it now."""
        return {}

    def threads_of(self, address: str) -> int:
        """The threads that a worker came with, if it has others now; else 0."""
        return 0

    def most_nodes(self) -> float:
        """How many nodes an adaptive cluster may have."""
        return inf

    def gives_nodes_back(self) -> bool:
        """Whether an adaptive cluster is to have fewer nodes for its sake."""
        return False

    def nodes_wanted(self) -> int:
        """How many nodes an adaptive cluster needs for its sake."""
        return 0

    def hear_of_nodes(self, message: ToService) -> None:
        """It is to use nodes, or to give some back, or hears how many are idle."""

    def free_of_nodes(self) -> Mapping[str, float]:
        """Of each node that is lent to it, the share of what it can keep there that is empty."""
        return {}

    def cluster_asks(self, asker: str, interval: float, spare: int) -> None:
        """A cluster object asks every so often what to do about its size, and has so many idle nodes."""

    # what is shown

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        """Its remote calls, by name. Their answers are plain data; bad input is an ``InputError``."""
        return {}

    def status(self) -> Mapping[str, Any]:
        """What it adds to the status, by key."""
        return {}

    def part(self, name: str) -> Any:
        """One of its ``parts``."""
        return self.status()[name]

    def feed(self, read: Any) -> Any:
        """What is new for a reader who has read so much."""

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        """Its metrics now, by name, from the cluster's status."""
        return {}

    def of_job(self, job: LiveJob) -> Mapping[str, Any]:
        """What it adds to what is told of a job."""
        return {}

    def why_waits(self, job: LiveJob) -> str:
        """Why a job waits although nodes are idle and it is its turn, if it is because of this service."""
        return ""
