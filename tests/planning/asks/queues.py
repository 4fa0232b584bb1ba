"""Queues to ask in, made by hand."""

from math import inf

from dask_hpc.planning.asks.queue import (
    Maintenance,
    PendingAsk,
    QueueNode,
    QueuePartition,
    QueueView,
    RunningAsk,
)

MINUTE, HOUR = 60.0, 3600.0


def queue(running=(), pending=(), reserved=(), nodes=4, cores=1, partitions=None, now=0.0, qos=None, me="me"):
    """Nodes n0, n1 ...: ``running`` has (id, nodes, seconds left), ``pending`` (id, nodes, walltime)."""
    names = tuple(f"n{at}" for at in range(nodes))
    held = {f"n{at}" for _, where, _ in running for at in where}
    return QueueView(
        now,
        {name: QueueNode(name, cores, free_cores=0 if name in held else cores) for name in names},
        partitions or {"batch": QueuePartition("batch", names, is_default=True)},
        tuple(
            RunningAsk(job, tuple(f"n{at}" for at in where), now, left, submitted=now - 1)
            for job, where, left in running
        ),
        tuple(PendingAsk(job, ("batch",), size, limit, submitted=now) for job, size, limit in pending),
        tuple(Maintenance(name, start, end, where) for name, start, end, where in reserved),
        qos or {},
        me,
    )


def part(name, nodes, **limits):
    """A partition."""
    return QueuePartition(name, tuple(f"n{at}" for at in nodes), **limits)


NEVER = inf
