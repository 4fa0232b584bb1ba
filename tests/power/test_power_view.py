"""What a decision sees of power on a live cluster, and that nothing is there while nobody wants to see it."""

import json
import pickle
import tempfile
from itertools import pairwise
from pathlib import Path

import dask
import pytest
from distributed import Client, Event, LocalCluster
from distributed.utils_test import async_poll_for
from small_cluster import blocked, cluster2, cluster4, decisions, plugin_of, power_of, until

import dask_hpc
from dask_hpc.model.plan import Plan, Resize
from dask_hpc.model.power import PowerRange
from dask_hpc.power.worker.plugin import KEY, NAME

SIMULATED = {
    "hpc.policy": "power-corridor",
    "hpc.power-interval": 0.05,
    "hpc.power-meter": {"simulated": {"idle": 60, "busy": 140, "lag": 0, "noise": 0}},
}
MODELLED = SIMULATED | {"hpc.power-meter": "auto", "hpc.power-history": None, "hpc.power-interval": 0.1}


def view_of(s):
    return plugin_of(s).control.indices.power


async def looks(s, count):
    """So many more looks at the sensors."""
    trace = power_of(s).trace
    goal = trace.count + count
    await async_poll_for(lambda: trace.count >= goal, 10)


@cluster2
async def test_nothing_is_there_without_a_power_strategy(c, s, a, b):
    async with await dask_hpc.manage(c, policy="elastic") as manager:
        await c.submit(sum, [1, 2])
        await a.heartbeat()
        assert NAME not in a.plugins and KEY not in a.metrics and KEY not in s.workers[a.address].metrics
        watch = power_of(s)
        assert not watch._timer.is_set and watch.sight is None and watch.source is None
        assert view_of(s) is None and power_of(s).trace.count == 0
        assert (await manager.status())["power"] is None


@cluster4
async def test_watts_of_nodes_jobs_and_what_is_in_no_job(c, s, *workers):
    with dask.config.set(SIMULATED):
        manager = await dask_hpc.manage(c)
    async with manager:
        await looks(s, 5)
        view = view_of(s)
        assert view.watts == pytest.approx(240) and view.idle == pytest.approx(60)
        assert view.source == "modelled" and view.doubt == ""
        assert (view.outside_nodes, view.outside_wanted) == (0, 0)
        with dask_hpc.job(nodes=2, name="two"):
            futures = c.map(blocked, ["go"] * 2, range(2), pure=False)
        job = await until(s, "two", "running")
        outside = c.map(blocked, ["go"] * 3, range(3), pure=False)
        await async_poll_for(lambda: len(s.tasks) >= 5, 10)
        await looks(s, 10)
        view = view_of(s)
        assert view.jobs[job.id] == PowerRange(200, 200) == view.per_node(job.id)
        busy = sum(bool(ws.processing) for ws in s.workers.values())
        assert view.watts == pytest.approx(240 + 140 * busy)
        assert view.active == view.outside == PowerRange(200, 200) and view.idle == 60
        assert view.outside_nodes == busy - 2 and view.outside_wanted == 3
        await Event("go").set()
        await c.gather(futures + outside)
        await looks(s, 3)
        assert view_of(s).watts == pytest.approx(240)
    assert "dask-hpc" not in s.plugins


@pytest.mark.parametrize(("fault", "words"), [("freeze", "whatever the load is"), ("zero", "0 W")])
def test_a_broken_sensor_is_replaced_and_told_once(fault, words):
    @cluster2
    async def body(c, s, a, b):
        noisy = {"simulated": {"idle": 60, "busy": 140, "lag": 0.02, "noise": 0.03, "seed": 7}}
        with dask.config.set(SIMULATED | {"hpc.power-meter": noisy}):
            manager = await dask_hpc.manage(c)
        async with manager:
            watch = power_of(s)
            await looks(s, 6)
            assert view_of(s).doubt == "" and view_of(s).watts == pytest.approx(120, rel=0.15)
            before = view_of(s).uncertainty
            watch.sight.meter.faults["0"] = fault
            futures = c.map(blocked, ["go"] * 2, range(2), pure=False)
            await async_poll_for(lambda: all(ws.processing for ws in s.workers.values()), 10, period=0.001)
            since = watch.sight.meter.readings
            await async_poll_for(lambda: view_of(s).doubt, 10)
            # One reading may have been taken before the tasks began.
            assert watch.sight.meter.readings - since <= 4
            view = view_of(s)
            assert "node 0" in view.doubt and words in view.doubt and "node 1" not in view.doubt
            assert view.uncertainty > before
            await looks(s, 5)
            # The model is right of this node; the other one is read.
            assert view_of(s).watts == pytest.approx(400, rel=0.15)
            del watch.sight.meter.faults["0"]
            await async_poll_for(lambda: not view_of(s).doubt, 10)
            await looks(s, 5)
            assert [kind for kind, _ in decisions(s, "power-doubt", "power-trust")] == [
                "power-doubt",
                "power-trust",
            ]
            await Event("go").set()
            await c.gather(futures)

    body()


@cluster2
async def test_readings_come_from_the_workers_and_end_with_us(c, s, a, b):
    with dask.config.set(MODELLED | {"hpc.power-model": {"idle": 100, "busy": 300}}):
        manager = await dask_hpc.manage(c)
    async with manager:
        await async_poll_for(lambda: set(power_of(s).sight._seen) == {"0", "1"}, 30)
        view = view_of(s)
        # Two workers of one host share its idle power, and have little of this busy process's work.
        assert 80 <= view.watts <= 320 and view.source == "modelled" and view.uncertainty > 0
        assert view.idle == pytest.approx(50, rel=0.2) or view.idle == pytest.approx(100)
    assert NAME not in a.plugins and KEY not in b.metrics and not s.worker_plugins.get(NAME)


@cluster2
async def test_another_policy_does_not_begin_with_another_meter(c, s, a, b):
    noisy = SIMULATED | {"hpc.power-meter": {"simulated": {"idle": 60, "busy": 140, "lag": 5, "noise": 0.03}}}
    with dask.config.set(noisy):
        manager = await dask_hpc.manage(c)
    async with manager:
        await looks(s, 5)
        power = power_of(s)
        sight, trust, samples = power.sight, power.sight._trust._trust, list(power.trace.samples)
        for change in (lambda: manager.set("fcfs"), manager.undo, lambda: manager.set("easy-backfill"),
                       lambda: manager.set("power-corridor", **{"power.upper": "1 kW"})):  # fmt: skip
            await change()
            await looks(s, 2)
            assert power.sight is sight and power.sight._trust._trust.items() >= trust.items()
            status = (await manager.status())["power"]
            assert status["is_steered"] is (plugin_of(s).context.policy.power is not None)
        assert list(power.trace.samples)[: len(samples)] == samples
        gaps = [b.time - a.time for a, b in pairwise(power.trace.samples)]
        assert max(gaps) < 1 and not power._lingering.is_set
        await manager.set("fcfs")
        power._lingering.set(0)  # the time is over
        await async_poll_for(lambda: power.sight is None and view_of(s) is None, 10)


@cluster2
async def test_a_strategy_that_comes_and_goes_takes_its_meter_along(c, s, a, b):
    with dask.config.set(MODELLED):
        manager = await dask_hpc.manage(c, policy="fcfs")
    async with manager:
        power_of(s).lingers = 0.0
        for _ in range(2):
            await manager.set("power-corridor")
            await async_poll_for(lambda: NAME in a.plugins and view_of(s) is not None, 10)
            await manager.set("fcfs")
            assert view_of(s) is None
            await async_poll_for(lambda: NAME not in a.plugins and NAME not in b.plugins, 10)
        await manager.set("power-corridor")  # the last word counts, however quickly they come
        await manager.set("fcfs")
        await manager.set("power-corridor")
        await power_of(s)._meters.settle()
        await async_poll_for(lambda: NAME in a.plugins and NAME in b.plugins, 10)
    assert NAME not in a.plugins and NAME not in b.plugins and not s.worker_plugins.get(NAME)


@cluster2
async def test_another_corridor_counts_at_once_and_can_be_undone(c, s, a, b):
    with dask.config.set(SIMULATED | {"hpc.power-interval": 60}):
        manager = await dask_hpc.manage(c)
    async with manager:
        await async_poll_for(lambda: power_of(s).trace.count, 10)  # the next look is in a minute
        for change, bounds in (({"power.upper": "1 kW"}, (0, 1000)), ({"power.lower": "100 W"}, (100, 1000))):
            await manager.set(**change)
            await async_poll_for(lambda: power_of(s)._decided is not None, 1)
            assert power_of(s)._decided[1] == bounds
        await manager.undo()
        await async_poll_for(lambda: power_of(s)._decided is not None, 1)
        assert power_of(s)._decided[1] == (0, 1000)


@cluster2
async def test_decisions_can_be_made_again_with_their_power(c, s, a, b):
    with dask.config.set(SIMULATED):
        manager = await dask_hpc.manage(c)
    async with manager:
        await looks(s, 3)
        await manager.set(**{"power.upper": "300 W"})
        with dask_hpc.job(nodes=1, name="one"):
            future = c.submit(blocked, "go", pure=False)
        await until(s, "one", "running")
        await looks(s, 3)
        recorded = plugin_of(s).context.recorded
        assert recorded and recorded[-1].question.corridor.at(0) == (0, 300)
        copies = pickle.loads(pickle.dumps(list(recorded)))
        assert all(
            one.question.power == other.question.power for one, other in zip(recorded, copies, strict=True)
        )
        assert all(one.is_repeatable for one in copies)
        assert (await manager.replay())["different"] == []
        await Event("go").set()
        await future


@cluster2
async def test_previews_see_power_and_corridor(c, s, a, b):
    with dask.config.set(SIMULATED):
        manager = await dask_hpc.manage(c, policy="fcfs")
    async with manager:
        await manager.pause()
        with dask_hpc.job(nodes=2, name="two"):
            future = c.submit(sum, [1, 2], pure=False)
        await async_poll_for(lambda: plugin_of(s).control.jobs, 10)
        await manager.preview()
        plain = await manager.preview("power-corridor")
        assert [(one["decision"], one["nodes"]) for one in plain] == [("start", 2)]
        tight = dask_hpc.Policy.load("power-corridor").with_(**{"power.upper": "130 W"})
        assert "start" not in {one["decision"] for one in await manager.preview(tight)}
        assert view_of(s) is None
        await manager.resume()
        await future


@cluster4
async def test_nodes_that_a_job_is_giving_up_say_nothing_of_its_power(c, s, *workers):
    """They idle one by one, while the job waits for the last of its tasks there."""
    with dask.config.set(SIMULATED):
        manager = await dask_hpc.manage(c)
    async with manager:
        with dask_hpc.job(nodes=4, min_nodes=2, max_nodes=4, name="four"):
            futures = [c.submit(blocked, f"go{n}", n, workers=[w.address]) for n, w in enumerate(workers)]
        job = await until(s, "four", "running")
        await looks(s, 8)
        control = plugin_of(s).control
        control.execution._resize(Plan(1, 0.0), Resize(job.id, 2, "a test wants it"))
        running = control.indices.running[job.id]
        assert running.target == 2 and len(running.nodes) == 4
        gone = [
            number
            for number, w in enumerate(workers)
            if w.address not in plugin_of(s).context.staying(running)
        ]
        await Event(f"go{gone[0]}").set()
        await async_poll_for(lambda: sum(bool(ws.processing) for ws in s.workers.values()) == 3, 10)
        await looks(s, 10)
        assert control.indices.running[job.id].target == 2
        assert view_of(s).jobs[job.id] == PowerRange(200, 200)
        for number in range(4):
            await Event(f"go{number}").set()
        await c.gather(futures)


@cluster2
async def test_a_rerun_is_expected_to_draw_what_the_first_run_did(c, s, a, b):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "power.json")
        with dask.config.set(SIMULATED | {"hpc.power-history": str(path)}):
            for run in range(2):
                async with await dask_hpc.manage(c):
                    if run:
                        await async_poll_for(lambda: power_of(s).jobs.history.jobs, 10)
                    with dask_hpc.job(nodes=2, name="cfd"):
                        first = c.map(blocked, [f"go{run}"] * 2, range(2), pure=False)
                    await until(s, "cfd", "running")
                    await looks(s, 8)
                    with dask_hpc.job(nodes=1, name="cfd"):
                        rerun = c.submit(blocked, f"go{run}", pure=False)
                    with dask_hpc.job(nodes=1, name="new", power=("70 W", "90 W")):
                        said = c.submit(blocked, f"go{run}", pure=False)
                    with dask_hpc.job(nodes=1, name="nobody knows"):
                        unknown = c.submit(blocked, f"go{run}", pure=False)
                    await until(s, "nobody knows", "waiting")
                    await async_poll_for(lambda: len(plugin_of(s).control.indices.waiting) == 3, 10)
                    await looks(s, 1)
                    names = {job.id: job.name for job in plugin_of(s).control.jobs.values()}
                    waiting = {job.id for job in plugin_of(s).control.indices.waiting}
                    jobs = {names[job]: power for job, power in view_of(s).jobs.items() if job in waiting}
                    assert jobs["new"] == (70, 90)
                    assert jobs["nobody knows"] == (60, 200)
                    assert jobs["cfd"] == ((200, 200) if run else (60, 200))
                    if run:
                        path.unlink()
                        await Event("go1").set()
                        await c.gather([*first, rerun, said, unknown])
                        await async_poll_for(lambda: path.exists(), 10)
                # the first run ends while all work: no look could find a node that is done already
                assert set(json.loads(path.read_text())["jobs"]["cfd"]) >= {"2"}
                await Event("go0").set()
                await c.gather([*first, rerun, said, unknown])


@cluster2
async def test_a_worker_that_falls_silent_is_doubted_and_forgiven(c, s, a, b):
    with dask.config.set(MODELLED | {"hpc.node": "worker"}):
        manager = await dask_hpc.manage(c)
    async with manager:
        await async_poll_for(lambda: all(KEY in s.workers[w.address].metrics for w in (a, b)), 30)
        for worker in (a, b):  # both are on one machine: while one of them speaks, its sensor does
            worker.periodic_callbacks["heartbeat"].stop()
        await async_poll_for(lambda: "no new reading" in view_of(s).doubt, 10)
        assert "node 0" in view_of(s).doubt and "node 1" in view_of(s).doubt
        power = await manager.power()
        assert all(node["doubt"] for node in power["nodes"]) and power["source"] == "modelled"
        for worker in (a, b):
            worker.periodic_callbacks["heartbeat"].start()
        await async_poll_for(lambda: not view_of(s).doubt, 20)
        assert [kind for kind, _ in decisions(s, "power-doubt", "power-trust")] == [
            "power-doubt",
            "power-trust",
        ]


@cluster2
async def test_a_step_of_the_schedule_counts_when_it_comes(c, s, a, b):
    with dask.config.set(SIMULATED | {"hpc.power-interval": 60}):
        manager = await dask_hpc.manage(c)
    async with manager:
        plugin = plugin_of(s)
        await async_poll_for(lambda: power_of(s).trace.count, 10)
        schedule = [
            {"at": "0 s", "upper": "2 kW"},
            {"at": f"{plugin.context.clock() + 1} s", "upper": "1 kW"},
        ]
        await manager.set(**{"power.schedule": schedule})
        await async_poll_for(
            lambda: power_of(s)._decided and power_of(s)._decided[1] == (0, 2000),
            10,
        )
        await async_poll_for(
            lambda: power_of(s)._decided and power_of(s)._decided[1] == (0, 1000),
            10,
        )


@cluster2
async def test_errors_of_ours_end_the_watch_and_it_can_begin_anew(c, s, a, b):
    with dask.config.set(MODELLED):
        manager = await dask_hpc.manage(c)
    async with manager:
        plugin = plugin_of(s)
        await async_poll_for(lambda: NAME in a.plugins and power_of(s).trace.count, 10)
        power_of(s).sight.meter.look = None  # every look fails from now on
        await async_poll_for(lambda: not plugin.is_on, 10)
        await async_poll_for(lambda: NAME not in a.plugins and view_of(s) is None, 10)
        assert not power_of(s)._timer.is_set
        await manager.set("power-corridor")  # which switches control on again
        await looks(s, 2)
        await async_poll_for(lambda: NAME in a.plugins, 10)
        assert view_of(s) is not None and plugin.errors == 0


@cluster2
async def test_a_dry_run_sees_power(c, s, a, b):
    with dask.config.set(SIMULATED):
        manager = await dask_hpc.manage(c, dry_run=True)
    async with manager:
        await looks(s, 2)
        assert view_of(s).watts == pytest.approx(120)


@cluster2
async def test_power_can_be_watched_without_a_strategy(c, s, a, b):
    with dask.config.set(SIMULATED | {"hpc.policy": "fcfs", "hpc.power-watch": True}):
        manager = await dask_hpc.manage(c)
    async with manager:
        await looks(s, 3)
        assert (await manager.status())["power"]["watts"] == pytest.approx(120)
        assert power_of(s).corridor is None and view_of(s).forecast is None


@cluster2
async def test_strategies_that_look_ahead_see_a_forecast(c, s, a, b):
    with dask.config.set(SIMULATED):
        manager = await dask_hpc.manage(c)
    async with manager:
        await async_poll_for(lambda: view_of(s) is not None and view_of(s).forecast is not None, 30)
        least, most = view_of(s).forecast
        assert least <= 120 <= most < 240
        assert (await manager.power())["forecast"] == [least, most]
        await manager.set(**{"power.mode": "reactive"})
        await looks(s, 1)
        assert view_of(s).forecast is None and plugin_of(s).errors == 0


@cluster2
async def test_power_as_plain_data(c, s, a, b):
    with dask.config.set(SIMULATED | {"hpc.policy": "fcfs"}):
        manager = await dask_hpc.manage(c)
    async with manager:
        power = await manager.power()  # nobody watches: the model answers
        assert (power["is_watched"], power["watts"]) == (False, 120)
        assert power["corridor"]["upper"] is None and view_of(s) is None
        await manager.set("power-corridor", **{"power.upper": "900 W", "power.lower": "100 W"})
        with dask_hpc.job(nodes=1, name="one"):
            future = c.submit(blocked, "go", pure=False)
        job = await until(s, "one", "running")
        await looks(s, 8)
        power = await manager.power()
        assert power["is_watched"] and power["meter"] == "simulated" and power["source"] == "modelled"
        assert power["watts"] == pytest.approx(260)
        assert (power["corridor"]["lower"], power["corridor"]["upper"]) == (100, 900)
        assert power["corridor"]["is_kept"] and power["corridor"]["steps"] == {
            "lower": "100 W",
            "upper": "900 W",
        }
        (node,) = [node for node in power["nodes"] if node["job"] == job.id]
        assert node["watts"] == pytest.approx(200) and node["doubt"] == ""
        assert power["jobs"] == [
            {"id": job.id, "name": "one", "nodes": 1, "per_node": [200.0, 200.0], "watts": [200.0, 200.0]}
        ]
        assert "hold" in power["levers"]
        json.dumps(power, allow_nan=False)
        await Event("go").set()
        await future


def test_power_from_a_synchronous_program():
    with (
        dask.config.set(SIMULATED),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_hpc.manage(client) as manager,
    ):
        assert manager.power()["watts"] == pytest.approx(120)
