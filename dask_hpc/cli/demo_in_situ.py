"""The demo of a pipeline: heat in a plate, four analyses of every iteration, one of which becomes slow.

Cores are played: a task computes, then waits for as long as a slow core would have taken. So two real cores
do for the sixteen that are divided.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from statistics import mean
from time import monotonic
from typing import Any

import numpy as np
from distributed import Client

import dask_hpc
from dask_hpc.cli.demo_cluster import demo_cluster
from dask_hpc.cli.demo_seen import Seen
from dask_hpc.examples import heat
from dask_hpc.model.in_situ import (
    Analysis,
    ChangeStatus,
    EqualNodes,
    IterationStatus,
    PartitionProblem,
    PipelineStatus,
    Simulation,
)
from dask_hpc.planning.in_situ.phases import with_split
from dask_hpc.planning.in_situ.plan import partition
from dask_hpc.policy import Policy

NODES, CORES, BLOCKS = 4, 4, 24
#: seconds that a block takes on a played core, by function
PLAYED = {"advance": 0.2, "front": 0.02, "profile": 0.03, "spectrum": 0.02, "picture": 0.03}
SLOW, SLOWER = "spectrum", 10.0
_SIZE = 192, 384  # rows and columns of the plate
#: of the time: before one becomes slow, after the partition has followed, and with each other placement
_SHARES = 0.4, 0.25, 0.08
_NOTICED = 7  # iterations, about, until the partition has followed
_PATIENCE = 5  # how often as many are added while it has not
_FEW = 3  # iterations that say how long one takes
_PICTURES = 6  # of the plate, for the report


@dataclass(frozen=True)
class Rival:
    """A placement that was not chosen, tried in the same run."""

    name: str
    #: of an iteration, a mean
    seconds: float


class InSituDemo(Seen):
    """One run. ``play`` does everything; the rest is there to be shown."""

    def __init__(self, policy: Policy, seconds: float) -> None:
        super().__init__()
        self.policy = policy
        mode = policy.placement.mode
        before, after = (partition(problem(mode, slower)) for slower in (1.0, SLOWER))
        #: the iteration from which on one analysis is slow, and the last
        self.slow_from = max(8, round(_SHARES[0] * seconds / before.iteration))
        followed = max(4, round(_SHARES[1] * seconds / after.iteration))
        self.iterations = self.slow_from + _NOTICED + followed
        self._tried = max(_FEW, round(_SHARES[2] * seconds / after.iteration))
        #: how it goes: its status, once there is any
        self.pipeline: PipelineStatus | None = None
        #: of the analysis that is slow; empty before
        self.slow = ""
        #: what each analysis found last, in words
        self.found: dict[str, str] = {}
        #: as much of the plate as a person wants to see, and some of it for later, by iteration
        self.field: np.ndarray | None = None
        self.fields: list[tuple[int, np.ndarray]] = []
        #: every iteration and every change of the partition, as the status told them
        self.history: list[IterationStatus] = []
        self.told_changes: list[ChangeStatus] = []
        self.rivals: list[Rival] = []
        #: iterations whose results were looked at, and those of them that were wrong
        self.checked = self.wrong = 0
        #: whether the plate in the end was as it was to be
        self.is_same = False
        self.failure = ""
        self._results: list[Mapping[str, Any]] = []

    @property
    def bounds(self) -> tuple[float, float]:
        """Temperatures that are shown: from cold to the hottest so far, or a little warm."""
        return 0.0, max(0.2, 0.0 if self.field is None else float(self.field.max()))

    @property
    def done(self) -> int:
        """Iterations whose results are there."""
        return len(self._results)

    @property
    def changes(self) -> dict[int, str]:
        """From which iteration on there was another partition, and why."""
        return {one["iteration"]: one["reason"] for one in self.told_changes}

    @property
    def spells(self) -> list[tuple[str, list[IterationStatus]]]:
        """The iterations for which there was a plan, before one analysis became slow and under the last
        partition; those that have led to it are of neither."""
        planned = [one for one in self.history if one["expected"] is not None]
        since = max((at for at in self.changes if at > self.slow_from), default=inf)
        return [
            ("Before that", [one for one in planned if one["iteration"] < self.slow_from]),
            ("Under the last partition", [one for one in planned if one["iteration"] > since]),
        ]

    @property
    def ours(self) -> float | None:
        """Seconds of an iteration under the last partition, if there were a few."""
        rows = self.spells[1][1]
        return mean(one["seconds"] for one in rows) if len(rows) >= _FEW else None

    def play(self, update: Callable[[], None]) -> None:
        """Start the cluster, run the pipeline, make one analysis slow, try the other placements, check."""
        with self._cluster() as (client, manager):
            self.zero = manager.status()["time"]
            self._play_cores(client)
            pipe = self._pipeline(client)
            for number, results in self._iterate(pipe):
                if number == self.slow_from:
                    self._play_cores(client, SLOWER)
                    self.slow = SLOW
                self.look(manager)
                self.note(number, results, pipe.status())
                update()
            last = pipe.state["temperature"].values
            self._check(last)
            self._try_others(client)

    @contextmanager
    def _cluster(self) -> Iterator[tuple[Client, Any]]:
        with (
            demo_cluster(NODES, threads=CORES) as (_, client),
            dask_hpc.manage(client, self.policy) as manager,
        ):
            yield client, manager

    def _iterate(self, pipe: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """As many iterations as are to be; some more where the partition has not followed yet, as it is with
        times that other programs disturb."""
        yield from pipe.run(iterations=self.iterations)
        for _ in range(_PATIENCE):
            if self.ours is not None:
                return
            self.iterations += _NOTICED
            yield from pipe.run(iterations=_NOTICED)

    def _play_cores(self, client: Client, slower: float = 1.0) -> None:
        client.run(heat.play, PLAYED | {SLOW: slower * PLAYED[SLOW]})

    def _pipeline(self, client: Client, name: str = "heat", placement: Any = "auto") -> Any:
        return dask_hpc.InSituPipeline(
            step=heat.advance,
            state=heat.plate(*_SIZE, BLOCKS),
            analyses=heat.analyses(),
            halo=heat.HALO,
            mode=self.policy.placement.mode,
            placement=placement,
            name=name,
            client=client,
        )

    def note(self, number: int, results: Mapping[str, Any], status: PipelineStatus) -> None:
        """What analyses found, and how it goes: the status itself forgets what is old."""
        self._results.append(results)
        self.pipeline = status
        last = self.history[-1]["iteration"] if self.history else -1
        self.history += [one for one in status["history"] if one["iteration"] > last]
        self.told_changes += [one for one in status["changes"] if one not in self.told_changes]
        self.found |= {name: _said(name, found) for name, found in results.items()}
        self.field = results.get("picture", self.field)
        if self.field is not None and number >= (len(self.fields) + 1) * self.iterations / _PICTURES:
            self.fields.append((number, self.field))

    def _try_others(self, client: Client) -> None:
        """What the same takes if all analyses run in situ, or all in transit, divided as well as can be."""
        for name, is_inside in (("all in situ", True), ("all in transit", False)):
            given = problem(self.policy.placement.mode, SLOWER)
            placement = with_split(given, heat.ANALYSES if is_inside else ())
            run = self._pipeline(client, name, placement).run(iterations=self._tried + 1)
            times = [monotonic() for _ in run]
            self.rivals.append(Rival(name, (times[-1] - times[0]) / self._tried))

    def _check(self, last: np.ndarray) -> None:
        """Everything again, in a plain loop: each result, and the plate in the end."""
        state = heat.plate(*_SIZE, BLOCKS)
        for mine, plain in zip(self._results, heat.serial(state), strict=False):
            self.checked += 1
            self.wrong += any(not np.array_equal(one, plain[name]) for name, one in mine.items())
        state = state.compute()
        for _ in range(self.iterations):
            state = heat.advance(state)
        self.is_same = np.array_equal(last, state["temperature"].values)
        if self.wrong or not self.is_same or self.done < self.iterations:
            self.failure = f"{self.done} of {self.iterations} iterations are done, {self.wrong} are wrong."


def _said(name: str, found: Any) -> str:
    """What an analysis found, in words."""
    if name == "front":
        return f"{found / (_SIZE[0] * _SIZE[1]):.0%} of the plate is warm"
    if name == "profile":
        return f"column {int(np.argmax(found))} is the warmest"
    if name == "spectrum":
        return f"{found[1:].sum() / max(found.sum(), 1e-300):.0%} of the power in waves"
    return f"{found.max():.2f} at most"


def problem(mode: Any, slower: float) -> PartitionProblem:
    """What is played, as the planner sees it."""
    costs = PLAYED | {SLOW: slower * PLAYED[SLOW]}
    analyses = [Analysis(name=name, time=BLOCKS * costs[name]) for name in heat.ANALYSES]
    simulation = Simulation(time=BLOCKS * costs["advance"])
    return PartitionProblem(EqualNodes(count=NODES, cores=CORES), simulation, tuple(analyses), mode)
