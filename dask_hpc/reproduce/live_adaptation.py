"""What a change of size of a running job takes, measured on a live cluster."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter, sleep
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError
from dask_hpc.model.units import count_nodes
from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Figure,
    Outcome,
    at_least,
    at_most,
    claim,
    direction,
    figure,
)

#: nodes at most
_NODES = 16
#: seconds of a task
_TASK = 0.05
_LOOK = 0.002  # seconds between two looks whether a change is over
_PATIENCE = 30.0  # seconds for one change
#: between 1 and 2 nodes, and between 15 and 16: what the source prints, seconds
_PUBLISHED = {"grow": (0.11, 1.29), "shrink": (0.05, 2.25)}


def overhead(bench: Bench) -> Outcome:
    """Growing and shrinking a running job node by node, from 1 to 16 and back (seed 001, 7.5; digest 3.5).

    Measured live. One evolving job asks for a node more, or gives one back; tasks of 50 ms keep all its nodes
    busy. The program measures, from its question on: a growth is over when a task of the job runs on the new
    node; a shrink when what ran on the node has ended, what had not started there is elsewhere, and the node
    is free. Beside it are the phases as ``Manager.status()`` has them. Published are the ends of both curves,
    by ``MPI_Wtime`` from the opening of the adaptation window to its commit: what runs before the window is
    not waited for there; in ours it is, which counts against us.

    Ours are workers in one process, on the loopback interface: on a small machine 16 processes would measure
    how two cores are shared. So scheduler, workers and the program share one interpreter, and wait for each
    other. Ours start no process: the workers are there. Nothing of a batch system is in either.
    """
    if bench.client is not None:
        raise InputError("--cluster", "found one", "none: it is measured on a cluster of its own")
    with _cluster(_NODES) as cluster:
        _run(cluster, 0)  # who connects to whom for the first time takes longer
        rows = bench.each(partial(_run, cluster), [(number,) for number in range(1, bench.seeds + 1)])
    seconds = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    return Outcome([*_ends(seconds), *_shape(seconds)], _beside(seconds))


#: way, nodes of the smaller size, phase -> seconds
Row = dict[tuple[str, int, str], float]


@contextmanager
def _cluster(nodes: int) -> Iterator["LocalNodes"]:
    """So many nodes of one thread each."""
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"hpc.node": "worker"}),
        LocalCluster(
            n_workers=nodes,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address=":0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(nodes)
        yield LocalNodes(client, {str(worker.name): worker for worker in cluster.workers.values()})


@dataclass(frozen=True, slots=True)
class LocalNodes:
    """A cluster whose workers are here, by the names of their nodes."""

    client: Any
    workers: Mapping[str, Any]

    def all_work(self, nodes: Iterable[str]) -> bool:
        """Whether each of these runs something."""
        return all(self.workers[node].state.executing_count for node in nodes)


def _run(cluster: LocalNodes, number: int) -> Row:
    """One run: up to all nodes and back."""
    from dask_hpc import job, manage

    found: Row = {}
    nodes = len(cluster.workers)
    up_and_down = [("grow", 1, size) for size in range(1, nodes)]
    up_and_down += [("shrink", -1, size) for size in range(nodes - 1, 0, -1)]
    with (
        manage(cluster.client, "fcfs"),
        job(f"adapts-{number}", nodes=1, min_nodes=1, max_nodes=nodes, kind="evolving") as adapting,
    ):
        work = _Work(cluster.client)
        for way, change, size in up_and_down:
            work.more(4 * nodes)
            _until(lambda: bool(held := _nodes_of(adapting.status())) and cluster.all_work(held))
            for phase, seconds in _change(cluster, adapting, change).items():
                found[way, size, phase] = seconds
        work.end()
    return found


def _nodes_of(status: Mapping[str, Any]) -> set[str]:
    """That the job holds; none as long as nothing of it has arrived."""
    return set(status.get("nodes", ()))


class _Work:
    """Tasks of the job, more than it can do, of which nobody keeps the results."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._futures: list[Any] = []

    def more(self, tasks: int) -> None:
        """So many more; those that are done are forgotten."""
        self._futures = [one for one in self._futures if not one.done()]
        self._futures += self._client.map(sleep, [_TASK] * tasks, pure=False)

    def end(self) -> None:
        """Nothing more."""
        self._client.cancel(self._futures)


def _change(cluster: LocalNodes, adapting: Any, change: int) -> dict[str, float]:
    """Seconds of one change by one node, as the program sees it and by its phases, once it is over."""
    before = _nodes_of(adapting.status())
    began = perf_counter()
    adapting.request(change)

    def is_over() -> bool:
        status = adapting.status()
        nodes = _nodes_of(status)
        is_so = len(nodes) == len(before) + change and not status["gives_up"]
        return is_so and cluster.all_work(nodes - before)

    _until(is_over)
    seconds = perf_counter() - began
    phases = adapting.status()["adaptation"]
    return {"seen": seconds} | {phase: phases[phase] for phase in ("decision", "drain", "move")}


def _until(condition: Callable[[], bool]) -> None:
    """Wait, with looks so short that they hardly count."""
    until = perf_counter() + _PATIENCE
    while not condition():
        if perf_counter() > until:
            raise RuntimeError(f"a change of size was not over after {_PATIENCE:.0f} s")
        sleep(_LOOK)


Columns = Mapping[tuple[str, int, str], np.ndarray]


def _ends(seconds: Columns) -> list[Claim]:
    """The four printed points."""
    note = "at most what is published, though ours waits for running tasks, too"
    claims = []
    for way, published in _PUBLISHED.items():
        for smaller, value in zip((1, _NODES - 1), published, strict=True):
            before, after = (smaller, smaller + 1) if way == "grow" else (smaller + 1, smaller)
            text = f"{way} from {before} to {count_nodes(after)}"
            claims.append(claim(text, value, seconds[way, smaller, "seen"], at_most(value), "s", note))
    return claims


def _shape(seconds: Columns) -> list[Claim]:
    """What is said of the curves between them."""
    sizes, top = range(1, _NODES), _NODES - 1
    claims = []
    for way in _PUBLISHED:
        slopes = np.polyfit(sizes, np.array([seconds[way, size, "seen"] for size in sizes]), 1)[0]
        text = f"{way}: longer with each node that the job has by"
        claims.append(direction(text, "rises with the number of nodes", 1000 * slopes, at_least(0), "ms"))
    more = 1000 * (seconds["shrink", top, "seen"] - seconds["grow", top, "seen"])
    text = f"from {_NODES} to {top} nodes takes longer than from {top} to {_NODES} by"
    return [*claims, direction(text, "shrinks cost more", more, at_least(0), "ms")]


def _beside(seconds: Columns) -> list[Figure]:
    """Points between the ends, and phases over all sizes."""
    found = []
    for way in _PUBLISHED:
        for size in range(4, _NODES - 1, 4):
            text = f"{way} between {size} and {size + 1} nodes"
            found.append(figure(text, 1000 * seconds[way, size, "seen"], "ms"))
        for phase in ("decision", "drain", "move"):
            mean = np.mean([seconds[way, size, phase] for size in range(1, _NODES)], axis=0)
            if mean.any():
                found.append(figure(f"{way}: {phase}, over all sizes", 1000 * mean, "ms"))
    for size in (1, _NODES - 1):
        rest = seconds["shrink", size, "seen"] - seconds["shrink", size, "drain"]
        text = f"shrink between {size} and {size + 1} nodes, without the wait for what ran there"
        found.append(figure(text, 1000 * rest, "ms"))
    return found
