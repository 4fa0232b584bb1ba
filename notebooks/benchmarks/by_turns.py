"""One cluster that is managed or not, by turns, and what the ratios of the times say."""

import gc
from collections.abc import Callable, Sequence
from itertools import permutations
from math import exp, log, nan, sqrt
from statistics import mean, median, stdev
from time import perf_counter, sleep
from typing import Any

from distributed import Client
from scipy.special import stdtrit

import dask_hpc


class Turns:
    """The cluster, managed by a policy or not at all; after each change it has ``settle`` seconds to itself,
    as beginning to manage costs some 60 ms, once."""

    def __init__(self, client: Client, settle: float) -> None:
        self._client, self._settle = client, settle
        self._manager: Any = None
        self._policy: str | None = None

    def become(self, policy: str | None) -> None:
        """Managed by this policy from now on; None: by nobody."""
        if policy == self._policy:
            return
        if self._manager is not None:
            self._manager.close()
        self._manager = dask_hpc.manage(self._client, policy) if policy else None
        self._policy = policy

    def seconds(self, policy: str | None, act: Callable[[], object]) -> float:
        """How long it takes, without the garbage of what was before."""
        self.become(policy)
        sleep(self._settle)
        gc.collect()
        self._client.run(gc.collect)
        began = perf_counter()
        act()
        return perf_counter() - began

    def take(
        self,
        act: Callable[[], object] | Sequence[Callable[[], object]],
        policies: Sequence[str | None],
        rounds: int,
    ) -> list[list[float]]:
        """For each round how long it takes under each of them, in all orders by turns; what is done may be
        another thing for each."""
        acts = [act] * len(policies) if callable(act) else act
        orders, found = list(permutations(range(len(policies)))), []
        for number in range(rounds):
            order = orders[number % len(orders)]
            took = {place: self.seconds(policies[place], acts[place]) for place in order}
            found.append([took[place] for place in range(len(policies))])
        return found


def ratio_of(logs: Sequence[float]) -> tuple[float, float]:
    """The geometric mean of ratios with these logarithms, and half of its 95 % interval (Student's)."""
    count = len(logs)
    half = stdtrit(count - 1, 0.975) * stdev(logs) / sqrt(count) if count > 1 else nan
    return exp(mean(logs)), float(half)


def shown(logs: Sequence[float]) -> str:
    """The same in words."""
    ratio, half = ratio_of(logs)
    return f"{ratio:.3f} ± {half:.3f}"


def row(
    what: str, pairs: Sequence[Sequence[float]], wanted: str, is_met: Callable[[float, float], bool]
) -> tuple[Any, ...]:
    """Of a table of ours, from pairs of times: ours, and those of plain Dask."""
    mine, theirs = (median(some) for some in zip(*pairs, strict=True))
    logs = [log(one / other) for one, other in pairs]
    return what, f"{mine:.2f} s", f"{theirs:.2f} s", shown(logs), wanted, is_met(*ratio_of(logs))
