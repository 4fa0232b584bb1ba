"""A good division of traffic among minimal paths, step by step, and how good any could be."""

from collections.abc import Iterator, Sequence
from math import inf, log, sqrt

import numpy as np

from dask_hpc.planning.network.graph import Array
from dask_hpc.planning.network.paths import PathGroup, Paths

#: how far apart the two may stay
NEAR = 0.01
#: how much a path's lead counts in one step, and how much dearer the fullest link becomes in the first
_STEP, _RISE = 0.2, 1.0
#: what of a price is left where nothing is sent
_LEAST = 1e-12


class Division:
    """Links have prices. What all pairs pay by their cheapest paths is at most what the use of the fullest
    link comes to, if prices times bandwidths are 1 together: no division pays less. So whoever finds prices
    by which much is paid has a bound (``floor``, of the use of some link by all that is wanted); and whoever
    sends more over cheap paths, where full links are dear, a good division."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.floor = 0.0
        there = paths.capacity > 0
        #: by how much of it a byte a second uses a link
        self._use = np.where(there, 1 / np.where(there, paths.capacity, 1.0), 0.0)
        self._wanted = [group.demand.sum(0) for group in paths.groups]
        self._parts = [
            np.full((len(group.steps), group.demand.shape[1]), 1 / len(group.steps)) for group in paths.groups
        ]

    def bound(self, rounds: int, floor: float) -> None:
        """Make those links dearer that cheapest paths lead over, the fuller the more: the method of
        multiplicative weights. Each time what is paid is a bound."""
        self.floor = max(self.floor, floor)
        weights = np.where(self._use > 0, 1.0, 0.0)
        for number in range(rounds):
            parts = []
            for costs in self._costs(weights * self._use / weights.sum()):
                cheap = costs <= costs.min(0) * (1 + 1e-9)
                parts.append(cheap / cheap.sum(0))
            use = self._carried(self._wanted, parts) * self._use
            weights *= np.exp(_RISE * use / use.max() / sqrt(1 + number / 20))
            weights = np.maximum(weights / weights.max(), _LEAST) * (self._use > 0)

    def improve(self, rounds: int) -> None:
        """Send more over cheap paths, full links being dear, until the fullest is near the bound."""
        parts, fullest = [one.copy() for one in self._parts], inf
        for _ in range(rounds):
            use = self._carried(self._wanted, parts) * self._use
            if use.max() < fullest:
                fullest, self._parts = float(use.max()), [one.copy() for one in parts]
            if fullest <= max(self.floor, 1.0) * (1 + NEAR):
                break
            # the nearer, the more the fullest alone count
            gap = min(max(NEAR, 1 - self.floor / use.max()), 0.3)
            prices = np.exp((use / use.max() - 1) * 2 * log(len(use) + 2) / gap) * (self._use > 0)
            for part, costs in zip(parts, self._costs(prices * self._use / prices.sum()), strict=True):
                lead = (costs - costs.min(0)) / np.maximum((part * costs).sum(0), 1e-300)
                part *= np.exp(-_STEP * lead)
                part += 1e-9  # what is nearly gone may come back
                part /= part.sum(0)

    def loads(self) -> Iterator[Array]:
        """What all links of each kind carry of each job, by the best division so far."""
        groups = self._paths.groups
        for job in range(len(groups[0].demand) if groups else 0):
            yield self._carried([group.demand[job] for group in groups], self._parts)

    def _costs(self, prices: Array) -> list[Array]:
        """Of each path of each group. What is paid by the cheapest ones is noted."""
        costs = [_costs_of(group, prices) for group in self._paths.groups]
        paid = sum(float(wanted @ one.min(0)) for wanted, one in zip(self._wanted, costs, strict=True))
        self.floor = max(self.floor, paid)
        return costs

    def _carried(self, wanted: Sequence[Array], parts: Sequence[Array]) -> Array:
        found = np.zeros(len(self._use))
        for group, much, part in zip(self._paths.groups, wanted, parts, strict=True):
            for way, share in zip(group.steps, part, strict=True):
                for step in way:
                    found += np.bincount(step, much * share, len(found))
        return found


def _costs_of(group: PathGroup, prices: Array) -> Array:
    return np.array([sum(prices[step] for step in way) for way in group.steps])
