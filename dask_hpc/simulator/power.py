"""Indices that know what the machine draws: every node its idle power, or what its job makes it draw.

A node that a job holds draws the mean of the job's power range, or the node's own active power if the job
does not say; launch, resizes and clean-up included. Nodes that are down draw nothing. Since every node
lags behind its work in the same way, the machine as a whole does, and its power is known at any instant from
three numbers: where it was, when that was, and where it is going.

What a policy sees of it is a ``PowerView`` without levers: nothing runs outside of jobs here, so holding has
no meaning, and caps and releases are not simulated. Its forecast is the power that the ramps lead to if
nothing is decided, from the least to the most that its jobs may draw: strategies see the ends of jobs
themselves.
"""

import random
from bisect import bisect_right
from dataclasses import replace
from math import exp, inf
from pathlib import Path
from typing import Any

from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.plan import Plan
from dask_hpc.model.power import PREFIX, Corridor, CorridorSignal, PowerRange, PowerView
from dask_hpc.model.snapshot import Indices, Running, Snapshot
from dask_hpc.policy import Policy
from dask_hpc.simulator.platform import Metering, Platform
from dask_hpc.simulator.power_trace import PowerRecord
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.service import MachineService
from dask_hpc.simulator.values import read_file
from dask_hpc.simulator.workload import Workload

_TWO_SIDED_95 = 1.96  # standard deviations


class Metered(Indices):
    """Indices whose ``power`` is brought up to date by ``look``. Plain indices pay nothing for it."""

    __slots__ = ("_active", "_base", "_draw", "_error", "_from", "_is_news", "_is_uniform", "_means",
                 "_metering", "_range", "_record", "_said", "_since")  # fmt: skip

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
        self._from, self._since = self._base, self.now
        #: watts per node as jobs say themselves, and on average over the nodes that they hold
        self._said: dict[str, PowerRange] = {}
        self._means: dict[str, PowerRange] = {}
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
        level = (self._range.least + self._range.most) / 2
        if not self._metering.ramp:
            return level
        return level + (self._from - level) * exp((self._since - self.now) / self._metering.ramp)

    def expect(self, job: Job) -> None:
        """A job is submitted."""
        if job.power is not None:
            self._said[job.id] = job.power
            self._is_news = True

    def look(self) -> None:
        """Bring ``power`` up to date."""
        watts, noise = self.watts, self._metering.noise
        if noise and self._error[0] != self.now:  # one reading an instant, or plans would go on for ever
            self._error = (self.now, self._draw.gauss(0.0, noise))
        view = self.power or PowerView(0.0, active=self._active)
        self.power = replace(
            view,
            watts=max(0.0, watts * (1.0 + self._error[1])),
            uncertainty=_TWO_SIDED_95 * noise * watts,
            idle=self._idle_power(),
            jobs={**self._said, **self._means} if self._is_news else view.jobs,
            forecast=self._range,
        )
        self._is_news = False

    # nodes change hands

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
        self._shift(sign * (least - idle), sign * (most - idle))

    def _shift(self, least: float, most: float) -> None:
        """The work at hand leads to another level from now on."""
        if not least and not most:
            return
        self._from, self._since = self.watts, self.now
        if self.running:
            self._range = PowerRange(self._range.least + least, self._range.most + most)
        else:  # what rounding has left of all those steps ends here
            self._range = PowerRange(self._base, self._base)
        self._note()

    def _note(self) -> None:
        if self._record is not None:
            level = (self._range.least + self._range.most) / 2
            self._record.step(self.now, self.watts, level)

    def _forget_power(self, job_id: str) -> None:
        if self._said.pop(job_id, None) or self._means.pop(job_id, None):
            self._is_news = True

    def _idle_power(self) -> float:
        """Of an idle node; where they differ, of the idle ones on average."""
        names = self.idle or self.nodes
        if self._is_uniform:
            return next((self.nodes[name].idle_power for name in names), 0.0)
        return sum(self.nodes[name].idle_power for name in names) / len(names)


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
        drawn = PowerRecord(self._metering.ramp, platform.tick)
        self._record = None if record is None else record.add(drawn)

    def watch(self, indices: Indices) -> Indices:
        self._indices = Metered(indices, self._metering, self._record)
        return self._indices

    def show(self, snapshot: Snapshot) -> None:
        snapshot.corridor = self.corridor

    def begin(self) -> None:
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
        if self._signal is None:
            return
        before, self.corridor = self.corridor, self._signal.at(now)
        if before != self.corridor:
            self.site.snapshot.corridor = self.corridor
            self._note(now)

    def submitted(self, job: Job) -> None:
        self._indices.expect(job)

    def look(self) -> None:
        self._indices.look()

    def carried_out(self, plan: Plan) -> None:
        self._indices.look()
        self._indices.pull_levers(plan)

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
    """A signal is asked at ticks, so there must be some."""
    if platform.tick or policy.power is None or not policy.power.follow.startswith(PREFIX):
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
