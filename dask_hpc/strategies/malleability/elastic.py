"""Elastic: nodes go where they are worth most, whether the job there runs or waits."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Annotated, Any, ClassVar, NamedTuple

from dask_hpc.model.job import Job, stretch
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize, Start
from dask_hpc.model.resizable import Scope
from dask_hpc.model.snapshot import Running, Snapshot
from dask_hpc.model.units import count_nodes
from dask_hpc.model.waiting import Hole, Waiting
from dask_hpc.strategies.malleability.grow_shrink import leaving, left
from dask_hpc.strategies.malleability.precedence import FIRM, Precedence, is_due
from dask_hpc.strategies.malleability.worth import (
    SURELY,
    Growth,
    Room,
    Scales,
    Scopes,
    Value,
    scaling,
    work_of,
)
from dask_hpc.strategies.queue.moldable import smallest_size
from dask_hpc.strategies.strategy import MalleabilityStrategy, Outlook, QueueStrategy, Resizes, Starts

#: the power of its work that the wait of a job is held against, if it is too long. With rigid jobs on busy
#: machines (six, 150 seeds of the tuning half each) makespan is 0.7 to 1.5 % above that of malleable EASY
#: with it, 0.9 to 1.7 % with a quarter, 1.1 to 1.8 % with a half, 1.3 to 2.0 % with 1; and response 7 to 12,
#: 8 to 15, 10 to 15, 11 to 15 % below it. With less, bounded slowdown is lost where there is little to do
ROOT = 0.15


def urgency(job: Job) -> float:
    """What each second counts that it waits, if it is too long; nothing without a walltime."""
    return work_of(job) ** -ROOT


class Quiet(NamedTuple):
    """When there was nothing to do, and with which machine and queue."""

    revision: int
    arrivals: int
    #: it may be otherwise from then on, even if nothing has happened
    until: float

    def lasts(self, snapshot: Snapshot) -> bool:
        """Whether there still is nothing to do."""
        if self.revision != snapshot.revision or self.arrivals != snapshot.waiting.arrivals:
            return False
        return snapshot.now < self.until


@dataclass(frozen=True, slots=True)
class _Elastic:
    """What both parts of ``elastic`` must know alike, and the decision itself, which they carry out
    half each.

    The worth of a node to a job is the speed it adds, by the job's scaling model (or one fitted to its
    measured MTCT), over the job's remaining work to the power of ``bias``; the nodes a job starts on are
    taken to be fully used. Jobs that wait are served in order of worth, little work first. One starts on
    the fewest nodes it can use, if they are idle and no running job makes more of them; or running jobs
    give it theirs, if those are worth ``hysteresis`` times more to it. What is left goes to running
    and starting jobs, step by legal step, wherever it is worth most. So growth never keeps useful work
    waiting, and a full queue keeps sizes small and therefore efficient. Orders of service and of worth must
    agree, or nodes would go round in circles.

    While all who wait can start, on the fewest nodes that each can use, they start at once, whatever those
    are worth elsewhere: only who could not start anyhow competes by worth.

    The work of a job of one size counts ``fixed`` times: it goes earlier, and jobs that can fill any gap
    remain for the end. Each second since its submission counts as ``aging`` node-seconds of work that a
    job no longer has, and each node its user holds as ``fairness`` more. Of the jobs that have
    waited for ``patience`` one starts as soon as it can, on all nodes that running jobs could give: that
    which has waited longest for its work, see ``late``. Others may overtake it while it cannot, but not for
    ever: see ``Precedence``.

    Jobs without a walltime keep the order of their arrival, after those with one, start on what they ask
    for, and grow only while nobody waits: nothing is known of what anything else would bring.

    Where jobs scale linearly, one after the other on the whole machine is best, but ruinous if starting a
    job takes time. ``overhead``, and what the body knows of it, keeps short jobs small: on the ESP mix with
    30 s to start, 30 s to clean up and a decision a minute the makespan is 12 ks with it and 24 ks without.

    The defaults were tried on the ESP mix of seed 000 (32 nodes, exact walltimes, no resize cost, power
    laws of exponent 1.0 to 0.5; means over 4 to 6 orders) and on random small workloads. With 20 to 100 %
    malleable jobs, makespan and mean response were below those of every published strategy. Without any,
    response was 10 % below the best of them, MEBF, and makespan 2 % above it (6 % below EASY); with 10 %,
    makespan was between 5 % below and 0.3 % above. ``bias`` from 0.1 up costs makespan where jobs
    scale badly. What goes for jobs that wait too long, and for who comes while there is room, was chosen on
    workloads like those of production machines (``builtin:production``), whose users ask for far more time
    than they need.
    """

    essential: ClassVar[tuple[str, ...]] = ("bias", "hysteresis", "cost", "patience")

    bias: Annotated[
        float,
        Parameter("0: work is work (makespan); 1: little work left counts more (response)", low=0, high=2),
    ] = 0.03
    hysteresis: Annotated[
        float,
        Parameter("how many times more a node must be worth elsewhere to be taken away", low=1.0, high=1e6),
    ] = 1.2
    cost: Annotated[
        float, Parameter("what a resize costs a job: growth must save more", unit="s", low=0.0)
    ] = 0.0
    overhead: Annotated[
        float,
        Parameter("how long a job holds nodes without work, beyond what the body knows", unit="s", low=0.0),
    ] = 0.0
    guard: Annotated[
        float, Parameter("leave a job alone when no more than this is left to it", unit="s", low=0.0)
    ] = 0.0
    dwell: Annotated[float, Parameter("least time between two resizes of a job", unit="s", low=0.0)] = 0.0
    fixed: Annotated[
        float,
        Parameter(
            "how much the work of a job of one size counts; below 1 it goes earlier", low=0.0, high=1e3
        ),
    ] = 0.5
    patience: Annotated[
        float, Parameter("how long a job waits until it may go before all others", unit="s", low=0.0)
    ] = 14_400.0
    aging: Annotated[
        float,
        Parameter("node-seconds of work that a second since submission counts", low=0.0, high=1e9),
    ] = 0.05
    depth: Annotated[
        int, Parameter("how many waiting jobs one decision considers", unit="jobs", low=1, high=1_000_000)
    ] = 250
    recheck: Annotated[
        float, Parameter("look again after so long even if nothing has happened", unit="s", low=0.0)
    ] = 60.0
    fairness: Annotated[
        float,
        Parameter("node-seconds of work that a node held by its user, over priority, counts", low=0.0),
    ] = 0.0

    def work(self, job: Job) -> float:
        """The work of a job that waits, as it counts."""
        return work_of(job) * (self.fixed if job.kind == "rigid" else 1.0)

    def is_order_of(self, waiting: Waiting) -> bool:
        """Whether the jobs that wait are in order of worth, so that no one counts more than one before it."""
        order = waiting.order
        fits = isinstance(order, _Elastic) and (order.fixed, order.aging) == (self.fixed, self.aging)
        return fits and not self.fairness

    def share(self, snapshot: Snapshot, starts_first: bool = False) -> "Sharing":
        """The whole decision; or, if anybody starts, no more of it than who does, and on how many nodes."""
        takers: Scopes = self.ready(snapshot, snapshot.takers) if snapshot.idle else ()
        while True:
            sharing = Sharing(self, snapshot, takers)
            sharing.serve(starts_first)
            sharing.growth.spread()
            if not self.cost:
                return sharing
            targets = sharing.growth.targets
            growing = [one for one in takers if self._worthwhile(one.running, targets, snapshot.now)]
            if len(growing) == len(takers):
                return sharing
            takers = growing

    def quiet(self, snapshot: Snapshot) -> Quiet:
        """There is nothing to do now."""
        until = min(snapshot.now + self.recheck, self.ask_again(snapshot))
        return Quiet(snapshot.revision, snapshot.waiting.arrivals, until)

    def ask_again(self, snapshot: Snapshot, memory: Quiet | None = None) -> float:
        """When the job that has waited longest will have waited too long, or one may be resized again."""
        now, again, oldest = snapshot.now, inf, snapshot.waiting.oldest
        if oldest is not None and oldest.submitted + self.patience > now:
            again = oldest.submitted + self.patience
        if self.dwell:
            rested = (one.resized_at + self.dwell for one in snapshot.running.values())
            again = min(again, min((time for time in rested if time > now), default=inf))
        return again

    def ready(self, snapshot: Snapshot, scopes: Scopes) -> Scopes:
        """Those of them that may be resized now."""
        now, ends, resting = snapshot.now, snapshot.ends, snapshot.resting
        least, dwell = max(self.guard, self.cost), self.dwell
        if resting and not len(snapshot.waiting) and len(resting) >= len(snapshot.running):
            resting = {}  # nobody has anything to run
        is_plain = not least and not dwell and not resting
        if is_plain and snapshot.resized_at != now and ends and ends[0][0] > now:  # nearly always
            return scopes
        return [
            scope
            for scope in scopes
            if (running := scope.running).resized_at != now
            and running.expected_end - now > least
            and running.resized_at + dwell <= now
            and running.job.id not in resting
        ]

    def late(self, snapshot: Snapshot) -> Job | None:
        """The job that goes before all others, if anybody has waited too long: of those, the one that has
        waited longest for a small power of its work, ``ROOT``; in the end the one that came first, once it
        has waited for ``FIRM`` of its own walltimes more and nobody may delay it any more.

        If it always were that one, small jobs would wait for days behind a few of the whole machine, one
        after the other, that would hardly notice if they went before. With a power of 1 it would be highest
        response ratio next. Where no job is malleable and the machine is overloaded, makespan pays for it:
        wide jobs are left for the end, when nothing fills the gaps beside them.
        """
        if self.patience == inf:
            return None
        now, waiting = snapshot.now, snapshot.waiting
        oldest = waiting.oldest
        if oldest is None or now < oldest.submitted + self.patience:
            return None
        over = now - oldest.submitted - self.patience
        if over >= FIRM * oldest.walltime and is_due(snapshot, oldest, self.patience):
            return oldest
        return waiting.most_urgent(urgency, now, max(now - self.patience, oldest.submitted))

    def _scales(self, snapshot: Snapshot) -> Scales:
        hold, is_full = self.overhead + snapshot.overhead, len(snapshot.waiting) > 0
        if not self.fairness:
            return Scales(snapshot.now, self.bias, self.aging, hold, is_full)
        held: Counter[str] = Counter()
        for running in snapshot.running.values():
            held[running.job.user] += len(running.nodes)
        return Scales(snapshot.now, self.bias, self.aging, hold, is_full, self.fairness, held)

    def _worthwhile(self, running: Running, targets: dict[str, int], now: float) -> bool:
        target = targets.get(running.job.id)
        if target is None:
            return True
        return left(running, now) * (1 - stretch(running.job, len(running.nodes), target)) > self.cost


#: all that it is told, of either part
_wishes = attrgetter(*(field.name for field in fields(_Elastic)))
#: what is another as soon as anything may be decided otherwise
_moment_of = attrgetter("now", "revision", "waiting.arrivals")


def has_room(snapshot: Snapshot, free: int, givers: Iterable[Scope[Running]]) -> bool:
    """Whether all who wait could start, each on the fewest nodes that it can use, on those that are free and
    those that running jobs could give."""
    waiting = snapshot.waiting
    free += sum(scope.nodes for scope in givers)
    if len(waiting) > free:
        return False
    for job in waiting:
        free -= smallest_size(job) if job.walltime < inf else job.nodes
        if free < 0:
            return False
    return True


class Sharing:
    """One decision: who starts on what, who grows to what, and who gives nodes so that whom can start."""

    def __init__(self, wish: _Elastic, snapshot: Snapshot, takers: Scopes) -> None:
        self._wish, self._snapshot = wish, snapshot
        self._moment = _moment_of(snapshot)
        self.starts: dict[str, int] = {}
        self.gives: dict[str, int] = {}
        self.beneficiaries: dict[str, str] = {}
        self.precedence = Precedence(snapshot, wish.patience)
        self.scales = wish._scales(snapshot)
        self.growth = Growth(snapshot.idle, takers, snapshot.mtct, self.scales)

    def is_of(self, wish: _Elastic, snapshot: Snapshot) -> bool:
        """Whether it is what this one would find, now."""
        return self._moment == _moment_of(snapshot) and _wishes(self._wish) == _wishes(wish)

    def serve(self, starts_first: bool = False) -> None:
        """Look for nodes for the waiting jobs, in order of worth; if one starts, only while another could."""
        growth, wish, waiting, scales = self.growth, self._wish, self._snapshot.waiting, self.scales
        if not len(waiting):
            return
        coming, late = leaving(self._snapshot), wish.late(self._snapshot)
        fits = late is None and has_room(self._snapshot, growth.idle + coming, ())
        room = self.room = self._room(is_needed=not fits)  # most often who has just come simply fits
        if not (growth.idle or room.total):
            return
        offered = room.total  # how many nodes those who run could give to who comes next
        if late is not None:
            self._hold_for(late)
        is_stuck = late is None or smallest_size(late) > growth.idle + coming + offered
        in_order = wish.is_order_of(waiting)
        roomy = fits or self._is_roomy(growth.idle + coming)
        if in_order and is_stuck and not (starts_first or roomy) and self._is_in_vain():
            return
        hole = Hole(growth.idle + coming + offered)
        turn, last = self._turn(late, hole)
        for job in turn:
            least = smallest_size(job) if job.walltime < inf else job.nodes
            if least > growth.idle + coming + offered and job is not late:
                continue
            weight = work = 0.0
            if job.kind != "rigid" or offered or growth.is_wanted:
                work = wish.work(job)
                weight = scales.weight(job, work)
            growth.spread(above=inf if job is late or roomy else weight)
            if starts_first and self.starts and not growth.idle:
                return
            if job is late or self.precedence.allows(job, least):
                if least <= growth.idle:
                    self.starts[job.id] = least
                    growth.idle -= least
                    if job.kind != "rigid":
                        growth.join(job, least, Value(scaling(job), weight, scales.drag(work)))
                elif least <= growth.idle + coming:
                    coming -= least - growth.idle
                    growth.idle = 0
                elif gives := room.give(
                    least - growth.idle - coming, inf if job is late or roomy else weight / wish.hysteresis
                ):
                    self.gives |= gives
                    self.beneficiaries |= dict.fromkeys(gives, job.id)
                    growth.idle = coming = 0
                    offered = room.total
                elif in_order and not roomy and job is not late and self._is_last_hope(job, weight):
                    offered = 0  # nor to anybody behind it
                if not growth.idle and ((starts_first and self.starts) or not offered):
                    return
            hole.idle = growth.idle + coming + offered
        if growth.idle and len(waiting) > wish.depth and not wish.fairness:
            self._serve_the_rest(last)

    def _room(self, is_needed: bool) -> Room:
        """What those who run could give, if anybody needs it."""
        snapshot = self._snapshot
        givers = self._wish.ready(snapshot, snapshot.givers) if is_needed else ()
        return Room(givers, snapshot.mtct, self.scales)

    def _is_roomy(self, free: int) -> bool:
        """See ``has_room``; there may be too many who wait, whoever gives what."""
        snapshot, room = self._snapshot, self.room
        return len(snapshot.waiting) <= free + room.total and has_room(snapshot, free, room.givers)

    def _is_in_vain(self) -> bool:
        """Whether nobody could grow, and what running jobs could give is surely worth more where it is than
        to anybody who waits, if those are in order of worth."""
        waiting, wish = self._snapshot.waiting, self._wish
        first = waiting.first
        if (self.growth.idle and self.growth.is_wanted) or first is None or waiting.ahead_of(first.id):
            return False
        highest = self.scales.weight(first, wish.work(first)) / wish.hysteresis
        return self.room.is_dearer(SURELY * highest)

    def _is_last_hope(self, job: Job, weight: float) -> bool:
        """Whether nobody behind this job could be given nodes, if the jobs are in order of worth."""
        if self._snapshot.waiting.ahead_of(job.id):
            return False
        return not self.room.has_below(SURELY * weight / self._wish.hysteresis)

    def _turn(self, late: Job | None, hole: Hole) -> tuple[Iterable[Job], Job]:
        """Those that are considered and may find enough nodes in the hole, the job that waits too long first;
        and the last that is considered."""
        wish, waiting = self._wish, self._snapshot.waiting
        depth, count = wish.depth, len(waiting)
        if wish.fairness:
            effective = self.scales.effective
            turn: Iterable[Job] = sorted(waiting, key=lambda job: effective(job, wish.work(job), 0.0))
            if late is not None:
                turn = [late, *(job for job in turn if job is not late)]
            turn = list(turn)[:depth]
            return turn, turn[-1]
        if count <= depth:
            last = waiting.at(count - 1)
        elif late is None:
            last = waiting.at(depth - 1)
        else:
            last = waiting.at(depth - 1)
            if waiting.key(last.id) < waiting.key(late.id):
                depth -= 1  # the late one comes from further behind
                last = waiting.at(depth - 1) if depth else late
            elif last is late:
                last = waiting.at(depth - 2) if depth > 1 else late
        turn = waiting.within(depth, hole)
        if late is not None:
            turn = chain([late], (job for job in turn if job is not late))
        return turn, last

    def _serve_the_rest(self, last: Job) -> None:
        """Beyond ``depth`` nobody shrinks for a job, but one that just fits may start."""
        waiting = self._snapshot.waiting
        hole = Hole(self.growth.idle, self.precedence.window, self.precedence.spare)
        for job in waiting.fitting(waiting.key(last.id), hole):
            if job.id not in self.starts:
                self.starts[job.id] = job.nodes
                hole.idle -= job.nodes
                if job.walltime > hole.window:
                    hole.spare -= job.nodes
        self.growth.idle, self.precedence.spare = hole.idle, hole.spare

    def _hold_for(self, late: Job) -> None:
        """If the job that has waited too long cannot start now, others must mind it."""
        least, available = smallest_size(late), self.growth.idle + self.room.total
        if least > available:
            self.precedence.hold(late, least, available)


@dataclass(frozen=True, slots=True)
class ElasticQueue(_Elastic, QueueStrategy):
    """The job for which nodes are worth most starts first; ours.

    See the malleability strategy of that name, which belongs to it and should have the same parameters.
    Without malleable jobs it is backfilling in order of work, without a reservation but for a job that has
    been first in line far too long.
    """

    name: ClassVar[str] = "elastic"

    def rank(self, job: Job) -> Any:
        """Little work first, but early arrivals before much later ones."""
        return self.work(job) + self.aging * job.submitted

    def decide(self, snapshot: Snapshot, memory: Quiet | None) -> tuple[Starts, Quiet | None]:
        """Start those whose turn it is."""
        idle, waiting, snapshot.known = snapshot.idle, snapshot.waiting, None
        if not idle or waiting.first is None:
            return (), None
        if memory is not None and memory.lasts(snapshot):
            return (), memory
        if next(waiting.within(len(waiting), Hole(idle)), None) is None:
            return (), self.quiet(snapshot)  # nobody fits, whatever is best
        sharing = self.share(snapshot, starts_first=True)
        if not sharing.starts:
            snapshot.known = sharing  # the other half is asked next
            return (), self.quiet(snapshot)
        sizes = {
            job_id: sharing.growth.targets.get(job_id, least) for job_id, least in sharing.starts.items()
        }
        return [Start(*one, f"makes good use of {count_nodes(one[1])}") for one in sizes.items()], None


@dataclass(frozen=True, slots=True)
class Elastic(_Elastic, MalleabilityStrategy):
    """Nodes go to the running job for which they are worth most; ours.

    It answers what the digest of seed 000 (4.4) found nobody to have:
    malleability with backfilling, predicted benefit, resize cost, hysteresis, constraints, fairness. Made
    for the queue strategy ``elastic``; beside another it may shrink jobs for one that does not start.
    """

    name: ClassVar[str] = "elastic"
    only_in_need: ClassVar[bool] = True

    def decide(
        self, snapshot: Snapshot, outlook: Outlook, memory: Quiet | None
    ) -> tuple[Resizes, Quiet | None]:
        """Shrinks for those whose turn it is, or growths. Starts come first: then ask again."""
        head, idle = outlook
        if idle != snapshot.idle or (not idle and head is None):
            return (), None
        if memory is not None and memory.lasts(snapshot):
            return (), memory
        if not (idle and snapshot.takers) and (snapshot.waiting.first is None or not snapshot.givers):
            return (), self.quiet(snapshot)
        sharing, resizes, snapshot.known = snapshot.known, [], None
        if not (isinstance(sharing, Sharing) and sharing.is_of(self, snapshot)):
            sharing = self.share(snapshot)
        for job_id, size in sharing.gives.items():
            given = count_nodes(len(snapshot.running[job_id].nodes) - size)
            resizes.append(
                Resize(job_id, size, f"worth more to job {sharing.beneficiaries[job_id]}: {given}")
            )
        if resizes:
            return resizes, None
        for job_id, size in sharing.growth.targets.items():
            if job_id in snapshot.running:
                more = count_nodes(size - len(snapshot.running[job_id].nodes), "idle")
                resizes.append(Resize(job_id, size, f"makes the most of {more}"))
        return resizes, None if resizes else self.quiet(snapshot)
