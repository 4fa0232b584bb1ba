"""Metrics are on /metrics while a cluster is managed, say what is so, and are gone afterwards."""

from importlib.util import find_spec
from math import inf

import pytest
from distributed import Client, Event, LocalCluster, Scheduler, Worker
from distributed.utils_test import gen_cluster, gen_test, inc
from small_cluster import blocked, plugin_of, until
from tornado.httpclient import AsyncHTTPClient

import dask_hpc
from dask_hpc.in_situ.scheduler import PipelineService
from dask_hpc.model.power import PowerRange, PowerView
from dask_hpc.power.service import PowerService

if not find_spec("prometheus_client"):
    pytest.skip("prometheus_client is not installed", allow_module_level=True)

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

cluster3 = gen_cluster(client=True, nthreads=[("", 1)] * 3)


async def scraped(s):
    """(name, labels without the scheduler) -> value, of this scheduler."""
    page = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{s.http_server.port}/metrics")
    found = {}
    for family in text_string_to_metric_families(page.body.decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            if "_hpc_" in sample.name and labels.pop("scheduler") == s.address:
                found[sample.name.removeprefix("dask_hpc_"), *labels.values()] = sample.value
    return found


@cluster3
async def test_metrics_tell_what_is_so(c, s, *workers):
    assert await scraped(s) == {}
    m = await dask_hpc.manage(c, "fcfs")
    with dask_hpc.job("a", nodes=2):
        f = c.submit(blocked, "go")
    await until(s, "a", "running")
    with dask_hpc.job("b", nodes=2):
        g = c.submit(inc, 1)
    await until(s, "b", "waiting")
    found = await scraped(s)
    assert [found["state", state] for state in ("on", "paused", "off")] == [1, 0, 0]
    assert [found["jobs", state] for state in ("waiting", "running", "done")] == [1, 1, 0]
    assert [found["nodes", state] for state in ("idle", "allotted", "held")] == [1, 2, 0]
    assert found["decisions_total", "start"] == 1 and found["decisions_total", "submit"] == 2
    assert found["resizes_total", "grow"] == found["resizes_total", "shrink"] == 0
    assert found["results_lost_total",] == found["errors_total",] == 0
    assert 0 < found["policy_cycle_seconds",] < 10
    assert found["jobs_ended_total", "completed"] == 0 and ("wait_seconds", "mean") not in found
    assert 0 < found["node_seconds_total", "allotted"] < found["node_seconds_total", "there"]
    await Event("go").set()
    await f
    assert await g == 2
    await until(s, "b", "done")
    plugin_of(s).context.count_error("a test", ValueError("on purpose"))
    await m.pause()
    found = await scraped(s)
    assert [found["jobs", state] for state in ("waiting", "running", "done")] == [0, 0, 2]
    assert found["decisions_total", "end"] == 2 and found["errors_total",] == 1
    assert found["state", "paused"] == 1
    assert found["jobs_ended_total", "completed"] == 2 and 0 < found["utilisation",] < 1
    assert 0 < found["wait_seconds", "mean"] < found["wait_seconds", "largest"]
    assert found["wait_seconds", "mean"] < found["response_seconds", "mean"]
    assert found["bounded_slowdown",] >= 1 and ("adaptation_seconds", "shrink", "mean", "drain") not in found
    plugin_of(s).control.figures.adaptations["shrink"]["drain"].add(2.5)
    assert (await scraped(s))["adaptation_seconds", "shrink", "mean", "drain"] == 2.5
    await m.close()
    assert await scraped(s) == {}


@cluster3
async def test_power_is_there_if_somebody_observes_it(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        assert (await m.status())["power"] is None
        assert not [name for name, *_ in await scraped(s) if name.startswith("power")]
        with dask_hpc.job("a", nodes=2):
            f = c.submit(blocked, "go")
        await until(s, "a", "running")
        plugin = plugin_of(s)
        view = PowerView(500.0, "measured", 12.0, active=PowerRange(150, 250), forecast=PowerRange(450, 620))
        plugin.control.indices.power = view
        for time in range(4):
            plugin.context.find(PowerService).trace.add(float(time), view, 100.0, 450.0)
        plugin.context.find(PowerService).trace.add(4.0, view, 100.0, inf)
        found = await scraped(s)
        assert found["power_watts", "measured"] == 500 and found["power_uncertainty_watts",] == 12
        assert found["power_lower_watts",] == 100 and ("power_upper_watts",) not in found
        assert found["power_forecast_watts", "least"] == 450 and found["power_forecast_watts", "most"] == 620
        assert found["power_outside_seconds_total",] == 4 and found["power_outside_joules_total",] == 200
        assert found["power_violations_total",] == 1 and found["power_held_nodes",] == 0
        assert found["power_job_watts", "a"] == 400
        plugin.context.find(PowerService).trace.add(5.0, view, 100.0, 480.0)
        assert (await scraped(s))["power_upper_watts",] == 480
        await Event("go").set()
        await f


def test_jobs_of_many_names_are_no_flood():
    power = dict.fromkeys(("forecast", "upper", "uncertainty", "lower", "seconds_outside"), 0)
    power |= dict.fromkeys(("joules_outside", "violations", "held_nodes", "watts"), 0) | {
        "source": "measured"
    }
    power["jobs"] = {f"job{number}": (number, number) for number in range(60)}
    watts = PowerService.samples(
        None, {"power": power, "jobs": [{"id": one, "name": "twice"} for one in ("job59", "job0")]}
    )["power_job_watts"]
    assert len(watts) == 51 and watts["twice"] == 59 and watts["(others)"] == sum(range(1, 10))


@gen_test()
async def test_two_schedulers_in_one_process():
    async def jobs(s):
        return (await scraped(s)).get(("jobs", "done"))

    async with (
        Scheduler(dashboard_address="127.0.0.1:0") as one,
        Scheduler(dashboard_address="127.0.0.1:0") as two,
        Worker(one.address),
        Client(one.address, asynchronous=True, set_as_default=False) as c1,
        Client(two.address, asynchronous=True, set_as_default=False) as c2,
    ):
        m1, m2 = await dask_hpc.manage(c1), await dask_hpc.manage(c2)
        async with dask_hpc.job("a", client=c1):
            assert await c1.submit(inc, 1) == 2
        await until(one, "a", "done")
        assert (await jobs(one), await jobs(two)) == (1, 0)
        await m1.close()
        assert (await jobs(one), await jobs(two)) == (None, 0)
        await m2.close()
        m1 = await dask_hpc.manage(c1)
        assert (await jobs(one), await jobs(two)) == (0, None)
    # closed with its scheduler, without a word
    assert not [name for name in REGISTRY._names_to_collectors if "_hpc_" in name]


@cluster3
async def test_what_fails_is_not_shown_and_harms_nobody(c, s, *workers):
    async with await dask_hpc.manage(c):
        plugin_of(s).status.whole = None
        assert await scraped(s) == {}
        page = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{s.http_server.port}/metrics")
        assert b"dask_scheduler_workers" in page.body


def test_local_cluster_closes_without_a_trace():
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        dask_hpc.manage(client)
        assert [name for name in REGISTRY._names_to_collectors if "_hpc_" in name]
    assert not [name for name in REGISTRY._names_to_collectors if "_hpc_" in name]


def test_a_pipeline_is_told_apart_by_name_part_and_kind():
    partition = {"nodes": 3, "helper_cores": 1, "in_situ": ["front"], "in_transit": ["spectrum", "mean"]}
    last = {
        "seconds": 0.6,
        "expected": 0.5,
        "measured": {"simulation": 0.6, "in_situ": 0.2, "in_transit": 0.4},
        "planned": {"simulation": 0.5, "in_situ": 0.3, "in_transit": 0.4},
    }
    heat = {
        "name": "heat", "iteration": 8, "changed": 2, "nodes": list("abcd"), "partition": partition,
        "history": [{}, last], "skipped": {"mean": {"count": 3, "newest": [5, 6, 7], "how": "skip"}},
    }  # fmt: skip
    new = {"name": "new", "iteration": 0, "changed": 0, "nodes": [], "partition": None}
    new |= {"history": [], "skipped": {}}
    found = PipelineService(None).samples({"pipelines": [heat, new]})
    assert found["pipeline_iterations"] == {"heat": 8, "new": 0}
    assert found["pipeline_changes"] == {"heat": 2, "new": 0}
    assert found["pipeline_nodes"] == {("heat", "simulation"): 3, ("heat", "in_transit"): 1}
    assert found["pipeline_analyses"] == {("heat", "in_situ"): 1, ("heat", "in_transit"): 2}
    assert found["pipeline_skipped"] == {("heat", "mean"): 3}
    assert found["pipeline_iteration_seconds"] == {("heat", "measured"): 0.6, ("heat", "planned"): 0.5}
    assert found["pipeline_part_seconds"]["heat", "in_situ", "planned"] == 0.3
    assert set(found) == PipelineService.metrics.keys()
    assert {len(values) for values in found["pipeline_part_seconds"]} == {3}
