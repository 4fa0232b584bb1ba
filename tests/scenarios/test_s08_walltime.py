"""S8: eight tasks, one worker that lasts and two whose time ends soon."""

import time

import dask
import pytest
from distributed import Worker
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import plugin_of

import dask_hpc


def one_task(log, seconds, i):
    with open(log, "a") as file:
        file.write(f"start {i} {time.time()}\n")
    time.sleep(seconds)
    with open(log, "a") as file:
        file.write(f"stop {i} {time.time()}\n")
    return i


def measured(log, seconds):
    """Executions begun, and the seconds of those whose result was thrown away."""
    lines = [line.split() for line in log.read_text().splitlines()]
    begun = sum(line[0] == "start" for line in lines)
    return begun, (begun - 8) * seconds


def scenario(directory, seconds, left, ours):
    """As the scenario page says, in units of ``seconds``: what is begun, wasted and told."""
    log = directory / ("ours" if ours else "plain")
    told = []

    @gen_cluster(client=True, nthreads=[("", 1)], timeout=120)
    async def run(c, s, lasting):
        with dask.config.set({"hpc.drain": f"{seconds / 30} s"}):
            m = await dask_hpc.manage(c) if ours else None
        # In this process a worker cannot drop what its thread runs: what Dask restarts then ends twice.
        short = [await Worker(s.address, nthreads=1, lifetime=f"{left} s") for _ in range(2)]
        if ours:
            await async_poll_for(lambda: len(plugin_of(s).walltime.ends_at) == 2, 10)
        futures = c.map(one_task, [str(log)] * 8, [seconds] * 8, range(8), pure=False)
        assert await c.gather(futures) == list(range(8))
        for worker in short:
            await worker.finished()
        if ours:
            told.extend((row["decision"], row["reason"]) for row in await m.story())
            assert (await m.status())["errors"] == 0
            await m.close()

    run()
    return *measured(log, seconds), told


def check(directory, report, seconds, left):
    plain, plain_waste, _ = scenario(directory, seconds, left, ours=False)
    begun, waste, told = scenario(directory, seconds, left, ours=True)
    title = f"executions begun for 8 tasks of {seconds} s, {left} s left"
    report.add("S8", title, plain=plain, ours=begun, bound="8")
    report.add("S8", "seconds thrown away", plain=plain_waste, ours=waste, bound="< 5 %")
    assert plain > 8 and begun == 8 and waste == 0
    assert any(d == "walltime" and "too little for one_task" in reason for d, reason in told)
    assert any(d == "walltime" and "early" in reason for d, reason in told)


def test_no_task_starts_where_it_cannot_finish(tmp_path, report):
    check(tmp_path, report, 0.9, 1.5)


@pytest.mark.slow
def test_the_original_numbers(tmp_path, report):
    check(tmp_path, report, 3, 5)
