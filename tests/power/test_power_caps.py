"""A plan's cap in watts reaches the packages of a node, and goes with control; on a made-up powercap tree."""

from functools import partial

import dask
import pytest
from distributed.utils_test import async_poll_for, gen_cluster
from made_up_tree import MadeUpTree
from small_cluster import plugin_of, power_of

import dask_hpc
from dask_hpc.model.plan import Cap, Plan
from dask_hpc.power import service
from dask_hpc.power.worker.plugin import KEY, PowerPlugin

LIMIT = "intel-rapl:0/constraint_0_power_limit_uw"
SETTINGS = {
    "hpc.node": "host",
    "hpc.power-watch": True,
    "hpc.power-interval": "50ms",
    "hpc.power-history": None,
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    tree = MadeUpTree(tmp_path)
    sampler = partial(PowerPlugin, root=tree.root)
    sampler.name = PowerPlugin.name
    monkeypatch.setattr(service, "PowerPlugin", sampler)
    return tree


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_a_node_is_capped_and_let_go(c, s, a, b, tree):
    tree.zone("intel-rapl:0", "package-0", limits=[(200, 200)])
    joules = 0.0

    def limit():
        return float((tree.powercap / LIMIT).read_text() or "nan") / 1e6  # it may just be written

    def counting(condition):
        """The counter goes on while we wait."""

        def look():
            nonlocal joules
            joules += 2.0
            tree.count("intel-rapl:0", joules)
            return condition()

        return look

    with dask.config.set(SETTINGS):
        async with await dask_hpc.manage(c):
            await async_poll_for(counting(lambda: "cap" in power_of(s).view().levers), 20)
            assert limit() == 200 and power_of(s).view().cap is None
            power_of(s).levers.pull(Plan(0, 0.0, cap=Cap(1.0, 120.0, "a test")))
            await async_poll_for(counting(lambda: limit() < 200), 20)
            assert power_of(s).view().cap == 120 and limit() >= 60
            told = [h.reason for h in plugin_of(s).story.happenings if h.decision == "cap"]
            assert told == ["nodes draw 120 W at most: a test"]
            power_of(s).levers.pull(Plan(1, 0.0, cap=Cap(1.0, None, "room")))
            await async_poll_for(counting(lambda: limit() == 200), 20)
            power_of(s).levers.pull(Plan(2, 0.0, cap=Cap(1.0, 110.0, "again")))
            await async_poll_for(counting(lambda: limit() < 200), 20)
            assert plugin_of(s).errors == 0
        await async_poll_for(lambda: limit() == 200, 20)
        assert not any("dask-hpc" in name for w in (a, b) for name in w.plugins)


@gen_cluster(client=True, nthreads=[("", 1)])
async def test_without_counters_there_is_no_such_lever(c, s, a, tree):
    with dask.config.set(SETTINGS):
        async with await dask_hpc.manage(c):
            power = power_of(s)
            await async_poll_for(lambda: (s.workers[a.address].metrics.get(KEY) or {}).get("sequence"), 20)
            power.refresh()
            assert s.workers[a.address].metrics[KEY]["cap"] is None
            assert "cap" not in power.view().levers
