"""A machine written down in a line, for cases worked out by hand."""

from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.strategies.strategy import outlook_after


def machine(nodes, *running, now=10.0):
    """A machine where (nodes, expected end) jobs run since 0."""
    indices = Indices(Node(str(i)) for i in range(nodes))
    for number, (size, end) in enumerate(running):
        indices.waiting.add(Job(id=f"r{number}", nodes=size, walltime=end))
        indices.start(f"r{number}", size)
    indices.now = now
    return indices


def wait(indices, *jobs):
    for name, nodes, walltime in jobs:
        indices.waiting.add(Job(id=name, nodes=nodes, walltime=walltime))


def decided(indices, strategy, memory=None):
    """The names of the jobs that start now, which are then started, and what is remembered."""
    starts, memory = strategy.decide(Snapshot(indices), memory)
    for start in starts:
        indices.start(start.job, start.nodes)
    return [start.job for start in starts], memory


def started(indices, name, size, least=1, most=16, **more):
    """Start a malleable job on ``size`` nodes; it becomes a running job like any other."""
    more = {"walltime": 1000.0, "kind": "malleable"} | more
    indices.waiting.add(Job(id=name, nodes=size, min_nodes=least, max_nodes=most, **more), ahead=9)
    indices.start(name, size)


def resizes(indices, strategy, memory=None):
    """What a malleability strategy plans, if nobody starts."""
    snapshot = Snapshot(indices)
    return strategy.decide(snapshot, outlook_after(snapshot, ()), memory)[0]


def sizes(indices, strategy, memory=None):
    """The new sizes that a malleability strategy plans, in the order of the plan."""
    return {resize.job: resize.nodes for resize in resizes(indices, strategy, memory)}
