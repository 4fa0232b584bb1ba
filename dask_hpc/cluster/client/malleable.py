"""``dask_hpc.malleable``: an existing cluster object grows and shrinks, and never loses work by it."""

import asyncio
from math import inf
from pathlib import Path
from typing import Any

from distributed.deploy import Adaptive
from distributed.utils import NoOpAwaitable
from tornado.ioloop import PeriodicCallback

from dask_hpc import dask as compat
from dask_hpc import services
from dask_hpc.batch.systems import is_slurm
from dask_hpc.cluster.client.adaptive import HPCAdaptive, Lossless, UnitTimes
from dask_hpc.cluster.client.manager import manage
from dask_hpc.cluster.units import UnitLayout, is_closing, members
from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.policy import Policy

_LOOK = 5.0  # seconds between two looks at who works, for those who are asked for a time of their own
_METHODS = ("scale", "scale_up", "adapt")


def malleable(cluster: Any, policy: str | Path | Policy | None = None, reservation: Any = None) -> Any:
    """Manage this cluster, and make every change of its size lossless. Gives the ``Manager`` that
    ``manage(cluster, policy)`` gives (an awaitable of one if the cluster is asynchronous); the cluster
    object stays the one to use, and is as before when the manager is closed.

    For a ``LocalCluster``, any ``SpecCluster`` or one of dask-jobqueue. From now on

    - ``cluster.scale`` picks the units that are easiest to miss: those that are not there yet, then idle
      ones with little data. A batch job with several workers goes as a whole.
    - Units that are to go first finish what they run and hand over their data. One whose data has no other
      place stays, and that is told (``Manager.story()`` and a warning in the log).
    - ``cluster.adapt`` uses ``HPCAdaptive`` if no other class is named, keeps to ``minimum`` and
      ``maximum`` exactly whether counted in workers, jobs, cores or memory, uses the configured ones
      (``distributed.adaptive``) where none are given, and remembers nothing from earlier calls.

    ``reservation`` is for the batch jobs of a ``SLURMCluster``: each asks for as long as a plan says, instead
    of one constant walltime, and so do the successors of those whose time ends. It is what
    ``plan_reservation`` gives; the name of a job, of which past runs are known; or "auto": past runs of this
    script, each of which is noted when it ends well (the first asks for the constant walltime).
    """
    if not compat.has_units(cluster):
        raise InputError(
            "malleable", f"found {shown(cluster)}", "a cluster object of Dask with a worker_spec"
        )
    times = None if reservation is None else _unit_times(cluster, reservation)
    manager = manage(cluster, policy)

    async def wrapped() -> Any:
        return Malleable(cluster, times).until_closed(await manager)

    return wrapped() if cluster.asynchronous else Malleable(cluster, times).until_closed(manager)


def _unit_times(cluster: Any, reservation: Any) -> UnitTimes:
    is_fine = is_slurm(compat.batch_job_of(cluster))
    insist(is_fine, "reservation: cluster", type(cluster).__name__, "a SLURMCluster of dask-jobqueue")
    room = services.reservations()
    insist(room is not None, "reservation", reservation, "nothing: its package is not installed")
    times: UnitTimes = room.unit_walltimes(reservation)
    return times


class Malleable:
    """The methods that a malleable cluster object has instead of its own."""

    def __init__(self, cluster: Any, times: UnitTimes | None = None) -> None:
        self._cluster = cluster
        self._times = times

    def until_closed(self, manager: Any) -> Any:
        """Put them on the cluster object until the manager is closed. Gives the manager."""
        manager.before_close(self.end)
        self._lossless = Lossless.around(self._cluster)
        self._lossless.hold(self)
        if self._times is not None:
            self._lossless.times = self._times
            self._watch = PeriodicCallback(self._look, _LOOK * 1000)
            self._cluster.loop.add_callback(self._watch.start)
        for name, method in zip(_METHODS, (self.scale, self.scale, self.adapt), strict=True):
            compat.attach(self._cluster, name, method)
        return manager

    def _look(self) -> None:
        """Time goes by for units that are asked for a time of their own."""
        if is_closing(self._cluster):
            self._watch.stop()
        else:
            self._lossless.look()

    async def end(self) -> None:
        """Take them off again, once the units that are leaving have left."""
        # the manager may live on another event loop
        there = self._cluster.loop.asyncio_loop
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._end(), there))

    async def _end(self) -> None:
        await self._lossless.finish()
        if self._times is not None:
            self._look()
            self._watch.stop()
        adaptive = compat.adaptive_of(self._cluster)
        if isinstance(adaptive, HPCAdaptive):
            adaptive.stop("the manager was closed")
        for name in _METHODS:
            compat.attach(self._cluster, name, None)
        self._lossless.times = None
        self._lossless.let_go(self)

    def scale(self, n: Any = None, jobs: Any = None, memory: Any = None, cores: Any = None) -> Any:
        """Bring the cluster to so many workers, jobs, cores or so much memory: enough units for all that is
        given. Returns before they are there."""
        cluster = self._cluster
        if is_closing(cluster):
            return type(cluster).scale(cluster, n or 0)
        units = UnitLayout.of(cluster).size(n, jobs, cores, memory)
        if cluster.asynchronous:
            self._resize(units)
            return NoOpAwaitable()
        # On the event loop: a change beside it, as Dask makes it, may come while units are being made, and
        # leave one that is never started.
        return cluster.sync(self._resize_there, units)

    async def _resize_there(self, units: int) -> None:
        self._resize(units)

    def _resize(self, units: int) -> None:
        cluster = self._cluster
        spec = cluster.worker_spec
        here = {str(worker["name"]) for worker in cluster.scheduler_info["workers"].values()}
        pending = [name for name in spec if here.isdisjoint(members(name, spec[name]))]
        surplus = max(0, len(spec) - units)
        self._lossless.remove(pending[::-1][:surplus])
        self._lossless.add(max(0, units - len(spec)))
        self._lossless.wanted = units
        cluster.loop.add_callback(compat.correct_soon, cluster)

    def adapt(
        self,
        Adaptive: type[Adaptive] = HPCAdaptive,
        minimum: Any = None,
        maximum: Any = None,
        minimum_jobs: Any = None,
        maximum_jobs: Any = None,
        minimum_cores: Any = None,
        maximum_cores: Any = None,
        minimum_memory: Any = None,
        maximum_memory: Any = None,
        allow_empty: bool = False,
        **keywords: Any,
    ) -> Adaptive:
        """Adapt the size to the work from now on; see ``HPCAdaptive``. All limits that are given hold."""
        cluster = self._cluster
        layout = UnitLayout.of(cluster)
        least, most = layout.limits(
            (minimum, minimum_jobs, minimum_cores, minimum_memory),
            (maximum, maximum_jobs, maximum_cores, maximum_memory),
            allow_empty,
        )
        if issubclass(Adaptive, HPCAdaptive):
            keywords["limits"] = (least, most)
        before = compat.adaptive_of(cluster)
        if before is not None:
            before.stop("adapted anew")
        found = Adaptive(
            cluster,
            minimum=least * layout.workers,
            maximum=most if most == inf else int(most) * layout.workers,
            **keywords,
        )
        compat.adapted_by(cluster, found)
        return found
