"""S9: limits mean what they say, in workers, jobs, cores and memory, and nothing is left of earlier ones."""

import asyncio

import dask
import pytest
from batch_cluster import batch_cluster
from distributed import Client, LocalCluster
from distributed.deploy import Adaptive
from distributed.utils_test import async_poll_for, gen_test, inc

import dask_hpc
from dask_hpc import HPCAdaptive, InputError

#: jobs of 24 cores cut in different ways; None lets dask-jobqueue choose (6 processes)
LAYOUTS = [1, 2, 4, 24, None]
QUIET = {"asynchronous": True, "dashboard_address": ":0", "processes": False, "threads_per_worker": 1}


def cores_at_most(cluster, adaptive, processes):
    """What the maximum of an adaptive cluster, which is in workers, comes to in cores."""
    return adaptive.maximum * 24 // (processes or 6)


@pytest.mark.parametrize("processes", LAYOUTS)
def test_48_cores_are_48_cores_for_every_layout(processes, report):
    """D4"""
    with batch_cluster(24, processes, memory="48 GB") as cluster:
        plain = cluster.adapt(maximum_cores=48, interval="1 h")
        theirs = cores_at_most(cluster, plain, processes)
        with dask_hpc.malleable(cluster):
            ours = cores_at_most(cluster, cluster.adapt(maximum_cores=48, interval="1 h"), processes)
            limits = [
                cluster.adapt(**given, interval="1 h").limits
                for given in (
                    {"maximum_cores": 48},
                    {"maximum_memory": "96 GB"},
                    {"maximum_jobs": 2},
                    {"maximum": 2 * (processes or 6)},
                    {"maximum_cores": 71},
                    {"maximum_cores": 480, "maximum_jobs": 3, "maximum_memory": "100 GB"},
                )
            ]
            least = cluster.adapt(minimum_cores=25, maximum_jobs=9, interval="1 h").limits
    report.add("S9", f"maximum_cores=48, processes={processes}", plain=theirs, ours=ours, bound="48 cores")
    assert ours == 48
    assert limits == [(0, 2)] * 6
    assert least == (2, 9)
    if processes not in (1, None):
        assert theirs != 48


@gen_test()
async def test_the_configured_limits_are_honoured(report):
    """D5"""
    async with LocalCluster(n_workers=0, **QUIET) as cluster:
        with dask.config.set({"distributed.adaptive.minimum": 2, "distributed.adaptive.maximum": 5}):
            plain = cluster.adapt(interval="1 h")
            bare = cluster.adapt(Adaptive=HPCAdaptive, interval="1 h")
            async with await dask_hpc.malleable(cluster):
                ours = cluster.adapt(interval="1 h")
                said = cluster.adapt(minimum=0, maximum=3, interval="1 h")
    report.add(
        "S9",
        "configured limits 2 and 5",
        plain=(plain.minimum, plain.maximum),
        ours=(ours.minimum, ours.maximum),
        bound="2, 5",
    )
    assert (plain.minimum, plain.maximum) == (0, float("inf"))
    assert ours.limits == bare.limits == (2, 5)
    assert said.limits == (0, 3)


class Powerful(Adaptive):
    """A class of somebody else's, with a keyword of its own."""

    def __init__(self, cluster, power=0, **keywords):
        super().__init__(cluster, **keywords)
        self.power = power


async def grows_after_switching(malleable):
    """Whether a cluster still adapts after another class was used in between."""
    async with LocalCluster(n_workers=0, **QUIET) as cluster, Client(cluster, asynchronous=True) as client:
        manager = await dask_hpc.malleable(cluster) if malleable else None
        first = cluster.adapt(Adaptive=Powerful, power=1, minimum=0, maximum=1, interval="1 h")
        assert first.power == 1
        now = cluster.adapt(minimum=1, maximum=2, interval="20ms")
        leaked = {"power"} & {*vars(cluster).get("_adaptive_options", {}), *now._workers_to_close_kwargs}
        await async_poll_for(lambda: len(cluster.scheduler.workers) == 1, 10)
        assert await client.submit(inc, 1) == 2
        if manager is not None:
            await manager.close()
        return leaked


@gen_test()
async def test_nothing_is_left_of_earlier_calls(report):
    """D6"""
    plain, ours = await grows_after_switching(False), await grows_after_switching(True)
    report.add(
        "S9", "keywords left from another class", plain=plain or "none", ours=ours or "none", bound="none"
    )
    assert plain and not ours


@gen_test()
async def test_from_ours_back_to_dasks_own():
    """Also without ``malleable``: switching back and forth leaves nothing."""
    async with LocalCluster(n_workers=0, **QUIET) as cluster:
        before = set(vars(cluster))
        for _ in range(2):
            cluster.adapt(Adaptive=HPCAdaptive, idle_grace="1s", interval="10ms", maximum=2)
            await asyncio.sleep(0.05)
            plain = cluster.adapt(minimum=1, maximum=1, interval="10ms")
            assert plain._workers_to_close_kwargs == {}
            await async_poll_for(lambda: len(cluster.scheduler.workers) == 1, 10)
        plain.stop()
        assert set(vars(cluster)) - before == {"_adaptive_options"}  # what Dask itself remembers


@gen_test()
async def test_a_maximum_of_zero_needs_consent(report):
    """D7"""
    async with LocalCluster(n_workers=1, **QUIET) as cluster:
        async with await dask_hpc.malleable(cluster):
            with pytest.raises(InputError, match=r"so every worker would be closed.*allow_empty=True"):
                cluster.adapt(minimum=0, maximum=0)
            assert cluster.plan == {0}
            cluster.adapt(minimum=0, maximum=0, allow_empty=True, interval="10ms")
            await async_poll_for(lambda: not cluster.plan, 10)
        with pytest.raises(InputError, match="every worker would be closed"):
            cluster.adapt(Adaptive=HPCAdaptive, minimum=0, maximum=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"maximum_cores": 3}, "3 cores: less than one unit .1 worker, 4 cores"),
        ({"minimum": 3, "maximum": 2}, "adapt: minimum: found 3 units; allowed: at most 2 units"),
        ({"minimum": -1}, "adapt: minimum: found -1 workers"),
        ({"maximum_memory": "lots"}, "adapt: maximum: found 'lots'"),
        ({"maximum": "many"}, "adapt: maximum: found 'many' workers"),
        ({"grace": 3}, "adapt: grace: unknown keyword"),
    ],
)
def test_what_cannot_be_is_told(wrong, where):
    with batch_cluster(4, 1) as cluster, dask_hpc.malleable(cluster):
        with pytest.raises(InputError, match=where):
            cluster.adapt(**wrong)
        assert cluster.plan == set()
