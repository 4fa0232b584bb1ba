"""Tasks that would take a worker down together, in processes that are measured."""

import threading
import time
from contextlib import contextmanager

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

import dask_hpc
from dask_hpc.history.kinds import KindHistory

LIMIT = 700_000_000
HEAVY = 280_000_000
#: of the worker's process: how many of each kind run, and ran at once at most
_lock, running, most = threading.Lock(), {}, {}


def _work(kind, nbytes, *seconds):
    with _lock:
        running[kind] = running.get(kind, 0) + 1
        most[kind] = max(most.get(kind, 0), running[kind])
    try:
        made = np.empty(nbytes, np.uint8)
        for part, rest in zip(np.split(made, len(seconds)), seconds, strict=True):
            part[:] = 1
            time.sleep(rest)
        return int(made[-1])
    finally:
        del made
        with _lock:
            running[kind] -= 1


def heavy(i):
    return i * _work("heavy", HEAVY, 0.4)


def slow(i):
    """After the second for which the strategy is patient it has a fifth of its memory."""
    return i * _work("slow", HEAVY, *[0.4] * 5, *[0.05] * 15)


def small(i):
    return i * _work("small", 1000, 0.02)


def at_once():
    return dict(most)


@contextmanager
def one_worker():
    with (
        dask.config.set(
            {"distributed.worker.memory.spill": False, "distributed.worker.memory.target": False}
        ),
        LocalCluster(
            processes=True, n_workers=1, threads_per_worker=4, memory_limit=LIMIT, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        before = names(client)
        yield client
        assert names(client) == before, "the worker did not live"


def seen(client):
    """What ran at once in the only worker, and how many workers there have ever been."""
    (found,) = client.run(at_once).values()
    return found


def names(client):
    return set(client.scheduler_info(n_workers=-1)["workers"])


def story(manager, decision):
    return [row["reason"] for row in manager.story() if row["decision"] == decision]


@pytest.mark.slow
def test_all_end_and_the_worker_lives_and_the_next_program_knows(forked_workers, tmp_path):
    path = tmp_path / "runs.json"
    with dask.config.set({"hpc.history": str(path)}):
        with one_worker() as client, dask_hpc.manage(client, "memory-lanes") as manager:
            assert client.gather(client.map(heavy, range(10))) == list(range(10))
            (known,) = manager.status()["together"]["memory"]["kinds"]
            assert known["kind"] == "heavy" and not known["remembered"]
            assert 0.9 * HEAVY < known["peak"] < 1.4 * HEAVY and known["at_once"] in (1, 2)
            assert any(words.startswith("heavy: ") for words in story(manager, "memory-lane"))
            assert manager.status()["errors"] == 0
            assert 1 <= seen(client)["heavy"] <= 2
        remembered = KindHistory.of(str(path)).read()
        assert remembered["heavy"].peak == pytest.approx(known["peak"], rel=0.3)
        with one_worker() as client, dask_hpc.manage(client, "memory-lanes") as manager:
            while not (kinds := manager.status()["together"]["memory"]["kinds"]):
                time.sleep(0.01)
            assert kinds[0]["kind"] == "heavy" and kinds[0]["remembered"]
            # from the first task on as many begin at once as fit
            assert client.gather(client.map(heavy, range(6))) == list(range(6))
            assert manager.status()["errors"] == 0 and 1 <= seen(client)["heavy"] <= 2


@pytest.mark.slow
def test_who_fills_its_memory_slowly_is_not_judged_before_it_has(forked_workers):
    with one_worker() as client, dask_hpc.manage(client, "memory-lanes") as manager:
        assert client.gather(client.map(slow, range(4))) == list(range(4))
        assert manager.status()["errors"] == 0 and seen(client)["slow"] <= 2


@pytest.mark.slow
def test_a_small_kind_is_not_kept_and_a_heavy_one_does_not_stop_it(forked_workers):
    with one_worker() as client, dask_hpc.manage(client, "memory-lanes") as manager:
        assert client.gather(client.map(small, range(40))) == list(range(40))
        assert seen(client)["small"] == 4
        assert "small" not in [one["kind"] for one in manager.status()["together"]["kept"]]
        some = client.map(heavy, range(6))
        others = client.map(small, range(100, 160))
        wait(others)
        assert not all(future.done() for future in some), "they waited for what is heavy"
        assert client.gather(others) == list(range(100, 160)) and client.gather(some) == list(range(6))
        assert manager.status()["errors"] == 0 and seen(client)["heavy"] <= 2
