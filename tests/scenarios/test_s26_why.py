"""S26: every decision can be explained and made again, and what a preview says is what is then done."""

import pytest
from distributed import Event
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc

POLICIES = ["fcfs", "easy-backfill", "conservative-backfill", "fpsma-pwma", "egs-prma", "performance-aware",
            "malleable-easy", "elastic"]  # fmt: skip


def state_of(plugin, name):
    return next(job.state for job in plugin.control.jobs.values() if job.name == name)


def work(event):
    Event(event).wait(60)


JOBS = [("a", 2, 1, 4), ("b", 2, 1, 4), ("c", 3, 3, 3), ("d", 1, 1, 2), ("e", 4, 2, 4), ("f", 1, 1, 1)]


async def crowd(c, s):
    """Six jobs come; two that run are ended."""
    plugin, futures = s.plugins["dask-hpc"], {}
    for count, (name, nodes, low, high) in enumerate(JOBS, 1):
        with dask_hpc.job(name, nodes=nodes, min_nodes=low, max_nodes=high, walltime="1h"):
            futures[name] = c.submit(work, name, key=f"work-{name}")
        await async_poll_for(lambda count=count: len(plugin.control.jobs) == count, 10)
        await async_poll_for(lambda: not plugin.context.is_awake, 10)
    for _ in range(2):
        name = plugin.control.jobs[next(iter(plugin.control.indices.running))].name
        await Event(name).set()
        await futures[name]
        await async_poll_for(lambda name=name: plugin.control.indices.running and not plugin.context.is_awake
                             and state_of(plugin, name) == "done", 10)  # fmt: skip
    return futures


@pytest.mark.parametrize("policy", POLICIES)
def test_recorded_decisions_come_out_the_same(policy, report):
    @gen_cluster(client=True, nthreads=[("", 4)] * 5)
    async def run(c, s, *workers):
        async with await dask_hpc.manage(c, policy=policy) as manager:
            futures = await crowd(c, s)
            replayed = await manager.replay()
            assert replayed["decisions"] >= 3 and replayed["different"] == []
            rows = [
                row
                for row in await manager.story()
                if row["decision"] in ("start", "grow", "shrink", "hand-over")
            ]
            assert len(rows) >= replayed["decisions"]
            for row in rows:
                assert row["rule"] and row["reason"] and {"nodes", "idle", "waiting"} <= set(row["inputs"])
            assert any(row["rejected"] for row in rows)
            for name in futures:
                await Event(name).set()
            await c.gather(futures)
            report.add(
                "S26", f"{policy}: decisions made again alike", plain="-",
                ours=f"{replayed['decisions']} of {replayed['decisions']}", bound="all",
            )  # fmt: skip

    run()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_preview_is_what_is_then_done(policy):
    @gen_cluster(client=True, nthreads=[("", 4)] * 5)
    async def run(c, s, *workers):
        async with await dask_hpc.manage(c, policy="fcfs") as manager:
            plugin = s.plugins["dask-hpc"]
            now = plugin.context.clock()
            plugin.context.clock = lambda: now
            futures = await crowd(c, s)
            before = len(plugin.story.happenings), [dict(node) for node in (await manager.status())["nodes"]]
            now += 1.0  # nobody is resized at the instant he started
            previewed = await manager.preview(policy)
            after = len(plugin.story.happenings), [dict(node) for node in (await manager.status())["nodes"]]
            assert before == after, "a preview changes nothing"
            plans = len(plugin.story)
            await dask_hpc.manage(c, policy=policy)
            await async_poll_for(lambda: not plugin.context.is_awake, 10)
            done = [
                {"decision": decision, "job": one.job, "nodes": one.nodes, "reason": one.reason}
                for plan in list(plugin.story)[plans:]
                for decision, ones in (("resize", plan.resizes), ("start", plan.starts))
                for one in ones
            ]
            assert done == previewed
            for name in futures:
                await Event(name).set()
            await c.gather(futures)

    run()
