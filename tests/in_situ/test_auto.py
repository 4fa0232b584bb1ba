"""Placement by measurement: decided after the first iterations, again on drift and when nodes come or go, and
whatever is decided, no iteration is lost and results are those of a serial loop, to the last bit."""

import threading
import time
from statistics import mean

import heat
import pytest
import xarray as xr
from distributed import Client, LocalCluster

import dask_hpc
from dask_hpc.planning.in_situ.partition import Partition, Phases, Placement
from dask_hpc.strategies.strategy import PlacementStrategy

per_block = dask_hpc.InSituPipeline.per_block
whole = dask_hpc.InSituPipeline.whole
CHUNKS = {"y": 4}
STATE = heat.plate((16, 8))


@pytest.fixture
def three():
    """Three nodes with two cores each, in this process."""
    with (
        LocalCluster(n_workers=3, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def analyses(**more):
    return {
        "mean": whole(heat.mean, variables=["heat"]),
        "total": per_block(heat.total, sum, variables=["heat"]),
        **more,
    }


def pipeline(client, named=None, **wishes):
    return dask_hpc.InSituPipeline(
        heat.advance, STATE, analyses() if named is None else named,
        chunks=CHUNKS, halo={"y": 1}, client=client, **wishes,
    )  # fmt: skip


def check(pipe, iterations, seen=lambda i, pipe: None):
    """Run it; every iteration must be there, in order, with the right results."""
    wanted = heat.serial(STATE, pipe.iteration + iterations)
    first, numbers = pipe.iteration + 1, []
    for i, results in pipe.run(iterations):
        numbers.append(i)
        assert results["mean"] == heat.mean(wanted[i - 1])
        seen(i, pipe)
    assert numbers == [*range(first, first + iterations)]
    xr.testing.assert_identical(pipe.state.compute(), wanted[-1])


def reasons(pipe, decision="placement"):
    return [line["reason"] for line in pipe.story() if line["decision"] == decision]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_the_first_iterations_are_measured_and_then_it_is_decided(three, mode):
    pipe = pipeline(three, mode=mode)
    assert pipe.partition is None
    check(pipe, 10)
    found = pipe.status()
    assert found["state"] == "done" and found["iteration"] == found["iterations"] == 10
    assert pipe.partition.mode == mode
    assert {*pipe.partition.in_situ, *pipe.partition.in_transit} == {"mean", "total"}
    assert "guessed" in reasons(pipe)[0]
    # by now what is expected was measured
    guessed = found["changes"][0]["partition"]["planned"]["simulation"]
    assert 0 < pipe.partition.phases.simulation != guessed
    assert [one["iteration"] for one in found["history"]] == [*range(1, 11)]
    check(pipe, 3)  # goes on with what it knows
    assert pipe.status()["iterations"] == 13


class Wandering(PlacementStrategy):
    """Decides for other partitions all the time: between every two iterations."""

    name, mode = "wandering", "async"
    choices = (
        ("async", 3, 1, ("mean", "total"), ()),
        ("async", 1, 1, ("mean",), ("total",)),
        ("sync", 2, 0, ("total",), ("mean",)),
        ("async", 2, 0, (), ("mean", "total")),
        ("sync", 3, 0, ("mean", "total"), ()),
    )

    def decide(self, view, memory):
        turn = 0 if memory is None else memory + 1
        choice = self.choices[turn % len(self.choices)]
        return Placement(view.name, Partition(*choice, Phases(0, 0, 0)), f"turn {turn}"), turn


@pytest.mark.slow
def test_another_partition_before_every_iteration_loses_none(three):
    pipe = pipeline(three)
    pipe._strategy = Wandering()
    check(pipe, 20)
    assert pipe.status()["changed"] == 20  # one before each, and one for where the state is laid
    assert len(reasons(pipe)) == 21


def test_a_placement_that_was_said_stays(three):
    placed = Partition("async", 2, 1, ("total",), ("mean",), Phases(0, 0, 0))
    pipe = pipeline(three, placement=placed)
    check(pipe, 8)
    assert pipe.partition.runs_like(placed) and pipe.status()["changed"] == 0


@pytest.mark.slow
def test_a_managed_clusters_policy_decides_and_is_told(three):
    with dask_hpc.manage(three, policy="in-situ-sync") as manager:
        pipe = pipeline(three, mode="async", name="heat")
        check(pipe, 8)
        assert pipe.partition.mode == "sync"
        (told,) = manager.status()["pipelines"]
        assert told == pipe.status() and told["state"] == "done"
        lines = [row["reason"] for row in manager.story() if row["decision"] == "placement"]
        assert lines == [f"pipeline heat: {reason}" for reason in reasons(pipe)]
        manager.set(policy="in-situ-async")
        check(pipe, 3)
        assert pipe.partition.mode == "async"
        assert any("the policy now says async" in reason for reason in reasons(pipe))
        # a policy without that concern leaves it to the pipeline
        manager.set(policy="fcfs")
        check(pipe, 2)
        manager.pause()
        check(pipe, 2)


def test_a_paused_cluster_changes_nothing(three):
    with dask_hpc.manage(three, policy="in-situ-async") as manager:
        manager.pause()
        pipe = pipeline(three)
        check(pipe, 8)
        assert pipe.status()["changed"] == 0


@pytest.mark.slow
def test_a_worker_that_joins_is_used_within_five_iterations(three):
    joined = []

    def seen(i, pipe):
        if i == 5:
            three.cluster.scale(4)
            three.wait_for_workers(4)
        if "3" in pipe.status()["nodes"] and not joined:
            joined.append(i)
        time.sleep(0.1)  # the simulation waits for its reader, so an iteration takes this long

    pipe = pipeline(three, placement="in situ")
    check(pipe, 20, seen)
    assert joined and joined[0] <= 10
    assert any("3 joined" in reason for reason in reasons(pipe, "nodes-changed"))


GATE = threading.Event()


def slow(state):
    GATE.wait(60)
    return heat.mean(state)


def open_when(is_time):
    """Let the slow analysis end once this holds."""
    limit = time.monotonic() + 60
    while not is_time() and time.monotonic() < limit:
        time.sleep(0.01)
    GATE.set()


@pytest.mark.parametrize("when_slow", ["skip", "subsample"])
def test_an_analysis_that_does_not_keep_up_is_left_out(three, when_slow):
    GATE.clear()
    placed = Partition("async", 2, 1, ("mean", "total"), ("slow",), Phases(0, 0, 0))
    named = analyses(slow=whole(slow, when_slow=when_slow, stall="0 s"))
    pipe = pipeline(three, named, placement=placed)
    done = {}
    threading.Thread(target=open_when, args=(lambda: len(pipe.skipped) >= 3,)).start()
    wanted = heat.serial(STATE, 12)
    for i, results in pipe.run(12):
        done[i] = results
        assert results["mean"] == heat.mean(wanted[i - 1])
    left_out = {one.iteration for one in pipe.skipped}
    assert left_out and {one.analysis for one in pipe.skipped} == {"slow"}
    assert all(("slow" in results) == (i not in left_out) for i, results in done.items())
    assert all(results["slow"] == results["mean"] for results in done.values() if "slow" in results)
    told = pipe.status()["skipped"]["slow"]
    assert told["count"] == len(left_out) and told["newest"] == sorted(left_out) and told["how"] == when_slow
    assert any("slow is not done for iteration" in reason for reason in reasons(pipe, "skipped"))


def test_an_analysis_that_is_waited_for_is_never_left_out(three):
    GATE.clear()
    placed = Partition("async", 2, 1, ("mean", "total"), ("slow",), Phases(0, 0, 0))
    pipe = pipeline(three, analyses(slow=whole(slow, when_slow="wait", stall="0 s")), placement=placed)
    threading.Thread(target=open_when, args=(lambda: pipe.partition is not None,)).start()
    check(pipe, 6)
    assert not pipe.skipped


@pytest.mark.parametrize(
    "wrong", [{"when_slow": "hurry"}, {"stall": "-1 s"}, {"stall": "soon"}, {"placement": "anywhere"}]
)
def test_what_cannot_be_used_is_an_input_error(wrong):
    with pytest.raises(dask_hpc.InputError, match=next(iter(wrong))):
        dask_hpc.InSituPipeline(heat.advance, STATE, {}, chunks=CHUNKS, **wrong)


def test_what_is_declared_need_not_be_guessed(three):
    """A whole analysis that takes long on one core gets a staging node from the first iteration on."""
    named = {
        "mean": whole(heat.mean, variables=["heat"], time="1 s", memory="1 kB"),
        "total": per_block(heat.total, sum, time=0.5),
    }
    pipe = pipeline(three, named)
    check(pipe, 2)
    first = pipe.status()["changes"][0]["partition"]
    assert first["planned"]["in_situ"] + first["planned"]["in_transit"] >= 1.0


@pytest.mark.parametrize("wrong", [{"time": "soon"}, {"time": -1}, {"memory": "inf"}, {"memory": "2 s"}])
def test_what_is_declared_is_checked(wrong):
    with pytest.raises(dask_hpc.InputError, match=f"{next(iter(wrong))}: "):
        whole(heat.mean, **wrong)
    with pytest.raises(TypeError, match="no sped"):
        whole(heat.mean, sped=3)


def takes(seconds, function):
    """The same, in a time that does not depend on how fast the machine is."""

    def slow(*given):
        time.sleep(seconds)
        return function(*given)

    return slow


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize("placement", ["auto", "in situ", "in transit"])
def test_an_iteration_takes_as_long_as_was_predicted(placement):
    """Where the parts of an iteration take what they took before, it takes what is made of them."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        pipe = dask_hpc.InSituPipeline(
            takes(0.2, heat.advance), heat.plate((16, 8)),
            {
                "mean": whole(takes(0.5, heat.mean), variables=["heat"]),
                "total": per_block(takes(0.1, heat.total), sum, variables=["heat"]),
            },
            mode="sync", placement=placement, chunks={"y": 8}, halo={"y": 1}, client=client,
        )  # fmt: skip
        for _ in pipe.run(20):
            pass
        seconds = [one["seconds"] for one in pipe.status()["history"]]
        # on the average: results may come early and late by turns
        took = mean(seconds[-12:])
        assert took == pytest.approx(pipe.partition.iteration, rel=0.15)
        if placement == "auto":  # and that was known before it was in force
            promised = pipe.status()["changes"][-1]["partition"]["expected"]
            assert took == pytest.approx(promised, rel=0.15)
            assert promised != pipe.partition.iteration, "by now it was measured itself"
