"""Moves carried out on real workers: nothing is lost, whatever happens meanwhile."""

import numpy as np
from distributed import wait
from distributed.utils_test import async_poll_for, gen_cluster

from dask_hpc.live import compat, moves
from dask_hpc.planning.moves import Move, evacuate

quiet = {"distributed.worker.memory.pause": False, "distributed.worker.memory.terminate": False}
cluster3 = gen_cluster(client=True, nthreads=[("", 1)] * 3, config=quiet)


class Told(list):
    def __call__(self, decision, reason):
        self.append((decision, reason))


def held_by(s, worker):
    return set(compat.keys_on(s, worker.address))


async def spread_out(c, worker, count, nbytes=100, name="x"):
    """``count`` results, made on one worker."""
    futures = [
        c.submit(np.ones, nbytes, dtype="u1", key=(name, i), workers=[worker.address]) for i in range(count)
    ]
    await wait(futures)
    return futures


def all_to(blocks, target):
    return [Move(block.key, block.nbytes, block.holders[0], target.address) for block in blocks]


@cluster3
async def test_results_move(c, s, a, b, d):
    futures = await spread_out(c, a, 10)
    told = Told()
    blocks = moves.blocks_on(s, [a.address])
    assert {(block.key, block.holders) for block in blocks} == {(f.key, (a.address,)) for f in futures}
    assert all(block.nbytes >= 100 for block in blocks)
    assert await moves.carry_out(s, all_to(blocks, b), "a test", told) == set()
    assert held_by(s, b) == {f.key for f in futures} and not held_by(s, a)
    await async_poll_for(lambda: not a.data and len(b.data) == 10, 5)
    [(decision, reason)] = told
    assert decision == "move" and "10 results" in reason and reason.endswith("a test")
    assert "from 1 worker to 1 worker" in reason
    assert all(f.status == "finished" for f in futures)


@cluster3
async def test_evacuation_end_to_end(c, s, a, b, d):
    futures = await spread_out(c, a, 12)
    plan = evacuate(moves.blocks_on(s, s.workers), [a.address], moves.rooms_on(s, s.workers))
    assert await moves.carry_out(s, plan.moves, "a leaves", Told()) == set()
    assert not held_by(s, a)
    assert {len(held_by(s, b)), len(held_by(s, d))} == {6}
    await a.close()
    assert sum(map(int, map(len, await c.gather(futures)))) == 1200
