"""A rig for control-room.ipynb: what somebody who watches costs a scheduler of 1,000 nodes and 200 jobs.

``python watched_scheduler.py measure SECONDS PAIRS`` prints it as JSON. The scheduler has a process of its
own; its workers are states without processes, so its jobs never end, but they are resized all the time.
"""

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from contextlib import suppress
from random import Random

import dask
from distributed import Client, Scheduler
from stateless_workers import add_workers, nobody

import dask_hpc

WORKERS, JOBS, EVERY = 1_000, 200, 0.1


def nothing(i):
    return None


async def serve():
    """Until standard input ends: prints the address, then keeps resizing jobs."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    quiet = {
        "distributed.scheduler.active-memory-manager.start": False,
        "distributed.scheduler.work-stealing": False,
        "distributed.scheduler.worker-ttl": None,
    }
    with dask.config.set(quiet):
        async with (
            Scheduler(host="127.0.0.1", port=0, dashboard_address=":0") as s,
            Client(s.address, asynchronous=True) as c,
        ):
            s.broadcast = nobody
            add_workers(s, WORKERS)
            manager = await dask_hpc.manage(c, policy="fpsma-pwma")
            futures = []
            for i in range(JOBS):
                with dask_hpc.job(f"j{i}", nodes=4, min_nodes=2, max_nodes=16, walltime="1h"):
                    futures += c.map(nothing, range(20), pure=False)
            jobs = s.plugins["dask-hpc"].control.jobs
            while len(jobs) < JOBS:
                await asyncio.sleep(0.05)
            running = [job for job in jobs.values() if job.state == "running"]
            print(s.address, len(running), flush=True)
            is_over = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
            dice = Random(1)
            while not is_over.done():
                with suppress(dask_hpc.InputError):  # it may be as small or as large as it may be
                    await manager.resize(dice.choice(running).id, dice.choice([-1, 1]))
                await asyncio.wait([is_over], timeout=EVERY)
            sys.stdout.flush()
            os._exit(0)  # no need to let go of all that one by one


def used(dask_scheduler):
    return time.process_time()


def measure(seconds, pairs):
    """Shares of a core that the scheduler's process uses while nobody and while somebody watches."""
    command = [sys.executable, __file__, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            address, running = server.stdout.readline().split()
            with Client(address) as client:
                found = [_pair(client, seconds, turn) for turn in range(pairs)]
        finally:
            server.stdin.close()
    return {
        "running": int(running),
        "without": [one[False][0] for one in found],
        "watched": [one[True][0] for one in found],
        "answers": [one[True][1] / seconds for one in found],
        "changes": [one[True][2] / seconds for one in found],
    }


def _pair(client, seconds, turn):
    order = (False, True) if turn % 2 == 0 else (True, False)
    return {is_watched: _share(client, seconds, is_watched) for is_watched in order}


def _share(client, seconds, is_watched):
    """Of a core; answers that came in, and changes in them."""
    watch, heard = dask_hpc.manage(client).watch, []
    if is_watched:
        watch.somebody_looks(seconds + 60)
        end = watch.follow(heard.append, parts=("power", "checkpoint"))
        while not heard:
            time.sleep(0.01)
    began, before, known = time.monotonic(), client.run_on_scheduler(used), len(heard)
    time.sleep(seconds)
    after, took = client.run_on_scheduler(used), time.monotonic() - began
    if is_watched:
        end()
        while watch.is_awake:
            time.sleep(0.01)
    return (
        (after - before) / took,
        len(heard) - known,
        sum(len(new.get("changes", ())) for new in heard[known:]),
    )


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve())
    else:
        print(json.dumps(measure(float(sys.argv[2]), int(sys.argv[3]))))
