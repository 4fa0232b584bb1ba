"""The suite of real workloads: what people run on Dask, written after the patterns of public benchmarks.

``python real_workloads.py`` lists them; ``python real_workloads.py NAME ... --size small`` (or ``all``) runs
them on plain Dask and prints how long each takes. ``under_change.py`` runs them while the cluster changes.
"""

import argparse
import gc
import logging
import time

import array_workloads
import frame_workloads
import future_workloads
from distributed import Client, LocalCluster
from workload_kit import SIZES, WORKLOADS, Workload, is_same

__all__ = ["CHAPTERS", "SIZES", "WORKLOADS", "Workload", "is_same"]
CHAPTERS = (array_workloads, frame_workloads, future_workloads)


def forget_all(client, patience=30.0):
    """Wait until the scheduler knows no task any more: the next measurement starts from nothing."""
    began = time.monotonic()
    while client.run_on_scheduler(known_tasks):
        waited = time.monotonic() - began
        assert waited < patience, "tasks are left over"
        if waited > 0.1:
            gc.collect()  # futures that actors hold are in circles, here and there
            client.run(gc.collect)
        time.sleep(0.01)


def known_tasks(dask_scheduler):
    return len(dask_scheduler.tasks)


def main():
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("names", nargs="*", metavar="NAME", help="all, or some of the names that are listed")
    asked.add_argument("--size", choices=SIZES, default="small")
    asked.add_argument("--times", type=int, default=1)
    given = asked.parse_args()
    if not given.names:
        for one in WORKLOADS.values():
            print(f"{one.name:20} {one.function.__doc__.splitlines()[0]}\n{'':20} stresses {one.stresses}")
        return
    names = list(WORKLOADS) if given.names == ["all"] else given.names
    with (
        LocalCluster(
            n_workers=4, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster) as client,
    ):
        for name in names:
            for _ in range(given.times):
                began = time.perf_counter()
                found = WORKLOADS[name].run(client, given.size)
                took = time.perf_counter() - began
                forget_all(client)
                print(f"{name:20} {given.size:6} {took:6.2f} s  {str(found)[:60]!r}", flush=True)


if __name__ == "__main__":
    main()
