"""From a snapshot of a live or simulated machine to a machine that goes on from there.

What a snapshot cannot say is estimated: a running job ends when its progress says, or else when its
walltime says; a waiting job takes its walltime, and without one as long as the known ones do on average.
Jobs draw what is known of their power, and nodes what the snapshot says where they do not say it themselves;
what runs outside of jobs is left out.
"""

from dataclasses import replace
from math import inf, isfinite
from statistics import fmean

from dask_hpc.model.indices import Indices, Running
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.power import PowerView
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.speedup import Linear
from dask_hpc.policy import Policy
from dask_hpc.simulator.engine import Machine
from dask_hpc.simulator.metering import Metering
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.workload import Arrival

#: seconds for a job of which nothing is known, on a machine of which nothing is known
_UNKNOWN = 600.0


def machine_from(snapshot: Snapshot, policy: Policy, platform: Platform | None, record: Record) -> Machine:
    """A machine in the state of the snapshot, under a policy of its own."""
    indices = snapshot.thaw()
    if indices.power is not None:
        _give_powers(indices.nodes, indices.power)
    machine = Machine(platform or _platform(indices), policy, record, corridor=snapshot.corridor)
    guess = _typical_length(indices)
    running = sorted(indices.running.values(), key=lambda one: one.order)
    waiting = sorted(indices.waiting, key=lambda job: indices.waiting.arrival_of(job.id))
    machine.take_over(
        indices,
        [_going_on(one, indices, guess) for one in running],
        [_arrival(job, job.walltime if job.walltime < inf else guess) for job in waiting],
    )
    return machine


def _platform(indices: Indices) -> Platform:
    node = next(iter(indices.nodes.values()), Node("none"))
    size = max(len(indices.nodes), 1)
    metering = Metering() if indices.power is not None else None
    return Platform(size, idle_power=node.idle_power, active_power=node.active_power, metering=metering)


def _give_powers(nodes: dict[str, Node], view: PowerView) -> None:
    """To nodes that do not say what they draw."""
    active = max(view.idle, (view.active.least + view.active.most) / 2)
    for name, node in nodes.items():
        if not node.active_power:
            nodes[name] = replace(node, idle_power=view.idle, active_power=active)


def _arrival(job: Job, runtime: float) -> Arrival:
    return Arrival(job, runtime, speedup=job.speedup or Linear())


def _going_on(running: Running, indices: Indices, guess: float) -> tuple[Arrival, float]:
    """What a running job is as a whole, and the share of it that is done."""
    job, now = running.job, indices.now
    elapsed = max(now - running.started, 0.0)
    done = indices.progress.get(job.id)
    if done is not None and 0 < done < 1:
        total = elapsed / done
    else:
        left = running.expected_end - now
        total = elapsed + (max(left, 0.0) if isfinite(left) else max(guess - elapsed, 0.1 * guess))
        done = elapsed / total if total else 1.0
    speedup = job.speedup or Linear()
    size = max(len(running.nodes), 1)
    at_start_size = total * speedup.factor(size) / speedup.factor(job.nodes)
    return _arrival(job, at_start_size), done


def _typical_length(indices: Indices) -> float:
    jobs = [*indices.waiting, *(one.job for one in indices.running.values())]
    known = [job.walltime for job in jobs if job.walltime < inf]
    return fmean(known) if known else _UNKNOWN
