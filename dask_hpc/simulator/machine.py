"""The simulated machine with all its services, empty or in the state of a snapshot.

What a snapshot of a live or simulated machine cannot say is estimated: a running job ends when its progress
says, or else when its walltime says; a waiting job takes its walltime, and without one as long as the known
ones do on average. With a seed these estimates are drawn instead, for each job the same under every policy:
how sure a prediction is shows in how much the draws differ. Jobs draw what is known of their power, and nodes
what the snapshot says where they do not say it themselves; what runs outside of jobs is left out.
"""

from dataclasses import replace
from math import inf, isfinite
from random import Random
from statistics import fmean

from dask_hpc.model.errors import insist
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.power import Corridor
from dask_hpc.model.snapshot import Indices, Running, Snapshot
from dask_hpc.model.speedup import Linear
from dask_hpc.policy import Policy
from dask_hpc.simulator.application import Application
from dask_hpc.simulator.copy_nodes import CopyNodes
from dask_hpc.simulator.engine import Engine
from dask_hpc.simulator.job_commits import CommitDesk
from dask_hpc.simulator.lanes import ReadDesk
from dask_hpc.simulator.network_pace import NetworkPace
from dask_hpc.simulator.pipelines import Pipelines
from dask_hpc.simulator.platform import Metering, Platform
from dask_hpc.simulator.power import SitePower, with_tick
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.service import MachineService
from dask_hpc.simulator.units import UnitDesk
from dask_hpc.simulator.workload import Arrival, Workload

#: seconds for a job of which nothing is known, on a machine of which nothing is known
_UNKNOWN = 600.0
#: what is left of a job whose progress is known may be so much more or less than it seems
_PROGRESS_ERRS = 1.25
#: and a job of which nothing is known so much longer or shorter than the others
_GUESS_ERRS = 3.0
#: share of its walltime that a job takes: in traces of batch systems all shares are about as frequent
_USED = (0.05, 1.0)


class Machine(Engine):
    """A simulated machine under one policy. Memory grows with live jobs only, unless recorded."""

    def __init__(
        self,
        platform: Platform | int,
        policy: Policy,
        record: Record | None = None,
        *,
        story: int = 10_000,
        corridor: Corridor | None = None,
    ) -> None:
        """``corridor`` is what a source that the policy follows says, if that is known."""
        platform = with_tick(platform if isinstance(platform, Platform) else Platform(platform), policy)
        network = None if platform.topology is None else NetworkPace(platform.topology)
        commits = CommitDesk(network)
        services: list[MachineService] = [commits, Pipelines()]
        if network is not None:
            services.append(network)
        if policy.lending is not None and platform.copies:
            services.append(CopyNodes(platform.copies, policy, commits))
        if policy.io is not None:
            services.append(ReadDesk())
        if platform.units is not None:
            insist(policy.power is None, "units", policy.name, "a policy that keeps no power")
            services.insert(0, UnitDesk(platform.units))
        if policy.power is not None or platform.metering is not None:
            services.append(SitePower(platform, policy.power, record, corridor))
        super().__init__(platform, policy, record, story=story, services=services)


def left_out(policy: Policy, platform: Platform, workload: Workload) -> list[str]:
    """A line for each part of a policy that has nothing to go by on this machine with these jobs."""
    lines = []
    if policy.lending is not None and not platform.copies:
        lines.append(f"{policy.name}: lending: {policy.lending.name} does nothing: platform.copies is 0")
    if platform.units is None and (policy.size.name, policy.size) != ("demand", type(policy.size)()):
        lines.append(
            f"{policy.name}: size: {policy.size.name} does nothing: this machine has the nodes it has"
        )
    if policy.failure is not None and platform.failures is None:
        lines.append(
            f"{policy.name}: failure: {policy.failure.name} does nothing: no node of this machine fails"
        )
    if policy.nodes is not None and policy.nodes.name != "first":
        name = policy.nodes.name
        if platform.topology is None and not platform.groups:
            lines.append(
                f"{policy.name}: nodes: {name} does nothing: nobody knows where nodes are (platform.topology)"
            )
        elif name == "least-congested" and platform.topology is None:
            lines.append(f"{policy.name}: nodes: {name} picks neighbours: platform.topology is not known")
        elif name == "least-congested" and not any(arrival.job.traffic for arrival in workload):
            lines.append(f"{policy.name}: nodes: {name} picks neighbours: no job says its traffic")
    declared = (arrival.checkpoint for arrival in workload)
    if policy.checkpoint is not None and not any(one and "partner" in one.levels for one in declared):
        lines.append(
            f"{policy.name}: checkpoint: {policy.checkpoint.name} does nothing: no job commits to partners"
        )
    if policy.io is not None:
        if not any(_has_reads(arrival) for arrival in workload):
            lines.append(
                f"{policy.name}: io: {policy.io.name} has nothing to go by: no job has phases that read"
            )
        elif policy.io.pair or policy.io.together:
            lines.append(
                f"{policy.name}: io: {policy.io.name} only limits reads here: a node of a simulated job "
                "does one thing at a time, so nothing is paired and nobody is a neighbour"
            )
    of_tasks = {"together": policy.together, "memory": policy.memory, "tail": policy.tail}
    for concern, strategy in of_tasks.items():
        if strategy is not None:
            lines.append(
                f"{policy.name}: {concern}: {strategy.name} does nothing: a simulated job is not of tasks"
            )
    if policy.files is not None:
        lines.append(f"{policy.name}: files: {policy.files.name} does nothing: no simulated job keeps files")
    is_by_io = "io-aware" in (policy.queue.name, policy.malleability and policy.malleability.name)
    if is_by_io and all(arrival.job.io_intensity is None for arrival in workload):
        lines.append(f"{policy.name}: io-aware has nothing to go by: no job says its io_intensity, or phases")
    return lines


def _has_reads(arrival: Arrival) -> bool:
    application = arrival.application
    return isinstance(application, Application) and application.reads


def machine_from(
    snapshot: Snapshot,
    policy: Policy,
    platform: Platform | None,
    record: Record,
    *,
    seed: int | None = None,
    story: int = 10_000,
) -> Machine:
    """A machine in the state of the snapshot, under a policy of its own."""
    indices = snapshot.thaw()
    if policy.lending is None:  # as it would be live
        indices.let_go_of_loans()
    view, nodes = indices.power, indices.nodes
    if view is not None:  # for nodes that do not say what they draw
        active = max(view.idle, (view.active.least + view.active.most) / 2)
        for name, node in nodes.items():
            if not node.active_power:
                nodes[name] = replace(node, idle_power=view.idle, active_power=active)
    if platform is None:
        node = next(iter(nodes.values()), Node("none"))
        # power is followed under every policy, not only those that care, so that all are told alike
        metering = Metering() if view is not None or node.active_power else None
        idle, active = node.idle_power, node.active_power
        platform = Platform(max(len(nodes), 1), idle_power=idle, active_power=active, metering=metering)
    # units are not known: there are the nodes of the snapshot, as long as it lasts
    platform = replace(platform, units=None)
    machine = Machine(platform, policy, record, corridor=snapshot.corridor, story=story)
    estimate = _Estimate(indices, seed)
    running = sorted(indices.running.values(), key=lambda one: one.order)
    waiting = sorted(indices.waiting, key=lambda job: indices.waiting.arrival_of(job.id))
    machine.take_over(
        indices, [estimate.going_on(one) for one in running], [estimate.waiting(job) for job in waiting]
    )
    return machine


class _Estimate:
    """How long jobs take, drawn if there is a seed."""

    def __init__(self, indices: Indices, seed: int | None) -> None:
        self._now, self._progress, self._seed = indices.now, indices.progress, seed
        jobs = [*indices.waiting, *(one.job for one in indices.running.values())]
        known = [job.walltime for job in jobs if job.walltime < inf]
        self._typical = fmean(known) if known else _UNKNOWN

    def _drawn(self, job: Job, low: float, high: float) -> float:
        """For each job the same under every policy; 1 if nothing is drawn."""
        return 1.0 if self._seed is None else Random(f"{self._seed} {job.id}").uniform(low, high)

    def _err(self, job: Job, factor: float) -> float:
        """As often that much too long as too short."""
        return 1.0 if self._seed is None else float(factor ** self._drawn(job, -1, 1))

    def waiting(self, job: Job) -> Arrival:
        """A job of which nothing has been seen."""
        if job.walltime < inf:
            length = job.walltime * self._drawn(job, *_USED)
        else:
            length = self._typical * self._err(job, _GUESS_ERRS)
        return Arrival(job, length, speedup=job.speedup or Linear())

    def going_on(self, running: Running) -> tuple[Arrival, float]:
        """What a running job is as a whole, and the share of it that is done."""
        job, done = running.job, self._progress.get(running.job.id)
        elapsed = max(self._now - running.started, 0.0)
        expected = running.expected_end - self._now
        if done is not None and 0 < done < 1:
            left = (elapsed / done - elapsed) * self._err(job, _PROGRESS_ERRS)
        elif isfinite(expected):  # nothing is known but that it has not ended yet
            left = max(expected, 0.0) * self._drawn(job, 0, 1)
        else:
            left = max(self._typical * self._err(job, _GUESS_ERRS) - elapsed, 0.1 * self._typical)
        total = elapsed + left
        speedup = job.speedup or Linear()
        at_start_size = total * speedup.factor(max(len(running.nodes), 1)) / speedup.factor(job.nodes)
        return Arrival(job, at_start_size, speedup=speedup), elapsed / total if total else 1.0
