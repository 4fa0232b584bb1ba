"""What to ask of a batch system now, and which of our waiting asks are overtaken: decided from its queue.

Learns as it goes, from everybody's jobs: which shares of walltimes are used, and how well predictions hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, inf
from statistics import fmean
from typing import Any

from dask_hpc.model.units import counted, show_duration
from dask_hpc.planning.asks.calibration import PredictedWait, StartRecord
from dask_hpc.planning.asks.node_sets import PieceMap
from dask_hpc.planning.asks.queue import PendingAsk, QueueView, share_ahead
from dask_hpc.planning.asks.replay import Newcomers, Replay, Starts
from dask_hpc.planning.asks.shapes import (
    AskShape,
    FoundShape,
    ShapeChoice,
    WantedWork,
    best_shape,
    done_after,
    fillers,
    show_wait,
)
from dask_hpc.planning.asks.used import ShareWatch, UsedShares

_MORE = 1.25  # of the work that is known: so much is worth waiting for
_IN_LINE = 0.25  # of the units wait in line at most; the others are for holes that open meanwhile
_REMEMBERED = 100  # jobs that started lately
_CHECKED = 3  # jobs of others whose starts are predicted at a look, to learn from


@dataclass(frozen=True, slots=True)
class WaitingAsk:
    """A unit of ours that waits in the queue. ``job`` is its id there, if it has one yet."""

    unit: str
    shape: AskShape
    asked: float
    job: str = ""
    #: it was asked for because it would start at once
    is_filler: bool = False


@dataclass(frozen=True, slots=True)
class AskPlan:
    """What to do: shapes of new units, units to take back and why, and when which unit is expected."""

    new: tuple[AskShape, ...] = ()
    why: str = ""
    withdraw: Mapping[str, str] = field(default_factory=dict)
    #: of each waiting unit; of the new ones, in their order
    expected: Mapping[str, PredictedWait] = field(default_factory=dict)
    expected_new: tuple[PredictedWait, ...] = ()


@dataclass(slots=True)
class AskWatch:
    """Decides what to ask. ``cores`` and ``memory`` are those of a unit on one node; a waiting unit is
    overtaken if another shape is done sooner by such a share, and sooner by ``gain`` seconds at least."""

    usual: AskShape
    cores: int = 0
    memory: float = 0.0
    partitions: Sequence[str] = ()
    qos: Sequence[str] = ()
    resolution: float = 60.0
    latency: float = 30.0
    margin: float = 0.25
    gain: float = 120.0
    grain: float = 60.0  # a wait that is as good as none
    _shares: ShareWatch = field(default_factory=ShareWatch)
    _record: StartRecord = field(default_factory=StartRecord)
    _looked: float = -inf
    _waited: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._record.grain = self.grain

    def decide(
        self, view: QueueView, waiting: Sequence[WaitingAsk], submit: int, work: WantedWork
    ) -> AskPlan:
        """What to do about so many units that are wanted beside those that wait, for this work."""
        used = self._learn(view)
        work = replace(work, waits=tuple(self._waited.values()))
        view = _with_mine(view, waiting, self)
        pieces = PieceMap.of(view, self.cores, self.memory)
        replay = Replay(view, pieces, used, newcomers(view, pieces), self.latency)
        mine = {ask.job or ask.unit: ask for ask in waiting}
        others = [job for job in self._record.new(view) if job not in mine][:_CHECKED]
        _, starts = replay.starts((), {*mine, *others})
        for job, found in starts.items():
            self._record.predicted(job, view.now, found)
        starts = {job: starts[job] for job in mine if job in starts}
        expected = {mine[job].unit: self._wait(found, view) for job, found in starts.items()}
        old = {job: ask for job, ask in mine.items() if view.now - ask.asked >= self.gain}
        not_needed = _surplus(starts, mine, work, old)
        room = submit + len(waiting)
        if not room or not (submit or starts):
            return AskPlan(expected=expected)
        how: Any = {"partitions": self.partitions, "qos": self.qos, "resolution": self.resolution}
        now = fillers(replay, replace(work, most=room), **how)
        withdraw = dict.fromkeys(not_needed, "not needed any more: the work is done without it")
        late = {job: found.at(0.5) - view.now for job, found in starts.items()}
        for job, ask in old.items():
            if ask.is_filler and late.get(job, 0.0) > self.gain:
                words = f"the hole that it was for is gone, it would start {show_wait(late[job])}"
                withdraw.setdefault(ask.unit, words)
        # holes come first: who is expected last makes room, who is expected first keeps his place
        order = sorted(starts, key=lambda job: (late[job], job))
        for job in (job for job in order[:0:-1] if job in old):
            if len(now) <= submit + len(withdraw) or late[job] <= self.gain:
                break
            words = f"overtaken: others start now, it would {show_wait(late[job])}"
            withdraw.setdefault(mine[job].unit, words)
        now = now[: submit + len(withdraw)]
        left = work.seconds - sum(shape.walltime - work.overhead for shape in now)
        still = {job: ask for job, ask in mine.items() if ask.unit not in withdraw}
        # most of the room is kept for holes to come
        rest = min(max(1, floor(_IN_LINE * room)), room - len(now)) - len(still)
        choice = None
        new, waits = list(now), [PredictedWait(0.0, 0.0, self._record.grain)] * len(now)
        asked = sum(ask.shape.walltime - work.overhead for ask in still.values())
        is_old = not still.keys().isdisjoint(old)
        if left > 0 and ((rest > 0 and left > asked) or (is_old and starts)):
            filled = _with_asks(view.without(mine), now, self)
            budget = work.budget - sum(shape.walltime for shape in now)
            todo = replace(work, seconds=left, most=max(1, rest + len(still)), budget=budget)
            choice = best_shape(replace(replay, view=filled), todo, usual=self.usual, **how)
        if choice is not None:
            best = choice.best
            overtaken = self._overtaken(
                best, {job: starts[job] for job in still if job in old and job in starts}, mine, todo, view
            )
            withdraw |= overtaken
            again, there = len(overtaken), len(still)
            more = max(0, rest) if left > asked else 0
            count = max(0, min(more + again, max(best.count - (there - again), again)))
            last = len(best.starts.courses[0]) - 1
            new += [best.shape] * count
            waits += [
                self._record.wait(best.starts, view.now, min(at, last), is_chosen=True) for at in range(count)
            ]
        return AskPlan(
            new=tuple(new),
            why=_why(now, choice, work),
            withdraw=withdraw,
            expected={unit: wait for unit, wait in expected.items() if unit not in withdraw},
            expected_new=tuple(waits),
        )

    def asked(self, job: str, now: float, wait: PredictedWait) -> None:
        """A unit of a plan was asked for under that id of the batch system: its prediction will be
        checked."""
        self._record.chosen(job, now, wait)

    def _learn(self, view: QueueView) -> UsedShares:
        if view.now > self._looked:
            self._looked = view.now
            self._record.look(view)
        for job in view.running:
            if job.submitted > -inf and job.id not in self._waited:
                self._waited[job.id] = (job.limit, max(0.0, job.started - job.submitted))
        while len(self._waited) > _REMEMBERED:
            del self._waited[next(iter(self._waited))]
        return self._shares.look(view)

    def _wait(self, starts: Starts, view: QueueView, unit: int = 0) -> PredictedWait:
        return self._record.wait(starts, view.now, unit)

    def _overtaken(
        self,
        best: FoundShape,
        starts: Mapping[str, Starts],
        mine: Mapping[str, WaitingAsk],
        work: WantedWork,
        view: QueueView,
    ) -> dict[str, str]:
        """Units that are taken back, as the work would be done sooner by others, and they start sooner."""
        if not starts:
            return {}
        shape = mine[next(iter(starts))].shape
        courses = zip(*(found.courses for found in starts.values()), strict=True)
        done = fmean(done_after([time - view.now for (time,) in course], shape, work) for course in courses)
        if best.done > min(done * (1 - self.margin), done - self.gain):
            return {}
        found = {}
        last = len(best.starts.courses[0]) - 1
        order = sorted(starts, key=lambda job: starts[job].at(0.5))
        for place, job in enumerate(order[: best.count]):
            soon = best.starts.at(0.5, min(place, last)) - view.now
            late = starts[job].at(0.5) - view.now
            if mine[job].shape != best.shape and soon < min(late * (1 - self.margin), late - self.gain):
                words = f"{best.shape} starts {show_wait(soon)}, it would {show_wait(late)}"
                found[mine[job].unit] = f"overtaken: {words}"
        return found


def _surplus(
    starts: Mapping[str, Starts],
    mine: Mapping[str, WaitingAsk],
    work: WantedWork,
    old: Mapping[str, WaitingAsk],
) -> list[str]:
    """Units that have waited for a while, the last first, without which the others do all the work, and
    more."""
    left = _MORE * work.seconds - sum(ask.shape.walltime - work.overhead for ask in mine.values())
    found = []
    for job in sorted(starts, key=lambda job: -starts[job].at(0.5)):
        left += mine[job].shape.walltime - work.overhead
        if left > 0 or job not in old:
            break
        found.append(mine[job].unit)
    return found


def _why(now: Sequence[AskShape], choice: ShapeChoice | None, work: WantedWork) -> str:
    """In one line."""
    kinds = dict.fromkeys(now)
    words = ", ".join(f"{sum(one == kind for one in now)} x {kind}" for kind in kinds)
    if choice is None:
        if words:
            return f"{words} starts now"
        return "no shape is known that would start" if work.budget == inf else "the budget is used up"
    return f"{words} starts now; {choice.why}" if words else choice.why


def newcomers(view: QueueView, pieces: PieceMap) -> Newcomers:
    """Those who will come, as those who came lately: how many, how large, and who of them is put ahead."""
    share = share_ahead(view)
    horizon = 3600.0
    since = view.now - horizon
    count = sum(job.submitted > since for job in view.running)
    count += sum(ask.submitted > since for ask in view.pending)
    if share <= 0 or not count:
        return Newcomers()
    sizes = tuple((pieces.needed_by(ask, view), ask.limit) for ask in view.pending if not ask.is_held)[:100]
    return Newcomers(count / horizon, sizes, share)


def _with_mine(view: QueueView, waiting: Sequence[WaitingAsk], watch: AskWatch) -> QueueView:
    """The queue with those of our asks that it does not show yet, at its end."""
    shown = {ask.id for ask in view.pending} | {job.id for job in view.running}
    missing = [ask for ask in waiting if (ask.job or ask.unit) not in shown]
    return _with_asks(view, [ask.shape for ask in missing], watch, [ask.job or ask.unit for ask in missing])


def _with_asks(
    view: QueueView, shapes: Sequence[AskShape], watch: AskWatch, names: Sequence[str] = ()
) -> QueueView:
    """The queue with these asks at its end."""
    default = next((part.name for part in view.partitions.values() if part.is_default), "")
    asks = tuple(
        PendingAsk(
            names[at] if names else f"ask {at}",
            (shape.partition or default,),
            shape.nodes,
            shape.walltime,
            cores=watch.cores * shape.nodes,
            memory=watch.memory,
            submitted=view.now,
            user=view.me,
        )
        for at, shape in enumerate(shapes)
    )
    return replace(view, pending=(*view.pending, *asks)) if asks else view


def told_plan(plan: AskPlan) -> str:
    """For the story: what is asked for, and why."""
    if not plan.new:
        return plan.why
    words = f"{counted(len(plan.new), 'job')}: {plan.why}"
    last = plan.expected_new[-1] if plan.expected_new else None
    if last is not None and last.median >= 1 and last.high < inf:
        words += f"; the last one most likely in {show_duration(last.low)} to {show_duration(last.high)}"
    return words
