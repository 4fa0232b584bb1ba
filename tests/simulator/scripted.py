"""Policies for tests that do what a script says, whatever the machine looks like."""

from dask_hpc import Policy
from dask_hpc.model.plan import Interrupt, Resize
from dask_hpc.strategies.queue.fcfs import Fcfs


class Script:
    """Resizes ``{time: [(job, nodes), ...]}``, tried at each decision from that time on until possible."""

    concern = "malleability"
    name = "script"

    def __init__(self, resizes):
        self.resizes = resizes

    def decide(self, snapshot, outlook, memory):
        done = memory or frozenset()
        free = {running.job.id for running in snapshot.resizable}
        plan = {
            job: (time, nodes)
            for time, resizes in self.resizes.items()
            for job, nodes in resizes
            if time <= snapshot.now and (time, job) not in done and job in free
        }
        done |= {(time, job) for job, (time, _) in plan.items()}
        return [Resize(job, nodes, "the script says so") for job, (_, nodes) in plan.items()], done


class Steal:
    """When a job fails, interrupt the named one."""

    concern = "failure"
    name = "steal"

    def __init__(self, victim):
        self.victim = victim

    def decide(self, snapshot, outlook, memory):
        return [Interrupt(self.victim, "the script says so")] if self.victim in snapshot.running else [], None


def scripted(resizes=None, victim=None):
    return Policy(
        "scripted",
        Fcfs(),
        malleability=Script(resizes) if resizes is not None else None,
        failure=Steal(victim) if victim else None,
    )
