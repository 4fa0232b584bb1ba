"""What pipelines tell a managed cluster: checked, kept within bounds, shown, and answered with the policy."""

from types import SimpleNamespace

import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cluster import cluster2, plugin_of

import dask_hpc
from dask_hpc.cluster.request import ask
from dask_hpc.in_situ.scheduler import KEPT, MOST, PipelineService, read_status
from dask_hpc.model.errors import InputError
from dask_hpc.planning.in_situ.partition import Partition, Phases, tell_iteration, tell_partition
from dask_hpc.policy import Policy

PARTITION = Partition("async", 1, 1, ("front",), ("spectrum",), Phases(0.5, 0.25, 0.6))


def status(**changes):
    told = tell_partition(PARTITION)
    return {
        "name": "heat",
        "state": "running",
        "job": None,
        "iteration": 3,
        "iterations": 200,
        "nodes": ["a", "b"],
        "cores": 2,
        "analyses": ["front", "spectrum"],
        "when_slow": "skip",
        "partition": told,
        "history": [tell_iteration(2, 0.7, Phases(0.6, 0.2, 0.7), PARTITION)],
        "changes": [{"iteration": 0, "time": 0.0, "reason": "as declared", "partition": told}],
        "changed": 0,
        "skipped": {"spectrum": {"count": 1, "newest": [2], "how": "skip"}},
    } | changes


@cluster2
async def test_a_pipeline_is_shown_and_answered_with_the_policy_in_force(c, s, a, b):
    with pytest.raises(RuntimeError, match="not managed"):
        await ask(c, "hpc_pipeline", id="1", client_id=c.id, status=status())
    async with await dask_hpc.manage(c, policy="easy-backfill") as manager:
        news = [["placement", "spectrum goes in transit: saves 20 %"]]
        answer = await ask(c, "hpc_pipeline", id="1", client_id=c.id, status=status(), news=news)
        assert answer["policy"] == (await manager.set())["policy"]
        assert (await manager.status())["pipelines"] == [status()]
        (line,) = [row for row in await manager.story() if row["decision"] == "placement"]
        assert line["reason"] == "pipeline heat: spectrum goes in transit: saves 20 %"
        await manager.set(policy="fcfs")
        answer = await ask(c, "hpc_pipeline", id="1", client_id=c.id, status=status(state="done"))
        assert Policy.parse(answer["policy"]).queue == plugin_of(s).context.policy.queue
        await manager.pause()
        answer = await ask(c, "hpc_pipeline", id="1", client_id=c.id, status=status(state="done"))
        assert answer == {"policy": None, "leaving": []}


@cluster2
async def test_a_pipeline_whose_client_is_gone_does_not_run(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        async with Client(s.address, asynchronous=True) as other:
            await ask(other, "hpc_pipeline", id="1", client_id=other.id, status=status())
            assert (await manager.status())["pipelines"][0]["state"] == "running"
        assert (await manager.status())["pipelines"][0]["state"] == "failed"


#: of a cluster on which one client is connected
CONTEXT = SimpleNamespace(tell=lambda *words: None, scheduler=SimpleNamespace(clients={"c"}), is_on=False)


def test_only_the_newest_are_kept_and_those_that_run_are_kept_longest():
    pipelines = PipelineService(CONTEXT)
    pipelines.told("runs", "c", status(name="runs"), ())
    for number in range(KEPT + 5):
        pipelines.told(str(number), "c", status(state="done"), ())
    names = [one["name"] for one in pipelines.status()["pipelines"]]
    assert len(names) == KEPT and "runs" in names


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "two\nlines"},
        {"state": "asleep"},
        {"iteration": -1},
        {"iterations": 1.5},
        {"nodes": "a"},
        {"nodes": ["a"] * (MOST + 1)},
        {"partition": {"mode": "async"}},
        {"partition": {**tell_partition(PARTITION), "planned": {"simulation": "long"}}},
        {"history": [{"iteration": 1}]},
        {"changes": [None]},
        {"skipped": {"spectrum": {"count": "many", "newest": [], "how": "skip"}}},
        {"more": 1},
    ],
)
def test_what_cannot_be_used_is_refused(wrong):
    with pytest.raises(InputError, match="pipeline"):
        read_status(status(**wrong))


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*status()]), inner),
    )
)
def test_nothing_but_a_status_is_taken_for_one(found):
    with pytest.raises(InputError):
        read_status(found)


@pytest.mark.parametrize("news", ["words", [["gossip", "words"]], [["placement"]], [["placement", 3]]])
def test_news_are_checked_too(news):
    with pytest.raises(InputError, match="news"):
        PipelineService(CONTEXT).told("1", "c", status(), news)
