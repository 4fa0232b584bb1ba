"""A pipeline: heat in a plate, four analyses of every iteration, one of which becomes slow at half time, so
that nodes, cores and analyses are divided anew. Played cores: two real ones do for sixteen."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from math import inf
from statistics import mean
from time import monotonic
from typing import Any

import numpy as np
from distributed import Client

from dask_hpc import InSituPipeline, Policy, manage
from dask_hpc.examples import MADE_UP, Example, heat, small_cluster
from dask_hpc.model.units import show_duration
from dask_hpc.planning.in_situ.partition import (
    Analysis,
    EqualNodes,
    IterationStatus,
    PartitionProblem,
    PipelineStatus,
    Simulation,
)
from dask_hpc.planning.in_situ.phases import with_split
from dask_hpc.planning.in_situ.plan import partition

NODES, CORES, BLOCKS = 4, 4, 24
#: seconds that a block takes on a played core, by function
PLAYED = {"advance": 0.2, "front": 0.02, "profile": 0.03, "spectrum": 0.02, "picture": 0.03}
SLOW, SLOWER = "spectrum", 10.0
#: of the time: before one becomes slow, after the partition has followed, and with each other placement
_SHARES = 0.4, 0.25, 0.08
_NOTICED = 7  # iterations, about, until the partition has followed
_PATIENCE = 5  # how often as many are added while it has not
_FEW = 3  # iterations that say how long one takes
_PICTURES = 6  # of the plate, for the report


class SlowAnalysis(Example):
    """The pipeline under a policy's placement, then under the two plain ones."""

    title = "dask-hpc demo: analyses in situ and in transit"
    panels = (("field", "pipeline"), ("iterations",), ("latest",))
    at_end = ("iterations", "summary")
    sections = ("summary", "fields", "partitions", "phases", "story", "policy")
    has_jobs = False

    def __init__(self, policy: Policy, seconds: float) -> None:
        super().__init__(policy)
        self.opening = (
            f"Heat in a plate, {len(heat.ANALYSES)} analyses of every step, {NODES} nodes of {CORES} cores, "
            f"policy [bold]{policy.name}[/]. {MADE_UP}"
        )
        before, after = (partition(problem(policy.placement.mode, one)).iteration for one in (1.0, SLOWER))
        #: the iteration from which on one analysis is slow, and the last
        self.slow_from = max(8, round(_SHARES[0] * seconds / before))
        self.iterations = self.slow_from + _NOTICED + max(4, round(_SHARES[1] * seconds / after))
        self._tried = max(_FEW, round(_SHARES[2] * seconds / after))
        #: how it goes: its status, once there is any, and every iteration: the status forgets
        self.pipeline: PipelineStatus | None = None
        self.history: list[IterationStatus] = []
        #: what each analysis found in each iteration
        self.results: list[Mapping[str, Any]] = []
        #: as much of the plate as a person wants to see, and some of it for later, by iteration
        self.field: np.ndarray | None = None
        self.fields: dict[str, np.ndarray] = {}
        #: seconds of an iteration under placements that were not chosen
        self.rivals: dict[str, float] = {}
        #: iterations whose results were wrong, and whether the plate in the end was as it was to be
        self.wrong = 0
        self.is_same = False

    def lead(self) -> str:
        """With what there is."""
        return f"Heat in a plate on {NODES} nodes of {CORES} cores, a live Dask cluster. {MADE_UP}"

    def progress(self) -> str:
        """Iterations, and how the pipeline runs."""
        if (status := self.pipeline) is None:
            return super().progress()
        mode = f", {status['partition']['mode']}" if status["partition"] else ""
        of = "" if status["iterations"] is None else f" of {status['iterations']}"
        return f"{self.now:.0f} s, iteration {status['iteration']}{of}{mode}"

    @property
    def is_slow(self) -> bool:
        """Whether the analysis is slow that becomes slow."""
        return len(self.results) >= self.slow_from

    @property
    def changes(self) -> dict[int, str]:
        """From which iteration on there was another partition, and why."""
        return {one["iteration"]: one["reason"] for one in self.pipeline["changes"]} if self.pipeline else {}

    @property
    def spells(self) -> dict[str, list[IterationStatus]]:
        """The iterations for which there was a plan, before one analysis became slow and under the last
        partition; those that have led to it are of neither."""
        planned = [one for one in self.history if one["expected"] is not None]
        since = max((at for at in self.changes if at > self.slow_from), default=inf)
        return {
            "Before that": [one for one in planned if one["iteration"] < self.slow_from],
            "Under the last partition": [one for one in planned if one["iteration"] > since],
        }

    @property
    def ours(self) -> float | None:
        """Seconds of an iteration under the last partition, if there were a few."""
        rows = self.spells["Under the last partition"]
        return mean(one["seconds"] for one in rows) if len(rows) >= _FEW else None

    def play(self) -> Generator[None, None, None]:
        """Run the pipeline, make one analysis slow, look at every result, try the other placements."""
        with small_cluster(NODES, threads=CORES) as (_, client), manage(client, self.policy) as manager:
            self.zero = manager.status()["time"]
            client.run(heat.play, PLAYED)
            pipe = self._pipeline(client)
            for number, results in self._iterations(pipe):
                if number == self.slow_from:
                    client.run(heat.play, PLAYED | {SLOW: SLOWER * PLAYED[SLOW]})
                self.look(manager)
                self.note(number, results, pipe.status())
                yield
            self._check(pipe.state["temperature"].values)
            for name, inside in (("all in situ", heat.ANALYSES), ("all in transit", ())):
                placement = with_split(problem(self.policy.placement.mode, SLOWER), inside)
                run = self._pipeline(client, name, placement).run(iterations=self._tried + 1)
                times = [monotonic() for _ in run]
                self.rivals[name] = (times[-1] - times[0]) / self._tried

    def note(self, number: int, results: Mapping[str, Any], status: PipelineStatus) -> None:
        """What analyses found, and how it goes."""
        self.results.append(results)
        self.pipeline = status
        last = self.history[-1]["iteration"] if self.history else -1
        self.history += [one for one in status["history"] if one["iteration"] > last]
        self.field = results.get("picture", self.field)
        if self.field is not None and number >= (len(self.fields) + 1) * self.iterations / _PICTURES:
            self.fields[f"iteration {number}"] = self.field

    def found(self, name: str) -> str:
        """What an analysis found last, in words."""
        found = next((one[name] for one in reversed(self.results) if name in one), None)
        if found is None:
            return ""
        return {
            "front": lambda: f"{found / (heat.ROWS * heat.COLUMNS):.0%} of the plate is warm",
            "profile": lambda: f"column {int(np.argmax(found))} is the warmest",
            "spectrum": lambda: f"{found[1:].sum() / max(found.sum(), 1e-300):.0%} of the power in waves",
            "picture": lambda: f"{found.max():.2f} at most",
        }[name]()

    def summary(self) -> list[str]:
        """Whether all was right, how good the plan was, and what was gained."""
        done = len(self.results)
        lines = [
            f"{done - self.wrong} of {done} iterations have the results of a plain serial loop to the last "
            f"bit, and so {'has' if self.is_same else 'has not'} the plate in the end.",
        ]
        if self.is_slow:
            why = [
                f"From iteration {at} on: {why}." for at, why in self.changes.items() if at > self.slow_from
            ]
            said = f"At iteration {self.slow_from}, {SLOW} became {SLOWER:g} times slower."
            lines += [said, *why] if why else [f"{said} Nothing was divided anew."]
        lines += [f"{said}, {_error(rows)}" for said, rows in self.spells.items() if rows]
        for name, seconds in self.rivals.items() if self.ours else ():
            share = 1 - (self.ours or 0.0) / seconds
            lines.append(
                f"With {name}, divided as well as can be, it takes {show_duration(seconds)}: "
                f"as it was divided here, {abs(share):.0%} {'less' if share >= 0 else 'more'}."
            )
        return lines

    def _iterations(self, pipe: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """As many iterations as are to be; some more where the partition has not followed yet, as it is with
        times that other programs disturb."""
        yield from pipe.run(iterations=self.iterations)
        for _ in range(_PATIENCE):
            if self.ours is not None:
                return
            self.iterations += _NOTICED
            yield from pipe.run(iterations=_NOTICED)

    def _pipeline(self, client: Client, name: str = "heat", placement: Any = "auto") -> Any:
        return InSituPipeline(
            step=heat.advance,
            state=heat.plate(heat.ROWS, heat.COLUMNS, BLOCKS),
            analyses=heat.analyses(),
            halo=heat.HALO,
            mode=self.policy.placement.mode,
            placement=placement,
            name=name,
            client=client,
        )

    def _check(self, last: np.ndarray) -> None:
        """Everything again, in a plain loop: each result, and the plate in the end."""
        plain_loop = heat.serial(heat.plate(heat.ROWS, heat.COLUMNS, BLOCKS))
        for mine, plain in zip(self.results, plain_loop, strict=False):
            self.wrong += any(not np.array_equal(one, plain[name]) for name, one in mine.items())
        self.is_same = np.array_equal(last, heat.after(self.iterations))
        if self.wrong or not self.is_same or len(self.results) < self.iterations:
            self.failure = (
                f"{len(self.results)} of {self.iterations} iterations are done, {self.wrong} are wrong."
            )


def _error(rows: Sequence[IterationStatus]) -> str:
    seconds, expected = mean(one["seconds"] for one in rows), mean(one["expected"] or 0.0 for one in rows)
    return (
        f"an iteration took {show_duration(seconds)} (mean of {len(rows)}), {show_duration(expected)} "
        f"were planned ({seconds / expected - 1:+.0%})."
    )


def problem(mode: Any, slower: float) -> PartitionProblem:
    """What is played, as the planner sees it."""
    costs = PLAYED | {SLOW: slower * PLAYED[SLOW]}
    analyses = [Analysis(name=name, time=BLOCKS * costs[name]) for name in heat.ANALYSES]
    simulation = Simulation(time=BLOCKS * costs["advance"])
    return PartitionProblem(EqualNodes(count=NODES, cores=CORES), simulation, tuple(analyses), mode)
