"""The power of a simulated machine, and how well it keeps within its corridor.

A node draws its idle power. One that a job holds draws the mean of the job's power range, or its own active
power if the job does not say; launch, resizes and clean-up included. Nodes that are down draw nothing. Since
every node lags behind its work in the same way, the machine as a whole does, and its power is known at any
instant from three numbers: where it was, when that was, and where it is going.

A job with a ``swing`` draws something else in its range at each step of it.

What a policy sees of it is a ``PowerView`` without levers: nothing runs outside of jobs here, so holding has
no meaning, and caps and releases are not simulated. Of a job that swings it sees what it would on a live
cluster: what was measured in the last half minute, once there is enough of it, and before that what the user
says. The forecast is the oracle's unless the metering says otherwise: the power that the ramps lead to if
nothing is decided, from the least to the most that its jobs may draw, or, of those that swing, will draw
over the horizon. Strategies see the ends of jobs themselves. The online forecaster is fed and fitted as
on a live cluster, with a reading at each tick and a fit every sixty of them.

A violation is a maximal interval outside the corridor, on either side, that is longer than one tick of the
platform: what the next tick's decision sets right does not count. Without a tick every interval counts. The
run begins with the first submission and ends with its last event. Lag is followed exactly, not sampled: times
of crossing and energies are closed forms.
"""

import random
from array import array
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, exp, floor, inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.plan import Plan
from dask_hpc.model.power import PREFIX, Corridor, CorridorSignal, PowerRange, PowerView
from dask_hpc.model.snapshot import Indices, Running
from dask_hpc.planning.forecast import Forecaster
from dask_hpc.planning.power_level import LevelWindow
from dask_hpc.policy import Policy
from dask_hpc.simulator.platform import Metering, Platform
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.service import Companion, Life, MachineService
from dask_hpc.simulator.swing import Swing
from dask_hpc.simulator.values import read_file
from dask_hpc.simulator.workload import Workload


class PowerRecord:
    """24 bytes for each instant at which the work on the machine changes."""

    __slots__ = ("bounds", "end", "level", "ramp", "tick", "time", "watts")

    def __init__(self, ramp: float = 0.0, tick: float = 0.0) -> None:
        self.ramp = ramp
        #: an interval outside the corridor counts if it is longer than this
        self.tick = tick
        self.time = array("d")
        #: at that time, and where it goes from there
        self.watts = array("d")
        self.level = array("d")
        #: ``(from time, lower, upper)``; nothing if there is no corridor
        self.bounds: list[tuple[float, float, float]] = []
        self.end = -inf

    def step(self, time: float, watts: float, level: float) -> None:
        """From now on it goes to this level; the last word of an instant counts."""
        if self.time and self.time[-1] == time:
            self.watts[-1], self.level[-1] = watts, level
        elif not self.level or level != self.level[-1]:
            self.time.append(time)
            self.watts.append(watts)
            self.level.append(level)

    def bound(self, time: float, corridor: Corridor) -> None:
        """What the corridor is from now on."""
        lower, upper = corridor.at(time)
        if self.bounds and self.bounds[-1][0] == time:
            self.bounds[-1] = (time, lower, upper)
        elif not self.bounds or self.bounds[-1][1:] != (lower, upper):
            self.bounds.append((time, lower, upper))


#: points of the curve for each ramp time, and for how many ramp times after a step
_POINTS, _RAMPS = 4, 5
#: of the bound: a rounding error is no violation
_SLACK = 1e-9


@dataclass(frozen=True)
class PowerTrace:
    """Each value holds from its time to the next; without a corridor the bounds are 0 and infinite."""

    time: np.ndarray
    watts: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    #: beginnings and ends
    violations: tuple[tuple[float, float], ...]
    #: seconds outside, joules outside and in all
    time_outside: float
    energy_outside: float
    energy: float
    has_corridor: bool


class _Spans(NamedTuple):
    """Spans in which neither level nor corridor changes: columns of begin, length, power at first, the level
    that it goes to, and the bounds."""

    time: Any
    length: Any
    watts: Any
    level: Any
    lower: Any
    upper: Any


def power_trace(record: PowerRecord, begin: float, end: float = inf) -> PowerTrace:
    """From the steps that were written down, until ``end`` if the run did not end before."""
    spans = _spans(record, begin, end)
    outside, excess = _outside(spans, record.ramp)
    violations = tuple(span for span in outside if span[1] - span[0] > record.tick * (1 + _SLACK))
    return PowerTrace(
        *_curve(spans, record.ramp),
        violations=violations,
        time_outside=float(sum(b - a for a, b in outside)),
        energy_outside=excess,
        energy=float(_energy(spans.length, spans.watts, spans.level, record.ramp).sum()),
        has_corridor=bool(record.bounds),
    )


def _spans(record: PowerRecord, begin: float, end: float) -> _Spans:
    end = max(min(record.end, end), begin)
    steps, first, level = (np.array(column) for column in (record.time, record.watts, record.level))
    bounds = np.array(record.bounds or [(begin, 0.0, np.inf)])
    cuts = np.unique(np.concatenate([[begin], steps, bounds[:, 0], [end]]))
    time = cuts[(cuts >= begin) & (cuts < end)]
    if not len(time):
        time = np.array([begin])
    step = np.maximum(np.searchsorted(steps, time, side="right") - 1, 0)
    bound = np.maximum(np.searchsorted(bounds[:, 0], time, side="right") - 1, 0)
    level = level[step]
    watts = level + (first[step] - level) * _fade(time - steps[step], record.ramp)
    length = np.diff(np.append(time, end))
    return _Spans(time, length, watts, level, bounds[bound, 1], bounds[bound, 2])


def _fade(elapsed: Any, ramp: float) -> Any:
    """The share of a step that is still to be made."""
    return np.exp(-np.maximum(elapsed, 0.0) / ramp) if ramp else np.zeros_like(elapsed)


def _energy(length: Any, watts: Any, level: Any, ramp: float) -> Any:
    return level * length + (watts - level) * ramp * (1.0 - _fade(length, ramp))


def _outside(spans: _Spans, ramp: float) -> tuple[list[tuple[float, float]], float]:
    """Maximal intervals outside, and the energy by which they miss the nearer bound."""
    time, length, watts, level, lower, upper = spans
    # where the curve crosses a bound; between those it is inside or outside as a whole
    cuts = np.sort(
        np.stack([0 * length, *(_crossing(spans, bound, ramp) for bound in (lower, upper)), length]), axis=0
    )
    found: list[tuple[float, float]] = []
    excess = 0.0
    pieces: list[Any] = []
    for a, b in pairwise(cuts):
        middle = level + (watts - level) * _fade((a + b) / 2, ramp)
        over = middle > upper + _SLACK * np.abs(np.where(np.isfinite(upper), upper, 0.0)) + _SLACK
        under = middle < lower - _SLACK * lower - _SLACK
        out = (over | under) & (b > a)
        if out.any():
            at = level + (watts - level) * _fade(a, ramp)
            joules = _energy(b - a, at, level, ramp)
            bound = np.where(over, upper, lower)
            excess += float(np.abs(joules - bound * (b - a))[out].sum())
            pieces.append(np.stack([time + a, time + b], axis=1)[out])
    for one in sorted(map(tuple, np.concatenate(pieces).tolist())) if pieces else ():
        if found and one[0] - found[-1][1] <= _SLACK * max(1.0, abs(one[0])):
            found[-1] = (found[-1][0], one[1])
        else:
            found.append((one[0], one[1]))
    return found, excess


def _crossing(spans: _Spans, bound: Any, ramp: float) -> Any:
    """Seconds into each span at which the curve crosses a bound; its end if it does not."""
    _, length, watts, level, _, _ = spans
    if not ramp:
        return length
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = ramp * np.log((watts - level) / (bound - level))
    return np.where((seconds > 0) & (seconds < length), seconds, length)


def _curve(spans: _Spans, ramp: float) -> tuple[Any, Any, Any, Any]:
    """Times, watts and bounds; a ramp is drawn with several points."""
    time, length, watts, level, lower, upper = spans
    end = float(time[-1] + length[-1])
    last = level[-1] + (watts[-1] - level[-1]) * _fade(length[-1:], ramp)[0]
    offsets = np.arange(_POINTS * _RAMPS + 1) * (ramp / _POINTS) if ramp else np.zeros(1)
    where, which = np.nonzero((offsets[None, :] < length[:, None]) | (offsets[None, :] == 0))
    moving = (which == 0) | (watts[where] != level[where])
    where, which = where[moving], which[moving]
    values = level[where] + (watts[where] - level[where]) * _fade(offsets[which], ramp)
    return (
        np.append(time[where] + offsets[which], end),
        np.append(values, last),
        np.append(lower[where], lower[-1]),
        np.append(upper[where], upper[-1]),
    )


_TWO_SIDED_95 = 1.96  # standard deviations


class Metered(Indices):
    """Indices whose ``power`` is brought up to date by ``look``. Plain indices pay nothing for it."""

    __slots__ = ("_active", "_base", "_beyond", "_draw", "_error", "_forecaster", "_from", "_is_news",
                 "_is_uniform", "_means", "_metering", "_range", "_record", "_said", "_since",
                 "_swings", "_swung")  # fmt: skip

    def __init__(self, indices: Indices, metering: Metering, record: PowerRecord | None) -> None:
        """The same machine, metered from now on. What was known of its power holds on: jobs draw what they
        drew, and ramps begin where it is."""
        for name in Indices.__slots__:
            setattr(self, name, getattr(indices, name))
        self._metering, self._record = metering, record
        nodes = self.nodes.values()
        self._is_uniform = len({(node.idle_power, node.active_power) for node in nodes}) <= 1
        #: of a node that works, of an idle machine, and what the work at hand leads to
        active = [node.active_power for node in nodes]
        self._active = PowerRange(min(active, default=0.0), max(active, default=0.0))
        self._base = sum(node.idle_power for node in nodes)
        self._range = PowerRange(self._base, self._base)
        #: watts beyond the middle of that, of jobs that swing
        self._beyond = 0.0
        self._from, self._since = self._base, self.now
        #: watts per node as jobs say themselves, and on average over the nodes that they hold
        self._said: dict[str, PowerRange] = {}
        self._means: dict[str, PowerRange] = {}
        #: running jobs that swing, and what was measured of their nodes lately
        self._swings: dict[str, Swinging] = {}
        self._swung: dict[str, PowerRange] = {}
        self._forecaster: Forecaster | None = None
        self._is_news = True
        self._draw = random.Random(metering.seed)
        self._error = (self.now - 1.0, 0.0)
        self._note()
        for job in (*self.waiting, *(running.job for running in self.running.values())):
            self.expect(job)
        view = indices.power
        if view is not None:
            self._said |= view.jobs
            self.power = replace(view, levers=frozenset(), outside_nodes=0, outside_wanted=0)
        for running in self.running.values():
            self._gains(running, running.nodes)
        if view is not None and metering.ramp:
            self._from = view.watts
        self._note()

    @property
    def watts(self) -> float:
        """What the machine draws now."""
        level = self._level
        if not self._metering.ramp:
            return level
        return level + (self._from - level) * exp((self._since - self.now) / self._metering.ramp)

    @property
    def _level(self) -> float:
        """Where the work at hand leads to."""
        return (self._range.least + self._range.most) / 2 + self._beyond

    def expect(self, job: Job) -> None:
        """A job is submitted."""
        if job.power is not None:
            self._said[job.id] = job.power
            self._is_news = True

    def look(self) -> None:
        """Bring ``power`` up to date."""
        view = self.power or PowerView(0.0, active=self._active)
        self.power = replace(
            view,
            watts=self.reading,
            uncertainty=_TWO_SIDED_95 * self._metering.noise * self.watts,
            idle=self._idle_power(),
            jobs={**self._said, **self._means, **self._swung} if self._is_news else view.jobs,
            forecast=self._foretold(),
        )
        self._is_news = False

    @property
    def reading(self) -> float:
        """What a meter says now."""
        noise = self._metering.noise
        if noise and self._error[0] != self.now:  # one reading an instant, or plans would go on for ever
            self._error = (self.now, self._draw.gauss(0.0, noise))
        return max(0.0, self.watts * (1.0 + self._error[1]))

    def forecast_with(self, forecaster: Forecaster) -> None:
        """From now on this one, in place of the oracle."""
        self._forecaster = forecaster

    def _foretold(self) -> PowerRange | None:
        """Of the machine, over the horizon."""
        if self._metering.forecast == "oracle":
            return self._to_come() if self._swings else self._range
        found = None if self._forecaster is None else self._forecaster.forecast()
        return None if found is None else found.range

    def _to_come(self) -> PowerRange:
        """The least and the most that the work at hand will draw if nothing is decided."""
        least, most = self._range
        for job_id in self._swings:
            said = self._said[job_id].times(len(self.running[job_id].nodes))
            least, most = least - said.least, most - said.most
        step = min(one.swing.step for one in self._swings.values())
        times = [self.now + n * step for n in range(ceil(self._metering.horizon / step) + 1)]
        swings = [
            sum(len(self.running[job_id].nodes) * self._swing_of(job_id, time) for job_id in self._swings)
            for time in times
        ]
        return PowerRange(least + min(swings), most + max(swings))

    def _swing_of(self, job_id: str, time: float) -> float:
        """Watts of one of its nodes at that time, if it goes on as it is."""
        one = self._swings[job_id]
        number = floor((time - one.began) / one.swing.step + _SLACK)
        return one.swing.watts(self._said[job_id], number, 1.0 / (1.0 + self.mtct.get(job_id, 0.0)))

    def sway(self, job_id: str, one: "Swinging") -> None:
        """A running job comes to another step of its swing."""
        nodes = len(self.running[job_id].nodes)
        before = one.beyond if self._swings.get(job_id) is one else 0.0
        self._swings[job_id] = one
        said, watts = self._said[job_id], self._swing_of(job_id, self.now)
        one.beyond = watts - (said.least + said.most) / 2
        one.window.add(self.now, watts)
        seen = one.window.range
        if seen is not None:
            self._swung[job_id] = seen
            self._is_news = True
        self._shift(0.0, 0.0, nodes * (one.beyond - before))

    def start(self, job_id: str, nodes: int) -> Running:
        running = super().start(job_id, nodes)
        self._gains(running, running.nodes)
        return running

    def end(self, job_id: str) -> Running:
        running = super().end(job_id)
        self._draws(running.job, running.nodes, -1)
        self._forget_power(job_id)
        return running

    def withdraw(self, job_id: str) -> Job:
        self._forget_power(job_id)
        return super().withdraw(job_id)

    def requeue(self, job_id: str, arrival: int, ahead: int) -> Running:
        running = super().requeue(job_id, arrival, ahead)
        self.expect(running.job)
        return running

    def begin_resize(self, job_id: str, nodes: int, stall: float = 0.0) -> Running:
        before = len(self.running[job_id].nodes)
        running = super().begin_resize(job_id, nodes, stall)
        self._gains(running, running.nodes[before:])
        return running

    def finish_resize(self, job_id: str) -> Running:
        before = self.running[job_id].nodes
        running = super().finish_resize(job_id)
        self._draws(running.job, before[len(running.nodes) :], -1)
        self._gains(running, ())
        return running

    def add_node(self, node: Node) -> None:
        super().add_node(node)
        self._base += node.idle_power
        self._shift(node.idle_power, node.idle_power)

    def remove_node(self, name: str) -> Running | None:
        node = self.nodes[name]
        holder = super().remove_node(name)
        if holder is not None:  # first it goes back to idle
            self.nodes[name] = node
            self._draws(holder.job, (name,), -1)
            del self.nodes[name]
        self._base -= node.idle_power
        self._shift(-node.idle_power, -node.idle_power)
        return holder

    def _gains(self, running: Running, names: tuple[str, ...]) -> None:
        """A job works on these nodes, too. Where nodes differ, what one of its nodes draws is what they draw
        on average."""
        self._draws(running.job, names, 1)
        if not self._is_uniform and running.job.id not in self._said:
            watts = sum(self.nodes[name].active_power for name in running.nodes) / len(running.nodes)
            self._means[running.job.id] = PowerRange(watts, watts)
            self._is_news = True

    def _draws(self, job: Job, names: tuple[str, ...], sign: int) -> None:
        """Nodes begin or cease to draw what a job adds to their idle power, at least and at most."""
        said, count = self._said.get(job.id), len(names)
        if not count:
            return
        if self._is_uniform:
            node = self.nodes[names[0]]
            idle, active = node.idle_power * count, node.active_power * count
        else:
            idle = sum(self.nodes[name].idle_power for name in names)
            active = sum(self.nodes[name].active_power for name in names)
        least, most = (active, active) if said is None else (said.least * count, said.most * count)
        swinging = self._swings.get(job.id)
        beyond = swinging.beyond * count if swinging else 0.0
        self._shift(sign * (least - idle), sign * (most - idle), sign * beyond)

    def _shift(self, least: float, most: float, beyond: float = 0.0) -> None:
        """The work at hand leads to another level from now on."""
        if not least and not most and not beyond:
            return
        self._from, self._since = self.watts, self.now
        if self.running:
            self._range = PowerRange(self._range.least + least, self._range.most + most)
            self._beyond += beyond
        else:  # what rounding has left of all those steps ends here
            self._range = PowerRange(self._base, self._base)
            self._beyond = 0.0
        self._note()

    def _note(self) -> None:
        if self._record is not None:
            self._record.step(self.now, self.watts, self._level)

    def _forget_power(self, job_id: str) -> None:
        self._swings.pop(job_id, None)
        self._swung.pop(job_id, None)
        if self._said.pop(job_id, None) or self._means.pop(job_id, None):
            self._is_news = True

    def _idle_power(self) -> float:
        """Of an idle node; where they differ, of the idle ones on average."""
        names = self.idle or self.nodes
        if self._is_uniform:
            return next((self.nodes[name].idle_power for name in names), 0.0)
        return sum(self.nodes[name].idle_power for name in names) / len(names)


class Swinging(Companion):
    """A job whose power moves: woken at each step while it runs."""

    def __init__(self, job_id: str, swing: Swing, service: "SitePower") -> None:
        self._job_id, self.swing, self._service = job_id, swing, service
        self.began = 0.0
        self._step = 0
        #: watts of one node beyond the middle of the range
        self.beyond = 0.0
        self.window = LevelWindow()

    def begin(self, now: float) -> None:
        self.version += 1
        self.began, self._step, self.window = now, 0, LevelWindow()
        self._sway()

    def woken(self, now: float) -> None:
        if not self._service.is_over(self._job_id):
            self._step += 1
            self._sway()

    def _sway(self) -> None:
        service = self._service
        service.indices.sway(self._job_id, self)
        service.site.wake_at(self.began + (self._step + 1) * self.swing.step, self)


_RETRAIN = 60  # ticks from one fit to the next; a live cluster fits once a minute, and reads once a second
_LIMIT = 1_000_000  # bytes of a corridor
_TICK = 60.0  # seconds, where the platform says nothing


class SitePower(MachineService):
    """The metering, the corridor and the record of one run."""

    follows_decisions = True

    def __init__(
        self, platform: Platform, strategy: Any, record: Record | None, known: Corridor | None
    ) -> None:
        """``known`` is what a followed source says, if that is known."""
        self._metering = platform.metering or Metering()
        self._signal: CorridorSignal | None = None
        if known is None and strategy is not None and strategy.follow.startswith(PREFIX):
            self._signal = CorridorSignal.find(strategy.follow.removeprefix(PREFIX))
            self.corridor: Corridor | None = self._signal.at(0.0)
        else:
            self.corridor = _corridor(strategy, self._metering.corridor or known, known)
        self._swings: dict[str, Swinging] = {}
        self._forecaster: Forecaster | None = None
        if self._metering.forecast == "online" and strategy is not None and strategy.looks_ahead:
            steps = max(1, round(self._metering.horizon / platform.tick))
            self._forecaster = Forecaster(steps, period=platform.tick, models=self._metering.models)
        drawn = PowerRecord(self._metering.ramp, platform.tick)
        self._record = None if record is None else record.add(drawn)

    def watch(self, indices: Indices) -> Indices:
        self.indices = Metered(indices, self._metering, self._record)
        if self._forecaster is not None:
            self.indices.forecast_with(self._forecaster)
        return self.indices

    def accompany(self, life: Life) -> None:
        swing, job_id = life.arrival.swing, life.arrival.job.id
        if swing is not None and job_id not in self._swings:
            self._swings[job_id] = Swinging(job_id, swing, self)

    def is_over(self, job_id: str) -> bool:
        """Whether a job that swings does not run; one that waits again begins anew when it starts."""
        if job_id in self.indices.running:
            return False
        if job_id not in self.indices.waiting:
            del self._swings[job_id]
        return True

    def begin(self) -> None:
        self.site.snapshot.corridor = self.corridor
        self.woken(self.site.indices.now)

    def woken(self, now: float) -> None:
        """At each step of the corridor."""
        self._note(now)
        steps = () if self.corridor is None else self.corridor.steps
        # The first step also holds before its time, so nothing changes at it.
        index = max(1, bisect_right(steps, (now, inf, inf)))
        self.site.decide_at(steps[index][0] if index < len(steps) else inf, self)

    def end(self, now: float) -> None:
        if self._record is not None:
            self._record.end = now

    def tick(self, now: float) -> None:
        if self._forecaster is not None:
            self._forecaster.add(now, self.indices.reading)
            self._forecaster.refit_when_due(_RETRAIN * self._forecaster.period)
        if self._signal is None:
            return
        before, self.corridor = self.corridor, self._signal.at(now)
        if before != self.corridor:
            self.site.snapshot.corridor = self.corridor
            self._note(now)

    def submitted(self, job: Job) -> None:
        self.indices.expect(job)

    def look(self) -> None:
        self.indices.look()

    def carried_out(self, plan: Plan) -> None:
        for start in plan.starts if self._swings else ():
            if start.job in self._swings and start.job in self.indices.running:
                self._swings[start.job].begin(self.indices.now)
        self.indices.look()
        self.indices.pull_levers(plan)

    def _note(self, now: float) -> None:
        """Write down the corridor that holds from now on."""
        if self._record is not None and self.corridor is not None:
            self._record.bound(now, self.corridor)


def check_powers(workload: Workload, platform: Platform, policy: Policy) -> None:
    """Complain about a corridor on a machine of which nobody says what it draws."""
    strategy = policy.power
    if strategy is None or platform.has_powers:
        return
    is_asked = strategy.follow or _is_bounded(strategy.corridor)
    if is_asked and all(arrival.job.power is None for arrival in workload):
        raise InputError(
            "power",
            f"{policy.name} has a corridor, but nothing says what the machine draws",
            "--machine NAME, idle_power and active_power of the platform, or power of jobs",
        )


def with_tick(platform: Platform, policy: Policy) -> Platform:
    """A signal is asked at ticks, and power read that is forecast, so there must be some."""
    is_read = platform.metering is not None and platform.metering.forecast == "online"
    if platform.tick or policy.power is None or not (is_read or policy.power.follow.startswith(PREFIX)):
        return platform
    return replace(platform, tick=_TICK)


def _corridor(strategy: Any, otherwise: Corridor | None, known: Corridor | None) -> Corridor | None:
    if strategy is None:
        return otherwise
    if not strategy.follow:
        return strategy.corridor if otherwise is None or _is_bounded(strategy.corridor) else otherwise
    try:
        return known or Corridor.parse(read_file(Path(strategy.follow), _LIMIT))
    except InputError as error:
        raise error.in_file(one_line(strategy.follow)) from None


def _is_bounded(corridor: Corridor) -> bool:
    return any(lower > 0 or upper < inf for _, lower, upper in corridor.steps)
