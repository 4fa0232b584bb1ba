"""What to ask of a batch system now, and which of our waiting asks are overtaken: decided from its queue.

Learns as it goes, from everybody's jobs: which shares of walltimes are used, and how well predictions hold.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, inf
from typing import Any

from dask_hpc.model.units import counted, show_duration
from dask_hpc.planning.asks.calibration import PredictedWait, StartRecord
from dask_hpc.planning.asks.line import AskLine, WaitingAsk
from dask_hpc.planning.asks.node_sets import PieceMap
from dask_hpc.planning.asks.queue import PendingAsk, QueueView, share_ahead
from dask_hpc.planning.asks.replay import Newcomers, Replay, Starts
from dask_hpc.planning.asks.shapes import AskShape, ShapeChoice, WantedWork, best_shape, fillers
from dask_hpc.planning.asks.used import ShareWatch, UsedShares

#: of the units wait in line at most; the others are for holes that open meanwhile. In 56 simulated queues
#: (notebooks/benchmarks/asked_simulated.py) work waits 0.40 as long as by fixed requests, and is done 0.89 as
#: late; with a quarter more of it waits, and it is done sooner
_IN_LINE = 0.125
_REMEMBERED = 100  # jobs that started lately
_CHECKED = 3  # jobs of others whose starts are predicted at a look, to learn from


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
        line = AskLine(mine, self._starts(replay, mine), work, view.now, self.gain)
        expected = {mine[job].unit: self._record.wait(one, view.now) for job, one in line.starts.items()}
        room = submit + len(waiting)
        if not room or not (submit or line.starts):
            return AskPlan(expected=expected)
        # holes come first
        now = fillers(replay, replace(work, most=room), **self._allowed)
        line.drop_surplus()
        line.drop_holeless()
        line.give_way(len(now), submit)
        now = now[: submit + len(line.withdrawn)]
        new, waits = list(now), [PredictedWait(0.0, 0.0, self._record.grain)] * len(now)
        choice, count = self._in_line(replay, line, now, room)
        if choice is not None:
            last = len(choice.best.starts.courses[0]) - 1
            new += [choice.best.shape] * count
            waits += [
                self._record.wait(choice.best.starts, view.now, min(at, last), is_chosen=True)
                for at in range(count)
            ]
        return AskPlan(
            new=tuple(new),
            why=_why(now, choice, work),
            withdraw=line.withdrawn,
            expected={unit: wait for unit, wait in expected.items() if unit not in line.withdrawn},
            expected_new=tuple(waits),
        )

    def _starts(self, replay: Replay, mine: Collection[str]) -> dict[str, Starts]:
        """When ours would start, by job; and some of others, to see later what such a prediction is worth."""
        view = replay.view
        others = [job for job in self._record.new(view) if job not in mine][:_CHECKED]
        _, starts = replay.starts((), {*mine, *others})
        for job, found in starts.items():
            self._record.predicted(job, view.now, found)
        return {job: starts[job] for job in mine if job in starts}

    def _in_line(
        self, replay: Replay, line: AskLine, now: Sequence[AskShape], room: int
    ) -> tuple[ShapeChoice | None, int]:
        """A shape to wait with for what is left beside those that start now, and how many of it. Most of the
        room is kept for holes to come."""
        left = line.work.seconds - sum(shape.walltime - line.work.overhead for shape in now)
        there = len(line.left)
        room = min(max(1, floor(_IN_LINE * room)), room - len(now))
        more = max(0, room - there) if left > sum(map(line.useful, line.left)) else 0
        if left <= 0 or not (more or (line.starts and any(map(line.is_old, line.left)))):
            return None, 0
        filled = _with_asks(replay.view.without(line.units), now, self)
        budget = line.work.budget - sum(shape.walltime for shape in now)
        todo = replace(line.work, seconds=left, most=max(1, room), budget=budget)
        choice = best_shape(replace(replay, view=filled), todo, usual=self.usual, **self._allowed)
        if choice is None:
            return None, 0
        again = line.drop_overtaken(choice.best, todo, self.margin)
        return choice, min(more + again, max(choice.best.count - (there - again), again))

    @property
    def _allowed(self) -> dict[str, Any]:
        return {"partitions": self.partitions, "qos": self.qos, "resolution": self.resolution}

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
