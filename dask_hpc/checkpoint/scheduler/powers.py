"""What a second of work and one of commits draw, as far as the cluster's power is measured or modelled."""

from dask_hpc.checkpoint.scheduler.context import ControllerContext
from dask_hpc.cluster.scheduler.service import context_of
from dask_hpc.planning.interval import TIME, Weights, energy_weights


def powers(context: ControllerContext) -> tuple[Weights, str]:
    """Watts of all nodes: those of now while they work, and those of idle ones while they commit and restore.
    If nobody knows them, time is as good as energy, which is to be said."""
    managed = context_of(context.scheduler)
    view = None if managed is None else managed.indices.power
    if managed is None or view is None or not view.watts > 0:
        return TIME, "for least time: nobody knows what the nodes draw (power is known under dask_hpc.manage)"
    nodes = max(1, len(managed.nodes))
    working = max(view.watts / nodes, view.active.most, view.idle)
    resting = view.idle if view.idle > 0 else working
    said = f"a node draws {working:.0f} W at work, {resting:.0f} W in commits"
    return energy_weights(nodes * working, nodes * resting), said
