"""One brain, two bodies, for where jobs are: the same nodes for the same reasons, simulated and live."""

import threading

import pytest
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc import Policy
from dask_hpc.model.job import Job
from dask_hpc.planning.topology_file import topology_in
from dask_hpc.simulator import Arrival, Platform, Record
from dask_hpc.simulator.machine import Machine

FILE = "tree: {d: [0], b: [1, 2, 3], a: [4, 5, 6], c: [7, 8]}\nport: 100 MB/s\nbandwidths: {level1: 4 MB/s}\n"
#: name, submitted, nodes, runtime, bytes per second; nothing happens at one instant with something else
ROWS = [
    ("A", 0.0, 4, 30.0, 4e6),
    ("B", 1.0, 4, 25.5, 1.5e6),
    ("C", 2.0, 1, 90.0, 2e6),
    ("D", 3.0, 3, 20.0, 3e6),
    ("E", 10.0, 3, 40.5, 3e6),
    ("F", 41.0, 5, 30.0, 1e6),
    ("G", 42.0, 2, 33.3, 8e6),
]
GATES = {name: threading.Event() for name, *_ in ROWS}


def work(name):
    GATES[name].wait(60)


def picked(story, name=lambda text: text):
    return [(name(row.job), row.nodes, row.reason) for row in story.happenings if row.decision == "picked"]


def simulated(policy):
    """Who got which nodes, what was said of it, and when each job ended."""
    record = Record(allotments=True)
    machine = Machine(Platform(9, topology=topology_in(FILE).topology), policy, record)
    machine.run(
        Arrival(Job(id=name, submitted=time, nodes=nodes, traffic=traffic), runtime)
        for name, time, nodes, runtime, traffic in ROWS
    )
    held = [(record.id[row], nodes) for _, row, nodes in record.allotments if nodes]
    ends = dict(zip(record.id, record.end, strict=True))
    assert len(set(ends.values())) == len(ends)
    return held, picked(machine.story), ends


@pytest.mark.parametrize("strategy", ["first", "contiguous", "spread", "least-congested"])
def test_the_same_nodes_for_the_same_jobs(strategy, tmp_path):
    policy = Policy.load("easy-backfill").with_(**{"nodes.strategy": strategy})
    held, reasons, ends = simulated(policy)
    assert len(held) == len(ROWS) and bool(reasons) == (strategy == "least-congested")
    script = sorted(
        [(row[1], "submit", row[0]) for row in ROWS] + [(time, "end", name) for name, time in ends.items()]
    )
    path = tmp_path / "topology.yaml"
    path.write_text(FILE)
    config = {"hpc.topology": str(path), "hpc.drain": 0, "hpc.history": None}

    @gen_cluster(client=True, nthreads=[("", 4)] * 9, config=config)
    async def run(c, s, *workers):
        for gate in GATES.values():
            gate.clear()
        async with await dask_hpc.manage(c, policy=policy):
            plugin = s.plugins["dask-hpc"]
            nodes = plugin.control.indices.nodes
            await async_poll_for(lambda: all(node.place for node in nodes.values()), 10)
            plugin.context.clock = lambda: now
            ids, futures = {}, []
            rows = {name: row for name, *row in ROWS}

            def told(decision, job):
                return any(h.decision == decision and h.job == ids[job] for h in plugin.story.happenings)

            for now, what, which in script:  # noqa: B007 (the clock reads it)
                if what == "submit":
                    _, count, _, traffic = rows[which]
                    with dask_hpc.job(which, nodes=count, traffic=traffic) as context:
                        futures.append(c.submit(work, which, key=f"work-{which}"))
                    ids[which] = context.id
                else:
                    GATES[which].set()
                await async_poll_for(lambda what=what, job=which: told(what, job), 10)
                await async_poll_for(lambda: not plugin.context.is_awake, 10)
            await c.gather(futures)
            names = {job_id: job for job, job_id in ids.items()}
            starts = [(names[h.job], h.nodes) for h in plugin.story.happenings if h.decision == "start"]
            assert starts == held
            assert picked(plugin.story, names.__getitem__) == reasons
            assert plugin.errors == 0

    run()
