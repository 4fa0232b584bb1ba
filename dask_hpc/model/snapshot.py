"""A read-only view of everything a decision may look at, at one instant."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from dask_hpc.model.job import Job, stretch
from dask_hpc.model.node import Borrower, Lent, Node, NodeWish
from dask_hpc.model.plan import Plan
from dask_hpc.model.power import Corridor, PowerView
from dask_hpc.model.resizable import Resizable, Scope
from dask_hpc.model.speedup import smallest_legal
from dask_hpc.model.topology import Topology
from dask_hpc.model.waiting import Ranking, Waiting

#: how far a job that failed, or that was interrupted for one, goes ahead of the queue
FAILED, INTERRUPTED = 2, 1
#: seconds after which a job with nothing to run rests: between two steps of a program it is so for moments
REST = 0.5


class Running(NamedTuple):
    """A job that runs: its allotment and when it is expected to end, by its walltime.

    A tuple, not a dataclass, because a replay makes one for every job and that shows.
    """

    job: Job
    nodes: tuple[str, ...]
    started: float
    expected_end: float
    order: int
    #: the size it is on its way to, or None
    target: int | None = None
    #: how often it was given nodes
    growths: int = 0
    #: when it last began to change size: nobody is resized twice at one time, or plans could go on for ever
    resized_at: float = -inf


class Neighbourhood(NamedTuple):
    """What who picks nodes for a job sees of the machine. It is not to be changed."""

    nodes: Mapping[str, Node]
    #: the machine's network; None where nobody knows it
    topology: Topology | None = None
    #: the jobs that run, with the nodes they hold and what they send (``Job.traffic``)
    running: Mapping[str, Running] = {}


class Picked(NamedTuple):
    """Nodes for a job, and why these, where that is worth telling."""

    nodes: Sequence[str]
    reason: str = ""


class Picker(Protocol):
    """Chooses nodes for a job: see ``NodesStrategy``."""

    def pick(
        self, job: Job, count: int, idle: Sequence[str], held: Sequence[str], around: Neighbourhood
    ) -> Picked:
        """So many of the idle nodes, in order."""


class Indices:
    """Mutable; owned by one body. Strategies see it through a ``Snapshot``."""

    __slots__ = ("borrowers", "by_end", "changing", "failed", "idle", "in_phase", "lacking", "mtct", "nodes",
                 "now", "overhead", "parts", "picked", "picker", "power", "progress", "requests", "resizable",
                 "resized_at", "resting", "revision", "running", "stopping", "topology", "waiting",
                 "withheld")  # fmt: skip

    def __init__(self, nodes: Iterable[Node] = (), order: Ranking | None = None, now: float = 0.0) -> None:
        self.now = now
        #: counts changes of what runs, of the nodes, and of jobs that leave or enter the queue sideways
        self.revision = 0
        self.nodes: dict[str, Node] = {node.name: node for node in nodes}
        self.idle: list[str] = list(self.nodes)[::-1]  # taken from the end: first nodes first
        #: how many nodes there are in each of the machine's outermost parts, and in an unknown one
        self.parts = Counter(node.place[:1] for node in self.nodes.values())
        #: who chooses nodes for jobs; None: the first that are idle
        self.picker: Picker | None = None
        #: why a job has just got the nodes it got, if there is something to tell
        self.picked = ""
        #: the machine's network, as far as it is known
        self.topology: Topology | None = None
        #: nodes that are there but not to be given away just now
        self.withheld: set[str] = set()
        self.waiting = Waiting(order)
        self.running: dict[str, Running] = {}
        self.by_end: list[tuple[float, int, Running]] = []
        #: running jobs whose size may change and is not changing just now
        self.resizable: Resizable[Running] = Resizable()
        #: running jobs that are changing their size just now
        self.changing: dict[str, Running] = {}
        #: those in the midst of a phase: they can change their size at their next scheduling point only
        self.in_phase: set[str] = set()
        #: when any job last began to change its size
        self.resized_at = -inf
        #: communication over compute time, as last measured, of running jobs
        self.mtct: dict[str, float] = {}
        #: the share of their work that running jobs have done, where a body knows it
        self.progress: dict[str, float] = {}
        #: the sizes that evolving jobs have asked for and not been answered
        self.requests: dict[str, int] = {}
        #: running jobs that have nothing to run just now, and since when
        self.resting: dict[str, float] = {}
        #: seconds that a job holds its nodes before and after its work, as far as the body knows
        self.overhead = 0.0
        #: jobs that lost a node in this very instant and wait again
        self.failed: tuple[str, ...] = ()
        #: jobs that lost nodes and run on with the others, and how many they lack
        self.lacking: dict[str, int] = {}
        #: running jobs that stop once they have kept their state, and for whom
        self.stopping: dict[str, str] = {}
        #: what is known of power, if anybody looks
        self.power: PowerView | None = None
        #: services that ask for nodes of their own, or have some
        self.borrowers: dict[str, Borrower] = {}

    def start(self, job_id: str, nodes: int) -> Running:
        """Move a job from the queue onto ``nodes`` idle nodes."""
        idle = self.idle
        if self.picker is None and 0 < nodes <= len(idle):  # as ``_take``
            self.picked = ""
            allotment = tuple(idle[: -nodes - 1 : -1])
            del idle[-nodes:]
        else:
            allotment = self._take(nodes, job_id, ())
        try:
            job = self.waiting.remove(job_id)
        except KeyError:
            self._free(allotment)
            raise
        now = self.now
        order = self.revision = self.revision + 1
        walltime = job.walltime if nodes == job.nodes else job.walltime_on(nodes)
        running = Running(job, allotment, now, now + walltime, order)
        self.running[job_id] = running
        if job.kind != "rigid" and job.resizable:
            self.resizable[job_id] = running
        insort(self.by_end, (running.expected_end, order, running))
        return running

    def end(self, job_id: str) -> Running:
        """A job is over, for whatever reason: its nodes become idle."""
        running = self._forget(job_id)
        if self.withheld:
            self._free(running.nodes)
        else:
            self.idle.extend(running.nodes[::-1])
        self.revision += 1
        return running

    def withdraw(self, job_id: str) -> Job:
        """A waiting job will never start: its owner cancelled it or went away."""
        self.revision += 1
        return self.waiting.remove(job_id)

    def requeue(self, job_id: str, arrival: int, ahead: int) -> Running:
        """A running job stops and waits again, in its old place or ahead of it."""
        running = self.end(job_id)
        self.waiting.add(running.job, arrival, ahead)
        return running

    def begin_resize(self, job_id: str, nodes: int, stall: float = 0.0) -> Running:
        """A job starts to change size. What it gains it holds from now on; what it gives it holds until
        ``finish_resize``. Its walltime was meant for its start size, so the end is expected anew."""
        old, now = self.running[job_id], self.now
        job, held, growths = old.job, old.nodes, old.growths
        size = len(held)
        gained: tuple[str, ...] = ()
        if nodes > size:
            gained = self._take(nodes - size, job_id, held)
            growths += 1
        left = max(old.expected_end - now, 0.0) * stretch(job, size, nodes)
        end = now + stall + left
        new = Running(job, held + gained, old.started, end, old.order, nodes, growths, now)
        self.resizable.pop(job_id)
        self.resized_at = now
        self._put(old, new)
        self.requests.pop(job_id, None)
        if gained and job_id in self.lacking:
            self._lacks(job_id, self.lacking[job_id] - len(gained))
        self.revision += 1
        return new

    def finish_resize(self, job_id: str) -> Running:
        """A job has the size it was to have: nodes it gave up are idle."""
        old = self.running[job_id]
        job, held, started, end, order, target, growths, resized_at = old
        assert target is not None
        new = Running(job, held[:target], started, end, order, None, growths, resized_at)
        if target < len(held):
            self._free(held[target:])
        self._put(old, new)
        if job.resizable:
            self.resizable[job_id] = new
        self.revision += 1
        return new

    def add_node(self, node: Node) -> None:
        """A node joins, idle."""
        if node.name in self.nodes:
            raise ValueError(f"node {node.name!r} is already here")
        self.nodes[node.name] = node
        self.parts[node.place[:1]] += 1
        self.idle.append(node.name)
        self.revision += 1

    def remove_node(self, name: str) -> Running | None:
        """A node is gone. Returns the job that held it, now one node smaller (or ended, if it held
        no other: then its ``nodes`` are empty). It lacks that node, unless it could have given it up."""
        self._leaves_part(self.nodes.pop(name))
        self.revision += 1
        self.withheld.discard(name)
        if name in self.idle:
            self.idle.remove(name)
            return None
        for service, known in self.borrowers.items():
            if any(one.node == name for one in known.lent):
                lent = tuple(one for one in known.lent if one.node != name)
                self.borrowers[service] = replace(known, lent=lent, owed=min(known.owed, len(lent)))
                return None
        holder = next((r for r in self.running.values() if name in r.nodes), None)
        if holder is None:  # it was withheld
            return None
        smaller = holder._replace(nodes=tuple(n for n in holder.nodes if n != name))
        job, size = holder.job, len(smaller.nodes)
        if not size:
            self._forget(job.id)
            return smaller
        self._put(holder, smaller)
        if not job.resizable:
            self._lacks(job.id, self.lacking.get(job.id, 0) + 1)
        elif size < job.min_nodes:
            self._lacks(job.id, (smallest_legal(job.constraint, job.min_nodes, job.max_nodes) or size) - size)
        return smaller

    def stops(self, job_id: str, whom: str) -> None:
        """A running job stops for another one, once it has kept its state."""
        self.stopping[job_id] = whom
        self.revision += 1

    def is_worth_stopping(self, job_id: str) -> bool:
        """Whether the one that it stops for still lacks nodes; asked when it has kept its state."""
        whom = self.stopping.pop(job_id, "")
        self.revision += 1
        return whom in self.lacking or whom in self.waiting

    def exchange(self, job_id: str, gone: str, instead: str) -> Running:
        """A running job goes on on a node that is idle, instead of one of its own."""
        old = self.running[job_id]
        self.idle.remove(instead)
        new = old._replace(nodes=tuple(instead if name == gone else name for name in old.nodes))
        self._free((gone,))
        self._put(old, new)
        self.revision += 1
        return new

    def withhold(self, names: set[str]) -> None:
        """From now on these nodes, and no others, are not given away. Who has one keeps it."""
        if names == self.withheld:
            return
        held = {name for running in self.running.values() for name in running.nodes} | self.lent
        back = [name for name in self.nodes if name in self.withheld - names - held]
        self.withheld = set(names)
        self.idle[:] = [name for name in self.idle if name not in names]
        self._free(tuple(back))
        self.revision += 1

    def expect_end(self, job_id: str, expected_end: float) -> None:
        """A running job will end at another time than its walltime says."""
        old = self.running[job_id]
        self._put(old, old._replace(expected_end=expected_end))
        self.revision += 1

    def place(self, name: str, place: tuple[str, ...]) -> None:
        """It has turned out where a node is."""
        self._leaves_part(self.nodes[name])
        self.nodes[name] = replace(self.nodes[name], place=place)
        self.parts[place[:1]] += 1
        self.revision += 1

    def part_of(self, name: str) -> str:
        """What fails together with a node: the outermost part of the machine that it is in, where that is
        known of all and there are several; else the node itself."""
        node = self.nodes.get(name)
        is_known = node is not None and len(self.parts) > 1 and () not in self.parts
        return node.place[0] if node is not None and is_known else name

    def describe(self, job: Job) -> None:
        """More is known of a job that runs or waits. Its place, its size and its expected end stay."""
        old = self.running.get(job.id)
        if old is not None:
            self._put(old, old._replace(job=job))
        elif job.id in self.waiting:
            self.waiting.replace(job)
        else:
            return
        self.revision += 1

    def push_overdue(self) -> list[Running]:
        """Jobs that still run after their expected end are now expected to take as long again as they
        have taken. (A limit that ends them, if there is one, is the body's affair.)"""
        pushed: list[Running] = []
        while self.by_end and self.by_end[0][0] < self.now:
            late = self.by_end[0][2]
            self.expect_end(late.job.id, self.now + max(self.now - late.started, 1.0))
            pushed.append(self.running[late.job.id])
        return pushed

    @property
    def lent(self) -> set[str]:
        """The nodes that services have for themselves."""
        return {one.node for known in self.borrowers.values() for one in known.lent}

    def wish(self, service: str, wish: NodeWish) -> None:
        """A service asks for nodes, instead of what it asked for before; for none if it needs none any
        longer."""
        known = self.borrowers.get(service, Borrower())
        self._set_borrower(service, replace(known, wish=replace(wish, at=self.now) if wish.count else None))

    def lend(self, service: str, nodes: Collection[str], asked: int) -> None:
        """A service gets these idle nodes. Of what it asked for so many are settled: those that could not be
        had it may ask for again."""
        known = self.borrowers.get(service, Borrower())
        self.idle[:] = [name for name in self.idle if name not in nodes]
        wish = known.wish
        if wish is not None:
            wish = replace(wish, count=wish.count - asked) if wish.count > asked else None
        self._set_borrower(service, replace(known, lent=known.lent + tuple(map(Lent, nodes)), wish=wish))

    def want_back(self, service: str, count: int) -> None:
        """A service is told to give back so many of its nodes."""
        known = self.borrowers[service]
        self._set_borrower(service, replace(known, owed=known.owed + count))

    def take_back(self, service: str, nodes: Collection[str], wanted: int = 0) -> tuple[str, ...]:
        """A service gives back these of its nodes: they are idle. Which of them it had. ``wanted`` is how
        many it was told to, if that is its answer."""
        known = self.borrowers.get(service, Borrower())
        back = tuple(one.node for one in known.lent if one.node in nodes)
        lent = tuple(one for one in known.lent if one.node not in nodes)
        owed = min(max(0, known.owed - wanted), len(lent))
        short_at = self.now if len(back) < wanted else known.short_at
        self._free(back)
        self._set_borrower(service, replace(known, lent=lent, owed=owed, short_at=short_at))
        return back

    def let_go_of_loans(self) -> None:
        """Nobody has nodes for himself any longer, or asks for some."""
        for service, known in list(self.borrowers.items()):
            self.take_back(service, known.emptiest(len(known.lent)))
        self.borrowers.clear()

    def weigh(self, service: str, free: Mapping[str, float]) -> None:
        """How empty the nodes of a service are now, by node."""
        known = self.borrowers.get(service, Borrower())
        lent = tuple(Lent(one.node, free.get(one.node, one.free)) for one in known.lent)
        if lent != known.lent:
            self._set_borrower(service, replace(known, lent=lent))

    def settle_loans(self, plan: Plan) -> None:
        """What a plan lends and takes back, as if services answered at once, with the nodes that can be
        missed most easily."""
        if (lend := plan.lend) is not None:
            self.lend(lend.service, self.idle[: -lend.nodes - 1 : -1], lend.nodes)
        if (back := plan.take_back) is not None:
            known = self.borrowers[back.service]
            self.want_back(back.service, back.nodes)
            self.take_back(back.service, known.emptiest(back.nodes), back.nodes)

    def _set_borrower(self, service: str, known: Borrower) -> None:
        if known.lent or known.wish is not None or known.short_at > -inf:
            self.borrowers[service] = known
        else:
            self.borrowers.pop(service, None)
        self.revision += 1

    def pull_levers(self, plan: Plan) -> None:
        """From now on nodes are held, capped and given back as a plan says."""
        if self.power is None:
            return
        changes: dict[str, Any] = {}
        if plan.hold is not None:
            changes["held"] = plan.hold.nodes
        if plan.cap is not None:
            changes |= {"threads": plan.cap.threads, "cap": plan.cap.watts}
        if plan.release is not None:
            changes["released"] = plan.release.nodes
        if changes:
            self.power = replace(self.power, **changes)
            self.revision += 1

    def copy(self) -> "Indices":
        """An independent copy; everything immutable is shared."""
        twin = Indices.__new__(Indices)
        for name in Indices.__slots__:
            value = getattr(self, name)
            setattr(twin, name, value.copy() if isinstance(value, dict | list | set | Waiting) else value)
        return twin

    def _leaves_part(self, node: Node) -> None:
        self.parts[node.place[:1]] -= 1
        if not self.parts[node.place[:1]]:
            del self.parts[node.place[:1]]

    def _take(self, nodes: int, job_id: str, held: tuple[str, ...]) -> tuple[str, ...]:
        idle = self.idle
        if not 0 < nodes <= len(idle):
            raise ValueError(f"job {job_id!r} cannot have {nodes} more nodes: {len(idle)} are idle")
        if self.picker is not None:
            running = self.running.get(job_id)
            job = self.waiting[job_id] if running is None else running.job
            around = Neighbourhood(self.nodes, self.topology, self.running)
            found, self.picked = self.picker.pick(job, nodes, idle[::-1], held, around)
            taken, chosen = tuple(found), set(found)
            if len(taken) != nodes or len(chosen) != nodes or not chosen.issubset(idle):
                raise ValueError(f"a policy picked {taken} for job {job_id!r}: not {nodes} idle nodes")
            self.idle[:] = [name for name in idle if name not in chosen]
            return taken
        self.picked = ""
        taken = tuple(idle[: -nodes - 1 : -1])
        del idle[-nodes:]
        return taken

    def _free(self, nodes: tuple[str, ...]) -> None:
        if self.withheld:
            nodes = tuple(name for name in nodes if name not in self.withheld)
        self.idle.extend(nodes[::-1])

    def _forget(self, job_id: str) -> Running:
        running = self.running.pop(job_id)
        by_end = self.by_end
        del by_end[bisect_left(by_end, (running.expected_end, running.order))]
        if running.job.kind != "rigid":
            self.in_phase.discard(job_id)
            self.resizable.pop(job_id)
            self.requests.pop(job_id, None)
            self.mtct.pop(job_id, None)
        if running.target is not None:
            self.changing.pop(job_id, None)
        if self.progress:
            self.progress.pop(job_id, None)
        if self.lacking:
            self.lacking.pop(job_id, None)
        if self.stopping:
            self.stopping.pop(job_id, None)
        return running

    def _lacks(self, job_id: str, nodes: int) -> None:
        if nodes > 0:
            self.lacking[job_id] = nodes
        else:
            self.lacking.pop(job_id, None)

    def _put(self, old: Running, new: Running) -> None:
        by_end, end, order = self.by_end, new.expected_end, new.order
        at = bisect_left(by_end, (old.expected_end, order))
        if end == old.expected_end:  # and so it keeps its place
            by_end[at] = (end, order, new)
        else:
            del by_end[at]
            insort(by_end, (end, order, new))
        job_id = old.job.id
        self.running[job_id] = new
        if new.target is not None:
            self.changing[job_id] = new
        elif old.target is not None:
            self.changing.pop(job_id, None)
        if job_id in self.resizable:
            self.resizable[job_id] = new


_order = attrgetter("order")


def _shown(name: str) -> Any:
    """What the indices have under this name, now."""
    return property(attrgetter(f"_indices.{name}"))


class Snapshot:
    """A view over the indices a body keeps, not a copy: nothing is paid for what is not read.

    Valid until the body next changes its indices; ``freeze()`` gives one that lasts, which can be
    pickled and replayed.
    """

    __slots__ = ("_idle", "_indices", "corridor", "known", "lacking", "mtct", "nodes", "requests", "running",
                 "waiting")  # fmt: skip

    #: seconds on the body's clock
    now: float = _shown("now")
    #: seconds that a job holds its nodes before and after its work, as far as the body knows
    overhead: float = _shown("overhead")
    #: what is known of power, if anybody looks
    power: PowerView | None = _shown("power")
    #: jobs that lost a node in this very instant; they wait again, ahead of the queue
    failed: tuple[str, ...] = _shown("failed")
    #: running jobs that stop once they have kept their state, and for whom
    stopping: Mapping[str, str] = _shown("stopping")
    #: when any job last began to change its size
    resized_at: float = _shown("resized_at")
    #: running jobs that have nothing to run just now, and since when
    resting: Mapping[str, float] = _shown("resting")
    #: running jobs that can change their size at their next scheduling point only, which is not now
    in_phase: Collection[str] = _shown("in_phase")
    #: services that ask for nodes of their own, or have some
    borrowers: Mapping[str, Borrower] = _shown("borrowers")
    #: changes whenever what runs, or the set of nodes, has changed
    revision: int = _shown("revision")

    def __init__(self, indices: Indices, corridor: Corridor | None = None) -> None:
        self._indices = indices
        self._idle = indices.idle
        self.corridor = corridor
        #: what one strategy has worked out, for another that decides next and needs the same: nothing else
        self.known: Any = None
        #: the nodes by name
        self.nodes: Mapping[str, Node] = indices.nodes
        #: the queue in the policy's order
        self.waiting: Waiting = indices.waiting
        #: running jobs by id
        self.running: Mapping[str, Running] = indices.running
        #: communication over compute time of running jobs, as last measured; not known of every job
        self.mtct: Mapping[str, float] = indices.mtct
        #: sizes that evolving jobs have asked for and not been answered yet
        self.requests: Mapping[str, int] = indices.requests
        #: jobs that lost nodes and run on with the others, and how many they lack
        self.lacking: Mapping[str, int] = indices.lacking

    @property
    def idle(self) -> int:
        """How many nodes no job holds."""
        return len(self._idle)

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @property
    def resizable(self) -> list[Running]:
        """Running jobs that may be resized now, in order of start: malleable or evolving, not changing
        size at the moment, and not resized at this very time."""
        now = self._indices.now
        found = [r for r in self._indices.resizable.values() if r.resized_at != now]
        found.sort(key=_order)
        return found

    @property
    def restartable(self) -> list[Running]:
        """Running jobs that can be stopped now and started again on another size, in order of start."""
        now = self._indices.now
        jobs = (r for r in self._indices.running.values() if r.job.restarts)
        return sorted((r for r in jobs if r.target is None and r.resized_at != now), key=_order)

    @property
    def givers(self) -> Collection[Scope[Running]]:
        """Malleable jobs whose size is not changing that hold more nodes than they need, in no order. Some
        may have been resized at this very time."""
        return self._indices.resizable.givers.values()

    @property
    def takers(self) -> Collection[Scope[Running]]:
        """Malleable jobs whose size is not changing that could use more nodes, in no order. Some may have
        been resized at this very time."""
        return self._indices.resizable.takers.values()

    @property
    def changing(self) -> Collection[Running]:
        """Running jobs that are changing their size just now."""
        return self._indices.changing.values()

    @property
    def is_resizing(self) -> bool:
        """Whether any job is changing its size just now."""
        return bool(self._indices.changing)

    @property
    def ends(self) -> Sequence[tuple[float, int, Running]]:
        """When running jobs are expected to end: ``(time, order, job)``, the first in front."""
        return self._indices.by_end

    def by_expected_end(self) -> Iterator[Running]:
        """Running jobs, the one expected to end first in front."""
        return (running for _, _, running in self._indices.by_end)

    def freeze(self) -> "Snapshot":
        """The same view on a copy: later events do not show in it."""
        return Snapshot(self._indices.copy(), self.corridor)

    def thaw(self) -> Indices:
        """The same machine for a body of its own, which may change it."""
        return self._indices.copy()

    def __reduce__(self) -> tuple[type["Snapshot"], tuple[Indices, Corridor | None]]:
        return Snapshot, (self._indices, self.corridor)
