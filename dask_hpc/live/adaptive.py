"""``cluster.adapt(Adaptive=dask_hpc.HPCAdaptive, ...)``: the scheduler decides the size, we only act."""

import asyncio
import logging
from datetime import timedelta
from math import inf
from secrets import token_hex
from time import monotonic
from typing import Any

from distributed import Client
from distributed.deploy import Adaptive

from dask_hpc.live import compat
from dask_hpc.live.batch_jobs import BatchJobs
from dask_hpc.live.lossless import Lossless
from dask_hpc.live.manager import prepare
from dask_hpc.live.unit_facts import Facts, UnitFacts
from dask_hpc.live.units import Layout, is_closing, members
from dask_hpc.model.errors import InputError, shown
from dask_hpc.policy import parameters_of

logger = logging.getLogger(__name__)


class HPCAdaptive(Adaptive):
    """Adapts the size of a cluster as the concern ``size`` of the policy in force says.

    ``minimum`` and ``maximum`` are workers, as in Dask; a batch job of several workers comes and goes as
    a whole. ``limits`` are the two in units, and win. A maximum of 0 would close everything, so it
    needs ``allow_empty=True``. Any parameter of the size strategy may be given here and then wins over the
    policy's (``target_duration="10s"``, ``idle_grace="1 min"``, ``forbid_idling=True``). ``poll`` is how
    often, in seconds, the batch system is asked about our jobs at most. ``wait_count`` and ``worker_key``
    are accepted and do nothing: ``idle_grace`` and units are in their place.

    A cluster that is not managed is put under the configured policy, which leaves tasks outside of jobs
    alone. While this adapts a cluster, none of its units is closed before its data and tasks are elsewhere.
    ``maximum_cores`` and the like are exact only after ``malleable(cluster)``: Dask itself confuses the
    units before they come here.
    """

    _adapting: bool

    def __init__(
        self,
        cluster: Any,
        interval: Any = None,
        minimum: Any = None,
        maximum: Any = None,
        wait_count: Any = None,
        target_duration: Any = None,
        worker_key: Any = None,
        *,
        allow_empty: bool = False,
        limits: tuple[int, float] | None = None,
        poll: float = 5.0,
        **parameters: Any,
    ) -> None:
        self.state = "inactive"  # for stop(), if what follows fails
        if target_duration is not None:
            parameters["target_duration"] = target_duration
        known = parameters_of("size")
        for name in parameters:
            if name not in known:
                raise InputError(f"adapt: {name}", "unknown keyword", ", ".join(sorted(known)))
        if not compat.has_units(cluster):
            raise InputError("adapt", f"found {shown(cluster)}", "a cluster object with a worker_spec")
        self._parameters = {name: _plain(value) for name, value in parameters.items()}
        self._is_managed = False
        self._asker = token_hex(4)
        self._jobs = BatchJobs(poll)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._layout = Layout.of(cluster)
        if limits is None:
            # Dask's own adapt() passes 0 and infinity where nothing was said.
            most = self._layout.maximum(None if maximum == inf else maximum, None, None, None, allow_empty)
            limits = (self._layout.minimum(minimum or None, None, None, None), most)
        least, most = self.limits = limits
        if least > most:
            raise InputError("adapt: minimum", f"found {least} units", f"at most {most:g} units")
        self._lossless = Lossless.around(cluster)
        super().__init__(
            cluster,
            interval=interval,
            minimum=least * self._layout.workers,
            maximum=most if most == inf else int(most) * self._layout.workers,
            wait_count=wait_count,
        )
        self._lossless.hold(self)

    def stop(self, reason: str = "unknown") -> None:
        """Adapt no more. Called by the cluster object when it closes or is adapted anew."""
        if self.state not in ("inactive", "stopped"):
            super().stop(reason)
            self.state = "stopped"
            compat.forget_adaptive_options(self.cluster)
        if hasattr(self, "_lossless"):
            self._lossless.let_go(self)

    async def adapt(self) -> None:
        """One look and what follows from it. Nothing if the last one is still under way."""
        if self._adapting or is_closing(self.cluster):
            return
        self._adapting = True
        try:
            if not self._is_managed:
                await self._manage()
            facts = await self._facts()
            plan = await self.scheduler.hpc_size(facts=facts.as_plain())
            self._is_managed = plan is not None  # else a manager was closed: the next look begins again
            if self._is_managed and self.state == "running" and not is_closing(self.cluster):
                self._act(plan)
        except InputError:
            self.stop("bad input")
            raise
        finally:
            self._adapting = False

    def _act(self, plan: dict[str, Any]) -> None:
        names = {str(name): name for name in self.cluster.worker_spec}
        going = [names[text] for kind in ("dead", "cancel", "leave") for text in plan[kind] if text in names]
        if not going and not plan["submit"]:
            return
        self.log.append((monotonic(), dict(plan)))
        self._lossless.remove(going)
        self._lossless.add(plan["submit"])
        task = asyncio.ensure_future(self._correct())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _correct(self) -> None:
        try:
            await compat.correct_soon(self.cluster)
        except Exception as error:
            # The units that could not be started are told to be gone with the next facts.
            logger.warning("dask-hpc: units could not be started: %s", error)

    async def _facts(self) -> Facts:
        cluster, lossless = self.cluster, self._lossless
        now = monotonic()
        everybody = (*cluster.worker_spec, *lossless.leaving)
        ages = {name: now - lossless.asked.get(name, now) for name in everybody}
        states = await self._jobs.look(dict(cluster.workers), ages)
        layout = self._layout
        units = []
        for name, spec in list(cluster.worker_spec.items()):
            found = states.get(name)
            known: dict[str, Any] = {"state": "queued"}
            if found is not None:
                known = {"state": found.state, "why": found.why, "left": found.left}
                known["running_for"] = found.running_for
            elif name in lossless.opened and name not in cluster.workers:
                known = {"state": "gone", "why": "Dask gave it up"}
            if found is not None and not _is_started(cluster.workers.get(name)):
                known = {"state": "gone", "why": f"could not be started: {lossless.trouble}"}
            refused = lossless.refused.get(name)
            refused_ago = inf if refused is None else now - refused
            units.append(self._unit(name, spec, ages.get(name, 0.0), refused_ago=refused_ago, **known))
        for name in list(lossless.leaving):
            units.append(self._unit(name, lossless.spec(name), ages.get(name, 0.0), is_leaving=True))
        news, lossless.news = lossless.news, []
        return Facts(
            asker=self._asker,
            interval=self.interval or 1.0,
            units=tuple(units),
            minimum=self.limits[0],
            maximum=self.limits[1],
            members=layout.workers,
            threads=layout.cores or 1,
            memory=float(layout.memory or 0),
            parameters=self._parameters,
            news=tuple(news),
        )

    @staticmethod
    def _unit(name: Any, spec: Any, age: float, **known: Any) -> UnitFacts:
        return UnitFacts(name=str(name), members=tuple(members(name, spec)), age=age, **known)

    async def _manage(self) -> None:
        """Put the cluster under the configured policy, if it is under none."""
        plugin, _ = prepare(None)
        async with Client(
            self.cluster.scheduler_address,
            security=self.cluster.security,
            asynchronous=True,
            set_as_default=False,
        ) as client:
            await client.register_plugin(plugin)


def _is_started(unit: Any) -> bool:
    return unit is None or unit.status.name not in ("created", "failed")


def _plain(value: Any) -> Any:
    """A parameter as it can be sent; Dask takes timedeltas, too."""
    return value.total_seconds() if isinstance(value, timedelta) else value
