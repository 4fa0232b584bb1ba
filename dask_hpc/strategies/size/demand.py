"""As many units as the work at hand needs: asked for once, kept for a while, given back without loss."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil, inf
from typing import Annotated, ClassVar

from dask_hpc.model.cluster_view import ClusterView, Parting, SizePlan, Unit
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.units import count_nodes, counted, show_duration
from dask_hpc.strategies.strategy import SizeStrategy

_LATE = 5.0  # seconds beyond a few intervals, after which we were away rather than slow
_WAITS = 5  # so many queue waits are remembered
_MOMENT = 1.0  # seconds by which clocks may differ
_PROVEN = 30.0  # seconds connected, after which a unit counts as healthy


@dataclass(frozen=True, slots=True)
class SeenUnits:
    """A unit that has been connected. Times are those of the first look that found it so."""

    since: float
    idle_since: float | None = None
    #: no worker of it is connected any more; or some are missing
    absent_since: float | None = None
    short_since: float | None = None
    #: when it ends, and whether that was so near that others were asked for in its place
    ends: float = inf
    has_successor: bool = False


@dataclass(frozen=True, slots=True)
class BackUnits:
    """A unit that its batch system has put back into the queue, or has started from there anew: since when,
    and since when it waits there and nobody holds it."""

    since: float
    waits_since: float


@dataclass(frozen=True, slots=True)
class Refusals:
    """Submissions that a batch system did not accept: so many in a row, and when the last was."""

    count: int = 0
    at: float = -inf


@dataclass(frozen=True, slots=True)
class UnitMemory:
    """All a size strategy remembers."""

    looked: float
    steps: int = 0
    #: when tasks were last seen to move
    active_at: float = -inf
    units: Mapping[str, SeenUnits] = field(default_factory=dict)
    #: units that are not connected any more, or not yet, and were put back into the queue
    back: Mapping[str, BackUnits] = field(default_factory=dict)
    #: since when units are held by somebody
    held: Mapping[str, float] = field(default_factory=dict)
    #: since when more units are there than are needed
    surplus_since: float | None = None
    grew_at: float = -inf
    shrank_at: float = -inf
    #: how long the newest units took to come
    waits: tuple[float, ...] = ()
    #: deaths in a row, and the last of them
    failures: int = 0
    failed_at: float = -inf
    refusals: Refusals = Refusals()
    #: the target and the units there were when more were last asked for, for as long as neither changes
    asked_for: tuple[int, int] | None = None


def observe(view: ClusterView, memory: UnitMemory | None) -> tuple[UnitMemory, bool]:
    """The memory after this look, and whether nobody has looked for so long that it may mislead.

    Who was frozen for a while has not read yet what happened meanwhile: one look goes by before anything
    is decided.
    """
    now = view.now
    if memory is None:
        memory = UnitMemory(looked=now, steps=view.steps)
    was_away = now - memory.looked > 3 * view.interval + _LATE
    has_moved = view.steps != memory.steps
    units: dict[str, SeenUnits] = {}
    back: dict[str, BackUnits] = {}
    waits = memory.waits
    failures = memory.failures
    for unit in view.units:
        seen = memory.units.get(unit.name)
        if seen is not None and _is_back(unit, seen, now):
            back[unit.name] = BackUnits(now, now)  # as if it had been asked for now
            continue
        if seen is None and not unit.connected:
            was = memory.back.get(unit.name)
            if was is not None:
                back[unit.name] = replace(was, waits_since=now) if unit.state == "held" else was
            elif unit.restarts and unit.state in ("queued", "held"):
                back[unit.name] = BackUnits(now, now)
            continue
        if seen is None:
            seen = SeenUnits(now)
            if unit.name not in memory.back:  # that was no queue wait of a new request
                waits = (*waits, unit.age)[-_WAITS:]
        is_idle = unit.connected and not unit.is_busy
        idle_since = seen.idle_since if is_idle else None
        if is_idle and (idle_since is None or (was_away and has_moved)):
            idle_since = now
        units[unit.name] = SeenUnits(
            since=seen.since,
            idle_since=idle_since,
            absent_since=None if unit.connected else _first(seen.absent_since, now),
            short_since=None if unit.connected >= unit.members else _first(seen.short_since, now),
            ends=now + unit.left if unit.left < inf else seen.ends,
            has_successor=seen.has_successor,
        )
        if unit.connected and seen.since > memory.failed_at and now - seen.since >= _PROVEN:
            failures = 0
    memory = replace(
        memory,
        looked=now,
        steps=view.steps,
        active_at=now if has_moved else memory.active_at,
        units=units,
        back=back,
        held={u.name: memory.held.get(u.name, now) for u in view.units if u.state == "held"},
        waits=waits,
        failures=failures,
    )
    if any(unit.submission == "accepted" and now - unit.age >= memory.refusals.at for unit in view.units):
        memory = replace(memory, refusals=Refusals())
    return memory, was_away


def _is_back(unit: Unit, seen: SeenUnits, now: float) -> bool:
    """Whether a unit whose workers are gone waits in the queue again, or has been started from there anew:
    its batch system says so, and was asked since they went."""
    if unit.connected or unit.is_leaving:
        return False
    away = now - _first(seen.absent_since, now)
    if unit.asked_ago > away:
        return False
    return unit.state in ("queued", "held") or (unit.state == "running" and (unit.running_for or inf) < away)


def cause_of_death(
    unit: Unit, seen: SeenUnits | None, now: float, rejoin: float, connect_timeout: float
) -> str | None:
    """Why a unit will never (again) do anything, or None.

    Not knowing is no reason: a unit whose system could not be asked is waited for. Where that could be asked,
    it is before a unit is given up whose workers have gone: it may have put it back into its queue.
    """
    if unit.connected or unit.is_leaving:
        return None
    if unit.state == "gone":
        return unit.why or "it ended before it was told to"
    if seen is not None and seen.absent_since is not None:
        away = now - seen.absent_since
        if seen.has_successor and now >= seen.ends - _MOMENT:
            return "its time is over"  # it must not come back: others were asked for
        was_asked, is_clear = unit.asked_ago <= away, unit.state != "unknown"
        if is_clear and not was_asked:
            return None
        # What ends or goes back into the queue may do so for long: its node is not free before, either.
        patience = connect_timeout if was_asked and not is_clear else rejoin
        return f"its workers have been gone for {show_duration(away)}" if away >= patience else None
    if seen is None and unit.running_for is not None and unit.running_for >= connect_timeout:
        return f"it started {show_duration(unit.running_for)} ago and no worker of it has connected"
    return None


def _first(since: float | None, now: float) -> float:
    return now if since is None else since


def _may_be_there(unit: Unit) -> bool:
    """Whether a batch system may still have a unit that is to go and does nothing any more, or may put it
    back into the queue before it has gone."""
    is_there = unit.is_preempted or not unit.connected
    return is_there and unit.submission == "accepted" and unit.state != "gone"


_TOLD = 3  # units that stay, told when others leave
_ASK_AGAIN = 60.0  # seconds before a unit that refused to go is asked again
_JITTER = 0.5  # of a pause, between the shortest and the longest
_GOLDEN = 0.6180339887498949  # multiples of it, without their whole part, lie evenly between 0 and 1


@dataclass(frozen=True, slots=True)
class Standing:
    """Who is there, as a decision about the size counts them."""

    #: connected and lasting; connected, but its walltime ends soon; not connected yet
    stay: list[Unit]
    ending: list[Unit]
    pending: list[Unit]
    #: how long before their end units have to go, whoever has come in their place
    due: dict[str, float] = field(default_factory=dict)
    #: units that have been given up or are being closed, and that their batch system may still have
    closing: int = 0
    #: units of ``ending`` that are to be preempted: they go back into the queue if they do not leave before
    preempted: int = 0

    @property
    def have(self) -> int:
        """Units to count on."""
        return len(self.stay) + len(self.pending) + self.preempted


@dataclass(frozen=True, slots=True)
class Demand(SizeStrategy):
    """As many units as the work at hand needs: the size of Dask's own rule, without what makes it lose work.

    The target is what finishes the work at hand in ``target_duration``, what holds the results, what their
    copies need, or what the jobs hold and ask for, whichever is most. Then:

    1. Pending units count: whoever has been asked for is not asked for again.
    2. What is too much is first taken back from the queue, youngest first; then connected units leave that
       have idled for ``idle_grace``, those with the least data first. Nobody who works is sent away, unless
       the cluster is above its maximum.
    3. After a change nothing is undone for ``cool_down``.
    4. A unit whose walltime ends gets a successor, asked for as early as units lately had to wait, and works
       on until all successors are there or it is high time. They may overlap, and then the cluster is above
       its maximum by what is about to end.
    5. A dead unit is replaced at once, the next only after ``retry_delay``, then twice that, and so on;
       after ``retries`` replacements that died as well, none is asked for until one proves healthy. If its
       batch system may still have it, it is taken back there first.
    6. A unit that its batch system has put back into the queue (it was preempted, or its node failed, or
       somebody requeued it) comes back: it is pending again and not replaced, unless a new request would
       start sooner. A new one waits as long as the slowest of the newest units, and ``expected_wait`` at
       least; one that is back waits as long as its system says, or, if that says nothing, is given as much
       time as a new request takes. One that came back and is too many goes at once. So nothing is asked
       for in the place of one that is to be preempted before it has left.
    7. A unit that somebody holds is waited for, and told: whoever holds it does not want one in its place.
    8. When a batch system refuses a submission, one unit is tried at a time, after ``refusal_delay``, then
       twice that, and so on, each time a little sooner or later; after ``refusals`` in a row nothing is
       submitted for ``refusal_pause``.
    """

    name: ClassVar[str] = "demand"
    essential = ("target_duration", "idle_grace", "max_pending", "handover")

    target_duration: Annotated[
        float, Parameter("time in which the work at hand should be done", unit="s", low=0.001, high=1e9)
    ] = 5.0
    idle_grace: Annotated[float, Parameter("how long a unit may idle", unit="s", low=0.0)] = 15.0
    cool_down: Annotated[float, Parameter("how long after a change nothing is undone", unit="s", low=0.0)] = (
        5.0
    )
    max_pending: Annotated[int, Parameter("most units that may be pending", unit="units", low=1)] = 20
    forbid_idling: Annotated[bool, Parameter("give idle units back at once: idling costs")] = False
    memory_fill: Annotated[
        float, Parameter("share of the memory that results may fill", low=0.05, high=0.95)
    ] = 0.6
    expected_wait: Annotated[
        float, Parameter("how long a unit takes to come, at least", unit="s", low=0.0)
    ] = 60.0
    handover: Annotated[float, Parameter("how long before its end a unit hands over", unit="s", low=0.0)] = (
        30.0
    )
    rejoin: Annotated[float, Parameter("how long all workers of a unit may be away", unit="s", low=0.0)] = (
        15.0
    )
    connect_timeout: Annotated[
        float, Parameter("how long a started unit may take to connect", unit="s", low=1.0)
    ] = 300.0
    retries: Annotated[int, Parameter("replacements in a row that may die", low=0, high=1000)] = 3
    retry_delay: Annotated[
        float, Parameter("pause before the second replacement in a row", unit="s", low=0.0)
    ] = 10.0
    refusals: Annotated[int, Parameter("submissions refused in a row, before a pause", low=1, high=1000)] = 10
    refusal_delay: Annotated[
        float, Parameter("pause after the first submission that is refused", unit="s", low=0.0)
    ] = 10.0
    refusal_pause: Annotated[
        float, Parameter("pause after many submissions that were refused", unit="s", low=0.0)
    ] = 1800.0

    def decide(self, view: ClusterView, memory: UnitMemory | None) -> tuple[SizePlan, UnitMemory]:
        """What to do now, and what to remember."""
        memory, was_away = observe(view, memory)
        if was_away:
            return SizePlan(target=len(view.units)), memory
        news = self._held(view, memory)
        refused, more, memory = self._refused(view, memory)
        dead, died, memory = self._dead(view, memory)
        dead, news = [*refused, *dead], [*news, *more, *died]
        standing = self._standing(view, memory, {parting.unit for parting in dead})
        ending = {unit.name for unit in standing.ending if not unit.is_preempted}
        seen = {name: replace(one, has_successor=name in ending) for name, one in memory.units.items()}
        memory = replace(memory, units=seen)
        target, why = self._target(view, memory, standing)
        have = standing.have
        surplus_since = None
        if have > target:
            surplus_since = view.now if memory.surplus_since is None else memory.surplus_since
        memory = replace(memory, surplus_since=surplus_since)
        submit = self._submit(view, memory, standing, target)
        cancel = self._cancel(view, memory, standing, target)
        leave = [*self._hand_over(standing, target), *self._leave(view, memory, standing, target)]
        is_again = (target, have) == memory.asked_for
        if submit:
            memory = replace(memory, grew_at=view.now, asked_for=(target, have))
        elif not is_again:
            memory = replace(memory, asked_for=None)
        if cancel or leave:
            memory = replace(memory, shrank_at=view.now)
        found = {"connected": standing.stay, "ending": standing.ending, "pending": standing.pending}
        inputs = {
            "work": view.work,
            "tasks": view.tasks,
            **{name: len(units) for name, units in found.items()},
        }
        inputs |= {"minimum": view.minimum, "maximum": view.maximum, "target": target}
        rejected = self._not_done(view, standing, target, submit, {parting.unit for parting in leave})
        partings = (tuple(cancel), tuple(leave), tuple(dead))
        plan = SizePlan(target, submit, why, *partings, tuple(news), inputs, tuple(rejected), is_again)
        return plan, memory

    def _not_done(
        self, view: ClusterView, standing: Standing, target: int, submit: int, going: set[str]
    ) -> Iterator[str]:
        """What could have been done instead, and why it was not."""
        missing = target - standing.have - submit
        if submit and missing > 0 and view.may_submit <= submit:
            yield f"{missing} more: so many were submitted in the last minute (hpc.batch.per-minute)"
        elif submit and missing > 0:
            yield f"{missing} more: only {counted(self.max_pending, 'unit')} may be pending"
        others = (unit for unit in standing.stay if unit.name not in going)
        for unit in islice(others, _TOLD if going else 0):
            why = unit.pinned or ("it works" if unit.is_busy else f"it holds {unit.held / 1e6:.3g} MB")
            yield f"{unit.name} leaves instead: {why}"

    def _held(self, view: ClusterView, memory: UnitMemory) -> list[str]:
        """What to tell of units that somebody has just begun to hold."""
        return [
            f"{unit.name} is held ({unit.why}): it is waited for until somebody releases it"
            for unit in view.units
            if memory.held.get(unit.name) == view.now and not unit.is_leaving
        ]

    def _refused(self, view: ClusterView, memory: UnitMemory) -> tuple[list[Parting], list[str], UnitMemory]:
        """Units that the batch system did not accept, what to tell of it, and the memory with it."""
        gone = [unit for unit in view.units if unit.submission == "refused" and not unit.is_leaving]
        if not gone:
            return [], [], memory
        count = memory.refusals.count + 1
        memory = replace(memory, refusals=Refusals(count, view.now))
        dead = [Parting(unit.name, unit.why) for unit in gone]
        if count < self.refusals:
            return dead, [], memory
        words = f"{count} submissions in a row were refused, the last one: {gone[-1].why}"
        return dead, [f"{words}; none is made for {show_duration(self._pause(view, memory))}"], memory

    def _pause(self, view: ClusterView, memory: UnitMemory) -> float:
        """How long to wait after so many refusals in a row: each cluster a little longer or shorter."""
        count = memory.refusals.count
        pause = self.refusal_delay * 2.0 ** min(count - 1, 60)
        if count >= self.refusals:
            pause = self.refusal_pause
        return min(pause, self.refusal_pause) * (1 + _JITTER * ((view.chance + count * _GOLDEN) % 1 - 0.5))

    def _new_wait(self, memory: UnitMemory) -> float:
        """How long a new request would wait in the queue."""
        return max(self.expected_wait, *memory.waits, 0.0)

    def _too_late(self, unit: Unit, view: ClusterView, memory: UnitMemory) -> str | None:
        """Why a unit that is back in the queue is given up: a new request would start sooner."""
        back_unit = memory.back.get(unit.name)
        if back_unit is None or unit.connected or unit.is_leaving or unit.state != "queued":
            return None
        waited, wait = view.now - back_unit.waits_since, self._new_wait(memory)
        back = f"it is back in the queue ({unit.why})"
        if unit.starts_in is not None:
            starts = f"would start in {show_duration(unit.starts_in)}, a new one in {show_duration(wait)}"
            return f"{back} and {starts}" if unit.starts_in > wait else None
        is_late = waited > wait
        return f"{back} for {show_duration(waited)}, longer than a new one would wait" if is_late else None

    def _dead(self, view: ClusterView, memory: UnitMemory) -> tuple[list[Parting], list[str], UnitMemory]:
        """Units that died, what to tell of it, and the memory with it."""
        dead, failed = [], []
        for unit in view.units:
            if unit.submission == "refused":
                continue
            if (late := self._too_late(unit, view, memory)) is not None:
                dead.append(Parting(unit.name, late))
                continue
            seen = memory.units.get(unit.name)
            # Its workers may be there under other names.
            patience = inf if view.strangers else self.connect_timeout
            why = cause_of_death(unit, seen, view.now, self.rejoin, patience)
            if why is None:
                continue
            dead.append(Parting(unit.name, why))
            if seen is None or view.now < seen.ends - self.handover:  # else its time was over
                failed.append(dead[-1])
        if not failed:
            return dead, [], memory
        memory = replace(memory, failures=memory.failures + 1, failed_at=view.now)
        if memory.failures <= self.retries:
            return dead, [], memory
        died = (
            f"{memory.failures} units in a row have died, the last one {failed[-1].unit}: {failed[-1].reason}"
        )
        word = "no more are asked for until one proves healthy or the cluster is adapted anew"
        return dead, [f"{died}; {word}"], memory

    def _standing(self, view: ClusterView, memory: UnitMemory, dead: set[str]) -> Standing:
        """Count everybody. Who leaves, is gone or dead does not count."""
        closing = [unit for unit in view.units if unit.is_leaving or unit.name in dead]
        there = [unit for unit in view.units if unit.name not in dead and not unit.is_leaving]
        standing = Standing(
            [],
            [],
            [],
            closing=sum(map(_may_be_there, closing)),
            preempted=sum(unit.is_preempted and unit.name in memory.units for unit in there),
        )
        lead = self.handover + max(
            self.expected_wait,
            *memory.waits,
            max((unit.age for unit in there if unit.name not in memory.units), default=0.0),
        )
        threads = view.threads * max(1, sum(unit.connected > 0 for unit in there))
        busy_for = view.work / threads
        for unit in there:
            seen = memory.units.get(unit.name)
            if seen is None:
                standing.pending.append(unit)
                continue
            if unit.state == "gone":
                continue
            # Where walltimes are short, half of one is early enough, and its last quarter is left to go.
            life = unit.left + max(view.now - seen.since, unit.running_for or 0.0)
            early, late = (min(lead, life / 2), min(self.handover, life / 4)) if life < inf else (0.0, 0.0)
            is_needed_later = view.minimum > 0 or view.jobs or busy_for > unit.left - self.handover
            is_broken = seen.short_since is not None and view.now - seen.short_since >= self.connect_timeout
            is_over = seen.has_successor and not unit.connected
            is_ending = (
                is_over
                or unit.is_preempted
                or is_broken
                or unit.left <= late
                or (unit.left <= early and is_needed_later)
            )
            (standing.ending if is_ending else standing.stay).append(unit)
            standing.due[unit.name] = late
        return standing

    def _target(self, view: ClusterView, memory: UnitMemory, standing: Standing) -> tuple[int, str]:
        """How many units are wanted, and why."""
        threads = min(ceil(view.work / self.target_duration), view.tasks)
        per_node = max(view.threads / view.nodes_per_unit, 1e-9)
        nodes = 0
        for job in view.jobs:
            can_use = min(ceil(job.work / self.target_duration), job.tasks) / per_node
            nodes += max(job.nodes, min(job.max_nodes, ceil(can_use)))
        by_work = ceil(threads / view.threads) + ceil(nodes / view.nodes_per_unit)
        held = sum(unit.held for unit in view.units)
        by_memory = max(1, ceil(held / (self.memory_fill * view.memory))) if held else 0
        wanted, why = by_work, f"{counted(view.tasks, 'task')} with {show_duration(view.work)} of work"
        why += f" and jobs on {nodes} nodes" if nodes else ""
        if by_memory > wanted:
            wanted, why = by_memory, f"{held / 1e9:.3g} GB of results"
        by_service = ceil(view.for_service / view.nodes_per_unit)
        if by_service > wanted:
            wanted, why = by_service, f"{view.for_what} on {count_nodes(view.for_service)}"
        if wanted == 0 and (view.tasks or view.dormant):
            wanted, why = 1, f"{counted(view.tasks + view.dormant, 'task')} may still need somebody"
        is_active = view.now - memory.active_at < self.idle_grace and not self.forbid_idling
        if wanted == 0 and standing.stay and is_active:
            wanted, why = 1, "tasks ran a moment ago"
        if wanted < view.minimum:
            wanted, why = view.minimum, f"at least {counted(view.minimum, 'unit')}"
        elif wanted > view.maximum:
            wanted, why = int(view.maximum), f"{why}, but at most {counted(int(view.maximum), 'unit')}"
        return wanted, f"{counted(wanted, 'unit')} wanted: {why}"

    def _submit(self, view: ClusterView, memory: UnitMemory, standing: Standing, target: int) -> int:
        missing = target - standing.have - standing.closing
        if missing <= 0 or memory.failures > self.retries:
            return 0
        if memory.refusals.count:
            if view.now < memory.refusals.at + self._pause(view, memory):
                return 0
            is_tried = any(
                not unit.submission and view.now - unit.age >= memory.refusals.at for unit in standing.pending
            )
            missing = 0 if is_tried else 1
        # how long to wait after so many deaths in a row
        pause = 0.0 if memory.failures < 2 else self.retry_delay * 2.0 ** min(memory.failures - 2, 60)
        if memory.failures and view.now < memory.failed_at + pause:
            return 0
        if standing.stay and view.now < memory.shrank_at + self.cool_down:
            return 0
        return max(0, int(min(missing, self.max_pending - len(standing.pending), view.may_submit)))

    def _cancel(
        self, view: ClusterView, memory: UnitMemory, standing: Standing, target: int
    ) -> list[Parting]:
        surplus = standing.have - target
        if surplus <= 0:
            return []
        since = view.now if memory.surplus_since is None else memory.surplus_since
        if view.now - since < self._grace or view.now < memory.grew_at + self.cool_down:
            # it has not been too much for long enough, but for who came back when others had been asked for
            came_back = sum(unit.name in memory.back for unit in standing.pending)
            too_many = standing.have - int(min(view.maximum, standing.have))
            is_now = any(back.since == view.now for back in memory.back.values())
            surplus = max(0, too_many, min(surplus, came_back) if is_now else 0)
        # Who has waited longest is next in the queue; who has started already is nearly here.
        # What runs may have workers that go by other names.
        sure = [unit for unit in standing.pending if not view.strangers or unit.state != "running"]
        newest_first = reversed(sure)
        waited = {name: view.now - back.since for name, back in memory.back.items()}
        order = sorted(
            newest_first, key=lambda unit: (unit.state == "running", waited.get(unit.name, unit.age))
        )
        why = f"not needed any more: {_enough(target)}"
        return [Parting(unit.name, why) for unit in order[:surplus]]

    @property
    def _grace(self) -> float:
        return 0.0 if self.forbid_idling else self.idle_grace

    def _hand_over(self, standing: Standing, target: int) -> list[Parting]:
        """Units at their end go when others have taken over, or when it is high time and there is one that
        can take their data: who is refused is not asked again in time. Then one more goes than has come, the
        others when half of that time is over."""
        has_successors, is_received = len(standing.stay) >= target, bool(standing.stay)
        spare = len(standing.stay) + len(standing.ending) - target + 1
        found: list[Parting] = []
        for unit in sorted(standing.ending, key=lambda unit: unit.left):
            late = standing.due.get(unit.name, -inf)
            is_due = unit.left <= late and (len(found) < spare or unit.left <= late / 2)
            is_time = has_successors or (is_received and is_due)
            if is_time and unit.refused_ago >= _ASK_AGAIN:
                why = f"only {unit.connected} of its {unit.members} workers are left; it is replaced"
                if unit.left < inf:
                    what = "it is preempted" if unit.is_preempted else "its walltime ends"
                    why = f"{what} in {show_duration(unit.left)}; it hands over"
                found.append(Parting(unit.name, why, unit.left))
        return found

    def _leave(self, view: ClusterView, memory: UnitMemory, standing: Standing, target: int) -> list[Parting]:
        """Connected units that are too many even when all pending ones are taken back."""
        free = [unit for unit in standing.stay if not unit.pinned and unit.refused_ago >= _ASK_AGAIN]
        free.sort(key=lambda unit: (unit.is_busy, unit.held, unit.left))
        too_many = len(standing.stay) - int(min(view.maximum, len(standing.stay)))
        why = f"above the maximum of {view.maximum:g}"
        gone = [Parting(unit.name, why) for unit in free[:too_many]]
        away = {parting.unit for parting in gone}  # and who may still come back does not replace anybody
        superfluous = sum(u.connected > 0 for u in standing.stay if u.name not in away) - target
        if superfluous <= 0 or view.now < memory.grew_at + self.cool_down:
            return gone
        enough = _enough(target)
        for unit in free[len(gone) :]:
            since = memory.units[unit.name].idle_since
            if superfluous > 0 and since is not None and view.now - since >= self._grace:
                superfluous -= 1
                idle = f"idle for {show_duration(view.now - since)}, and {enough}"
                if self.forbid_idling:
                    idle = f"idle, which the policy forbids to save cost, and {enough}"
                gone.append(Parting(unit.name, idle))
        return gone


def _enough(count: int) -> str:
    return f"{counted(count, 'unit')} {'is' if count == 1 else 'are'} enough"
