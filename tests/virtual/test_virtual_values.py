"""Values and deadlines of live jobs, under the queues that go by them, on a virtual clock."""

import time

import pytest

import dask_hpc


def slept(seconds, x=None):
    time.sleep(seconds)
    return x


def started(virtual_cluster, policy, jobs):
    """The order in which jobs of all nodes start that come while another runs."""

    async def main(cluster):
        client = await cluster.client()
        async with await dask_hpc.manage(client, policy=policy) as manager:
            futures, names = [], {}
            for at, (name, more) in enumerate([("first", {}), *jobs.items()]):
                with dask_hpc.job(name, nodes=2, client=client, **more) as job:
                    futures.append(client.submit(slept, 60, at, key=name))
                names[job.id] = name
            await client.gather(futures)
            rows = await manager.story()
        begun = [(row["job"], row["reason"]) for row in rows if row["decision"] == "start"]
        return [(names[job], reason) for job, reason in begun[1:]]

    return virtual_cluster(main, workers=2)


def test_who_is_worth_most_is_next(virtual_cluster):
    """b says no value: two nodes for two minutes; c has the most, but not by the time it would end."""
    jobs = {
        "a": {"value": 1, "walltime": "2 min"},
        "b": {"walltime": "2 min"},
        "c": {"value": 9, "walltime": "1 h", "deadline": "30 min"},
        "d": {"value": 2, "walltime": "1 h"},
    }
    found = started(virtual_cluster, "max-value", jobs)
    assert [name for name, _ in found] == ["d", "a", "b", "c"]
    assert found[0][1] == "worth 2 when it ends" and found[2][1] == "worth 0.0667 when it ends"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("value-per-time", "abd"),
        ("value-per-node", "dab"),
        ("value-per-node-time", "abd"),
        ("slack-aware", "bad"),
    ],
)
def test_other_orders(virtual_cluster, policy, order):
    jobs = {
        "a": {"value": 1, "walltime": "2 min", "deadline": "3 h"},
        "b": {"walltime": "2 min", "deadline": "2 h"},
        "d": {"value": 2, "walltime": "1 h", "deadline": "9 h"},
    }
    assert [name for name, _ in started(virtual_cluster, policy, jobs)] == list(order)


@pytest.mark.slow
def test_at_random_all_start(virtual_cluster):
    found = started(virtual_cluster, "random", {name: {} for name in "abcdef"})
    assert sorted(name for name, _ in found) == list("abcdef")
