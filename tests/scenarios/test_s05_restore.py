"""S5: everything is restarted, and the same graph is submitted again."""

from contextlib import ExitStack
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, wait
from worker_process import empty_cluster, terminate, worker_process

import dask_hpc


def logged(block, log):
    if block.size:  # Dask also tries it with nothing
        with open(log, "a") as file:
            file.write("x\n")
    return block * 2.5 + 1


def last_step(x):
    return (x.T @ x).sum(axis=0)


def graph(log, seed):
    """Eight blocks that are expensive (and say that they ran), and something cheap on top."""
    source = da.random.RandomState(seed).random((80, 80), chunks=(20, 40))
    return source.map_blocks(logged, log=log, dtype=float)


def count(log):
    return len(Path(log).read_text().splitlines()) if Path(log).exists() else 0


def one_life(loop, store, log, seed, *, ours, end):
    """A cluster from its start to its end, by SIGTERM to all workers. The answer, and what ran for it."""
    before = count(log)
    with ExitStack() as stack:
        cluster = stack.enter_context(empty_cluster(loop=loop))
        c = stack.enter_context(Client(cluster))
        workers = [
            stack.enter_context(worker_process(cluster, name, "--no-nanny", fork=True)) for name in "ab"
        ]
        if ours:
            with dask.config.set({"hpc.rescue": str(store)}):
                manager = stack.enter_context(dask_hpc.manage(c))
        c.wait_for_workers(2)
        blocks = c.persist(graph(log, seed))
        wait(blocks)
        answer = c.compute(last_step(blocks)).result()
        ran = count(log) - before
        if end:
            for worker in workers:
                terminate(worker, everybody=True)
            for worker in workers:
                worker.wait(20)
        if ours:
            assert [row for row in manager.story() if row["decision"] == "error"] == []
    return answer, ran


@pytest.mark.slow
def test_only_what_is_not_stored_is_computed_again(loop, tmp_path, report):
    log = str(tmp_path / "log")
    _, first = one_life(loop, None, log, 1, ours=False, end=True)
    _, plain = one_life(loop, None, log, 1, ours=False, end=False)
    assert first == plain == 8, "plain Dask computes everything again"

    store = tmp_path / "store"
    answer, first = one_life(loop, store, log, 1, ours=True, end=True)
    files = list(store.glob("*.result"))
    assert first == 8 and len(files) >= 8
    again, ran = one_life(loop, store, log, 1, ours=True, end=True)
    report.add("S5", "of 8 blocks computed again after a restart", plain=plain, ours=ran, bound="0")
    assert ran == 0
    assert again.tobytes() == answer.tobytes() == np.asarray(answer).tobytes()

    # One damaged file and one foreign: computed again, the others loaded.
    files[0].write_bytes(files[0].read_bytes()[:-5])
    (store / ("0" * 40 + ".result")).write_bytes(b"foreign")
    again, ran = one_life(loop, store, log, 1, ours=True, end=False)
    report.add("S5", "computed again, one file damaged", plain=plain, ours=ran, bound="1")
    assert ran <= 1 and again.tobytes() == answer.tobytes()

    other, ran = one_life(loop, store, log, 2, ours=True, end=False)
    report.add("S5", "computed again, another input", plain=plain, ours=ran, bound="8")
    assert ran == 8 and other.tobytes() != answer.tobytes()
