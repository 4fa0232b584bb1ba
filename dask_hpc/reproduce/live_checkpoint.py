"""What commits take in each of their modes, measured on a live cluster."""

import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dask_hpc.model.errors import InputError
from dask_hpc.model.units import counted
from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Figure,
    Outcome,
    at_least,
    claim,
    direction,
    figure,
    rounded,
)

#: of what is committed
_BLOCKS, _BYTES = 16, 32e6
#: workers of the host that has the data, and hosts of one worker each that keep copies
_SOURCES, _KEEPERS = 2, 4
_AGENTS = (1, 2, 4)
#: turns of a run; what counts is their median
_TIMES = 3
_LOOK = 0.002  # seconds between two looks
_PATIENCE = 60.0  # seconds for one of them
#: all that the policy may say is said: nothing is looked for
_RULE = {
    "count": "fixed",
    "start": "all",
    "deal": "round-robin",
    "rank": "memory",
    "transfer": "pull",
    "gather": "worker",
}
T = TypeVar("T")


def modes(bench: Bench) -> Outcome:
    """Commits and restarts, one mode beside the other (seed 000, 6.2, 9.3.2 to 9.3.5, 9.4.1.5; digest 2.17,
    2.20, 3.4, 3.5, 3.10).

    Measured live: a host of two workers has an array, four other hosts of one worker each keep its copies;
    hosts are addresses of the loopback interface, workers are processes. A commit is timed by the program,
    until all is kept; that of a program that does not wait until it may go on. Every commit is of data that
    nobody has seen. A restart from memory is timed from the death of both workers that had the data until all
    of it is in memory again; one from the store until all is read.

    In each run, which has a cluster of its own, modes that are compared take turns, and a claim is about the
    ratios within runs. What limits a machine like this one: all processes share its processors and the memory
    behind them, so more agents are not more links; sums are made of the data at both ends; and each parcel of
    blocks costs messages through Dask's scheduler, which shares its interpreter with the program. Published
    are 4 nodes for copies beside 12 nodes, and factors of up to 100 over a parallel file system, which this
    machine does not have. (Needs 127.0.0.2 and so on, as Linux has them.)
    """
    if bench.client is not None:
        raise InputError("--cluster", "found one", "none: it is measured on a cluster of its own")
    rows = bench.each(_run, [(number,) for number in range(bench.seeds)])
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return Outcome(_claims(columns), _beside(columns))


Row = dict[str, float]
Columns = Mapping[str, np.ndarray]


@dataclass(slots=True)
class CommitCluster:
    """Hosts that have data, and hosts that keep copies; and programs that commit, each under a new name."""

    client: Any
    manager: Any
    sources: Sequence[str]
    keepers: Sequence[str]
    store: str
    _numbers: Iterator[int] = field(default_factory=count)

    def fresh(self, digits: int | None = None) -> Any:
        """Data that nobody has seen; with few digits it can be made smaller."""
        import dask.array as da
        from distributed import wait

        columns = int(_BYTES / 8 / _BLOCKS)
        random = da.random.default_rng(next(self._numbers)).random((_BLOCKS, columns), chunks=(1, columns))
        made = random if digits is None else random.round(digits)
        made = self.client.persist(made, workers=list(self.sources))
        wait(made)
        return made

    def rule(self, agents: int, **changed: str) -> None:
        """From now on commits are made so."""
        rule = {**_RULE, "candidates": agents, **changed}
        self.manager.set(**{f"checkpoint.{name}": value for name, value in rule.items()})

    def program(self, **how: Any) -> Any:
        """A new one."""
        from dask_hpc import Checkpoint

        return Checkpoint(f"program-{next(self._numbers)}", **{"every": 1, "levels": ["partner"], **how})

    def commit(self, **how: Any) -> float:
        """Seconds of one commit that the program waits for."""
        data = self.fresh(3 if "store" in how else None)
        with self.program(**how) as ck:
            data = ck.add("data", data)
            for _ in ck.loop(range(1)):
                ck.update(data=data)
                began = perf_counter()
            seconds = perf_counter() - began
            if not ck.stats().versions:
                raise RuntimeError(f"nothing was committed: {ck.stats().problem}")
        return seconds

    def commit_by(self, agents: int, **changed: str) -> float:
        """The same, with so many agents and this changed in the rule."""
        self.rule(agents, **changed)
        return self.commit()

    def goes_on_by(self, agents: int) -> float:
        """Seconds until a program that does not wait for its commit may go on."""
        self.rule(agents)
        data, began, seconds = self.fresh(), 0.0, 0.0
        with self.program() as ck:
            data = ck.add("data", data)
            for iteration in ck.loop(range(2)):
                if iteration:
                    seconds = perf_counter() - began
                ck.update(data=data)
                began = perf_counter()
        return seconds

    def sent(self) -> float:
        """Seconds in which Dask sends as much data from the same workers to the same workers."""
        from distributed import futures_of, wait

        data = self.fresh()
        began = perf_counter()
        moved = [
            self.client.submit(_nbytes, one, workers=[self.keepers[place % len(self.keepers)]], pure=False)
            for place, one in enumerate(futures_of(data))
        ]
        wait(moved)
        return perf_counter() - began

    def stored(self, compress: str) -> "Stored":
        """Seconds of a commit to the store, past all agents, and of a restart from there, and its bytes."""
        from distributed import wait

        from dask_hpc import restore

        with TemporaryDirectory(dir=self.store) as folder:
            how = {"store": folder, "levels": ["store"], "compress": compress}
            writes = self.commit(**how)
            nbytes = sum(one.stat().st_size for one in Path(folder).rglob("*") if one.is_file())
            (name,) = {one.name for one in Path(folder).iterdir() if one.name.startswith("program-")}
            began = perf_counter()
            data, _ = restore(name, store=folder)
            wait(data)
            return Stored(writes, perf_counter() - began, float(nbytes))

    def killed(self) -> float:
        """Seconds from the death of all workers that had the data until all of it is in memory again."""
        # not made by tasks: those would be for these workers only, and could not run elsewhere
        blocks = [
            np.random.default_rng(next(self._numbers)).bytes(int(_BYTES / _BLOCKS)) for _ in range(_BLOCKS)
        ]
        futures = self.client.scatter(blocks, workers=list(self.sources), hash=False)
        with self.program() as ck:
            values = {f"block-{place}": ck.add(f"block-{place}", one) for place, one in enumerate(futures)}
            for iteration in ck.loop(range(2)):
                if iteration:
                    break  # a program that ends otherwise: what was committed stays
                ck.update(values)
            _until(lambda: ck.stats().versions.get("partner") == 1)
            dead = set(self.sources)
            pids = self.client.run(os.getpid, workers=list(dead)).values()
            began = perf_counter()
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            _until(lambda: all(set(there) - dead for there in self.client.who_has(futures).values()))
            return perf_counter() - began


class Stored(NamedTuple):
    """Of one version: seconds of the commit and of the restart, and bytes of its files."""

    writes: float
    reads: float
    nbytes: float


def _nbytes(block: Any) -> int:
    return int(block.nbytes)


def _until(condition: Callable[[], bool]) -> None:
    until = perf_counter() + _PATIENCE
    while not condition():
        if perf_counter() > until:
            raise RuntimeError(f"it was not so after {_PATIENCE:.0f} s")
        sleep(_LOOK)


@contextmanager
def _cluster() -> Iterator[CommitCluster]:
    import dask
    from distributed import Client, Nanny, Scheduler, SpecCluster

    from dask_hpc import manage

    hosts = [2] * _SOURCES + list(range(3, 3 + _KEEPERS))  # 127.0.0.2 and so on
    workers = {
        place: {
            "cls": Nanny,
            "options": {
                "host": f"127.0.0.{host}",
                "nthreads": 1,
                "memory_limit": "1 GB",
                "name": str(place),
                "silence_logs": logging.CRITICAL,
            },
        }
        for place, host in enumerate(hosts)
    }
    options = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": ":0"}
    scheduler = {"cls": Scheduler, "options": options}
    with (
        TemporaryDirectory(prefix="dask-hpc-reproduce-") as store,
        dask.config.set({"hpc.node": "host", "hpc.checkpoint.store": None}),
        SpecCluster(workers, scheduler, silence_logs=logging.CRITICAL) as cluster,
        Client(cluster) as client,
        manage(client, "checkpoint-agents") as manager,
    ):
        client.wait_for_workers(len(hosts))
        on = {node["name"]: node["workers"] for node in manager.status()["nodes"]}
        sources = on.pop(f"127.0.0.{hosts[0]}")
        yield CommitCluster(
            client, manager, sources, [address for there in on.values() for address in there], store
        )


def _run(number: int) -> Row:
    """All modes, on a cluster of its own."""
    with _cluster() as cluster:
        cluster.rule(_KEEPERS)
        found = {"first": cluster.commit(), "later": median(cluster.commit() for _ in range(_TIMES))}
        ways: dict[str, Callable[[], float]] = {}
        for agents in _AGENTS:
            ways[f"pull {agents}"] = partial(cluster.commit_by, agents)
            ways[f"push {agents}"] = partial(cluster.commit_by, agents, transfer="push")
            ways[f"host {agents}"] = partial(cluster.commit_by, agents, gather="host")
            ways[f"goes on {agents}"] = partial(cluster.goes_on_by, agents)
        ways["sent"] = cluster.sent
        times = _by_turns(ways, number)
        found |= {name: median(seconds) for name, seconds in times.items()}
        found |= {
            f"{one} over {other}": median(np.array(times[one]) / np.array(times[other]))
            for one, other in _pairs()
        }
        stored: dict[str, Callable[[], Stored]] = {
            kind: partial(cluster.stored, kind) for kind in ("never", "always")
        }
        for kind, some in _by_turns(stored, number).items():
            for name, values in zip(Stored._fields, zip(*some, strict=True), strict=True):
                found[f"{name} {kind}"] = median(values)
        found["killed"] = cluster.killed()
    return {name: float(value) for name, value in found.items()}


def _pairs() -> Iterator[tuple[str, str]]:
    """What is compared within a turn."""
    for agents in _AGENTS:
        yield f"pull {agents}", f"push {agents}"
        yield f"host {agents}", f"pull {agents}"
        yield f"goes on {agents}", f"pull {agents}"
    for agents in _AGENTS[1:]:
        yield f"pull {_AGENTS[0]}", f"pull {agents}"


def _by_turns(ways: Mapping[str, Callable[[], T]], number: int) -> dict[str, list[T]]:
    """Each in each of a few turns, every other time in the opposite order."""
    found: dict[str, list[T]] = {name: [] for name in ways}
    for turn in range(_TIMES):
        for name in list(ways)[:: -1 if (turn + number) % 2 else 1]:
            found[name].append(ways[name]())
    return found


def _percent(ratio: np.ndarray) -> np.ndarray:
    """By so much more than one."""
    return 100.0 * (ratio - 1.0)


def _claims(columns: Columns) -> list[Claim]:
    one, most = _AGENTS[0], _AGENTS[-1]
    faster = {agents: _percent(columns[f"pull {agents} over push {agents}"]) for agents in _AGENTS}
    claims = [
        direction(
            f"{_agents(agents)}: who does not wait for a commit may go on sooner by",
            "up to 50 % better",
            100.0 * (1.0 - columns[f"goes on {agents} over pull {agents}"]),
            at_least(0),
        )
        for agents in (one, most)
    ]
    claims += [
        direction(f"{_agents(agents)}: push is faster than pull by", "faster", faster[agents], at_least(0))
        for agents in _AGENTS
    ]
    claims += [
        claim(
            f"{_agents(one)}: push is faster than pull by, in figures",
            40.0,
            faster[one],
            rounded(40, 10),
            "%",
            "40 % is printed, as a round figure",
        ),
        direction(
            f"the advantage of push is greater with {_agents(one)} than with {most} by",
            "vanishes as agents increase",
            faster[one] - faster[most],
            at_least(0),
            "points",
        ),
        claim(
            "the first commit of all takes as long as so many later ones",
            "5 to 10",
            columns["first"] / columns["later"],
            (5, 10),
            "",
            "the range that is printed",
        ),
    ]
    claims += [
        direction(
            f"{agents} agents are faster than {one} by",
            "faster; 12 agents: 13 to 15 times as fast",
            _percent(columns[f"pull {one} over pull {agents}"]),
            at_least(0),
        )
        for agents in _AGENTS[1:]
    ]
    restarts = {
        "from memory": columns["killed"] / columns[f"pull {most}"],
        "from the store": columns["reads never"] / columns["writes never"],
    }
    claims += [
        direction(f"a restart {how} takes longer than its commit by", "slower", _percent(ratio), at_least(0))
        for how, ratio in restarts.items()
    ]
    direct = columns["writes never"]
    return [
        *claims,
        direction(
            f"{_agents(one)}: direct write to the store takes longer by",
            "7.6 times as long as one agent",
            _percent(direct / columns[f"pull {one}"]),
            at_least(0),
        ),
        direction(
            "compressed, a version is smaller by",
            "significantly",
            100.0 * (1.0 - columns["nbytes always"] / columns["nbytes never"]),
            at_least(0),
        ),
        direction(
            "compress-and-write takes longer than direct write by",
            "heavily",
            _percent(columns["writes always"] / direct),
            at_least(0),
        ),
    ]


def _agents(agents: int) -> str:
    """In words."""
    return counted(agents, "agent")


def _beside(columns: Columns) -> list[Figure]:
    megabytes = _BYTES / 1e6
    found = [
        figure(f"{_agents(agents)}, {kind}", megabytes / columns[f"{kind} {agents}"], "MB/s")
        for agents in _AGENTS
        for kind in ("pull", "push")
    ]
    found += [
        figure(
            f"{_agents(agents)}: gathered by host (SHMR) takes longer than by worker (MR) by",
            _percent(columns[f"host {agents} over pull {agents}"]),
            "%",
        )
        for agents in _AGENTS
    ]
    return [
        *found,
        figure("Dask's own transfer of as much, to all agents' workers", megabytes / columns["sent"], "MB/s"),
        figure("the first commit of all", 1000 * columns["first"], "ms"),
        figure("who does not wait goes on after", 1000 * columns[f"goes on {_AGENTS[0]}"], "ms"),
        figure("restart from memory, from the death of two workers on", 1000 * columns["killed"], "ms"),
        figure("restart from the store", megabytes / columns["reads never"], "MB/s"),
        figure("direct write", megabytes / columns["writes never"], "MB/s"),
        figure("compress-and-write", megabytes / columns["writes always"], "MB/s"),
    ]
