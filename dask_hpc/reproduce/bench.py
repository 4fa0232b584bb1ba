"""Where the simulations of an experiment run: here or on a cluster, with so many seeds, telling how far."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from dask_hpc.policy import Policy
from dask_hpc.reproduce.claim import Measured
from dask_hpc.simulator import Platform, Workload, study
from dask_hpc.simulator.study import mean_and_half_width

T = TypeVar("T")
#: metric -> its values, one per seed
Columns = Mapping[str, np.ndarray]


@dataclass
class Bench:
    """``client`` is a Dask client or None, ``progress`` is told the number of simulations that are done."""

    seeds: int = 20
    client: Any = None
    progress: Callable[[int], None] | None = None
    _done: int = field(default=0, init=False)

    def study(
        self,
        workload: str | Workload,
        policies: Sequence[str | Policy],
        platform: Platform | None = None,
        malleable: float | None = None,
    ) -> dict[str, Columns]:
        """Every policy with every seed: its metrics by the policy's name."""
        before = self._done

        def tell(done: int, _: int) -> None:
            self._done = before + done
            if self.progress is not None:
                self.progress(self._done)

        found = study(
            workload,
            policies,
            seeds=self.seeds,
            platform=platform,
            malleable=malleable,
            client=self.client,
            progress=tell,
        )
        return {
            str(name): {metric: group[metric].to_numpy() for metric in group.columns if metric != "policy"}
            for name, group in found.runs.groupby("policy", sort=False)
        }

    def each(self, function: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
        """A pure function of each, for what ``study`` does not measure."""
        if self.client is None:
            found = []
            for one in arguments:
                found.append(function(*one))
                self._one_more()
            return found
        futures = [self.client.submit(function, *one, pure=False) for one in arguments]
        answers = []
        for future in futures:
            answers.append(future.result())
            self._one_more()
        return answers

    def _one_more(self) -> None:
        self._done += 1
        if self.progress is not None:
            self.progress(self._done)


def mean(values: np.ndarray) -> Measured:
    """Over the seeds."""
    return Measured(*mean_and_half_width(np.asarray(values, float)))


def change(ours: np.ndarray, baseline: np.ndarray) -> Measured:
    """The relative change against a baseline, in per cent, seed by seed and then averaged."""
    return mean(100.0 * (np.asarray(ours, float) / np.asarray(baseline, float) - 1.0))
