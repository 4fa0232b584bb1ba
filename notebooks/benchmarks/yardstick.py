"""A yardstick for the simulator: what a program takes for the same jobs that does nothing but what it must.

It serves rigid jobs first come, first served, and takes each job from the workload, puts it in line, counts
nodes, keeps its end in a heap and what runs in a dictionary, and writes down when it started and ended: the
same numbers as the simulator. It knows no node by name, no policy, no plan, no reason and nothing else that
may happen to a job. How many times as long a simulation takes is a matter of the simulator, not of the
machine.
"""

import gc
from array import array
from collections import deque
from heapq import heappop, heappush
from statistics import median
from time import process_time

from dask_hpc import simulate


def serve(arrivals, nodes):
    """First come, first served; answers the starts and ends in order of submission."""
    start, end = array("d", bytes(8 * len(arrivals))), array("d", bytes(8 * len(arrivals)))
    waiting, running, events = deque(), {}, []
    arrivals = iter(enumerate(arrivals))
    row, arrival = next(arrivals, (0, None))
    while True:  # not ``while events``: Python 3.11 would make the function fast after some calls only
        if not events and arrival is None:
            return start, end
        if arrival is not None and (not events or arrival.job.submitted < events[0][0]):
            now = arrival.job.submitted
            waiting.append((row, arrival))
            row, arrival = next(arrivals, (0, None))
        else:
            now, over = heappop(events)
            end[over] = now
            nodes += running.pop(over)
        while waiting and waiting[0][1].job.nodes <= nodes:
            begun, first = waiting.popleft()
            nodes -= first.job.nodes
            running[begun] = first.job.nodes
            start[begun] = now
            heappush(events, (now + min(first.runtime, first.job.walltime), begun))


def seconds(work, *args, **kwargs):
    """Processor time that it takes. What was there before is not looked through for garbage meanwhile:
    ``simulate`` does without that, too."""
    gc.collect()
    gc.freeze()
    began = process_time()
    work(*args, **kwargs)
    took = process_time() - began
    gc.unfreeze()
    return took


def by_turns(arrivals, nodes, policy, times):
    """Simulation and yardstick, one after the other: the median seconds of each, and of the simulation in
    yardsticks."""
    pairs = [
        (seconds(simulate, arrivals, nodes=nodes, policy=policy), seconds(serve, arrivals, nodes))
        for _ in range(times)
    ]
    return *map(median, zip(*pairs, strict=True)), median(took / yard for took, yard in pairs)
