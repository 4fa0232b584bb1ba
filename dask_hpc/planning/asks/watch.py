"""What to ask of a batch system now, and which of our waiting asks are overtaken: decided from its queue.

Learns as it goes, from everybody's jobs: which shares of walltimes are used, and how well predictions hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import fmean

from dask_hpc.model.units import counted, show_duration
from dask_hpc.planning.asks.calibration import PredictedWait, StartRecord
from dask_hpc.planning.asks.node_sets import PieceMap
from dask_hpc.planning.asks.queue import PendingAsk, QueueView, share_ahead
from dask_hpc.planning.asks.replay import Newcomers, Replay, Starts
from dask_hpc.planning.asks.shapes import (
    AskShape,
    FoundShape,
    WantedWork,
    best_shape,
    done_after,
    show_wait,
)
from dask_hpc.planning.asks.used import ShareWatch, UsedShares

_CHECKED = 3  # jobs of others whose starts are predicted at a look, to learn from


@dataclass(frozen=True, slots=True)
class WaitingAsk:
    """A unit of ours that waits in the queue. ``job`` is its id there, if it has one yet."""

    unit: str
    shape: AskShape
    asked: float
    job: str = ""


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
    _shares: ShareWatch = field(default_factory=ShareWatch)
    _record: StartRecord = field(default_factory=StartRecord)
    _looked: float = -inf

    def decide(
        self, view: QueueView, waiting: Sequence[WaitingAsk], submit: int, work: WantedWork
    ) -> AskPlan:
        """What to do about so many units that are wanted beside those that wait, for this work."""
        used = self._learn(view)
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
        count = submit + len(waiting)
        if not count or (not submit and not starts):
            return AskPlan(expected=expected)
        choice = best_shape(
            replace(replay, view=view.without(mine)),
            replace(work, most=count),
            usual=self.usual,
            partitions=self.partitions,
            qos=self.qos,
            resolution=self.resolution,
        )
        if choice is None:
            words = "no shape is known that would start" if work.budget == inf else "the budget is used up"
            return AskPlan(why=words, expected=expected)
        best = choice.best
        withdraw = self._overtaken(best, starts, mine, work, view)
        again = len(withdraw)
        new = min(submit + again, max(best.count - (len(waiting) - again), again))
        last = len(best.starts.courses[0]) - 1
        return AskPlan(
            new=(best.shape,) * max(0, new),
            why=choice.why,
            withdraw=withdraw,
            expected={unit: wait for unit, wait in expected.items() if unit not in withdraw},
            expected_new=tuple(self._wait(best.starts, view, min(at, last)) for at in range(new)),
        )

    def _learn(self, view: QueueView) -> UsedShares:
        if view.now > self._looked:
            self._looked = view.now
            self._record.look(view)
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


def newcomers(view: QueueView, pieces: PieceMap) -> Newcomers:
    """Those who will come, as those who came lately: how many, how large, and who of them is put ahead."""
    share = share_ahead(view)
    horizon = 3600.0
    since = view.now - horizon
    times = [one.submitted for one in (*view.running, *view.pending) if one.submitted > since]
    if share <= 0 or not times:
        return Newcomers()
    sizes = tuple((pieces.needed_by(ask, view), ask.limit) for ask in view.pending if not ask.is_held)[:100]
    return Newcomers(len(times) / horizon, sizes, share)


def _with_mine(view: QueueView, waiting: Sequence[WaitingAsk], watch: AskWatch) -> QueueView:
    """The queue with those of our asks that it does not show yet, at its end."""
    shown = {ask.id for ask in view.pending} | {job.id for job in view.running}
    missing = [ask for ask in waiting if (ask.job or ask.unit) not in shown]
    default = next((part.name for part in view.partitions.values() if part.is_default), "")
    asks = tuple(
        PendingAsk(
            ask.job or ask.unit,
            (ask.shape.partition or default,),
            ask.shape.nodes,
            ask.shape.walltime,
            cores=watch.cores * ask.shape.nodes,
            memory=watch.memory,
            submitted=view.now,
            user=view.me,
        )
        for ask in missing
    )
    return replace(view, pending=(*view.pending, *asks)) if asks else view


def told_plan(plan: AskPlan) -> str:
    """For the story: what is asked for, and why."""
    if not plan.new:
        return plan.why
    words = f"{counted(len(plan.new), 'job')} of {plan.new[0]}: {plan.why}"
    if plan.expected_new and plan.expected_new[0].high < inf:
        first = plan.expected_new[0]
        words += f"; 4 in 5 within {show_duration(first.low)} to {show_duration(first.high)}"
    return words
