"""What pairs of routers choose between, if only some links can ever be full.

A link with room to spare decides nothing. So paths that lead over the same links that may be full are one
option, a path is no option if another one needs only some of its links, and pairs with the same options are
one commodity. Of a pair that has one option, or a path without such links, nothing is left to choose.
"""

from dataclasses import dataclass

import numpy as np

from dask_hpc.planning.network.graph import Array
from dask_hpc.planning.network.paths import PathGroup, Paths


@dataclass(frozen=True, slots=True, eq=False)
class _Options:
    """Of the pairs of a group, by order and pair: the links that may be full, -1 where there is none; whether
    the path is an option, and the first with these links; and how many are the same option."""

    links: Array
    there: Array
    first: Array
    alike: Array

    @classmethod
    def of(cls, group: PathGroup, may_be_full: Array) -> "_Options":
        steps: Array = np.array(group.steps)
        links = np.sort(np.where(may_be_full[steps], steps, -1), axis=1)
        count = len(links)
        needs_no_more = np.ones((count, count, links.shape[2]), bool)  # one order, than another one
        for one in range(count):
            for other in range(count):
                for link in links[one]:
                    needs_no_more[one, other] &= (link < 0) | (links[other] == link).any(0)
        same = needs_no_more & needs_no_more.swapaxes(0, 1)
        there: Array = np.logical_not((needs_no_more & ~same).any(0))
        first = there & ~(same & np.tri(count, k=-1, dtype=bool).T[..., None]).any(0)
        return cls(links, there, first, same.sum(0))


class Commodities:
    """Of ``demand`` bytes a second for each job, a row for each commodity. Each choice is of one commodity
    (``commodity``), and leads over some links (``links``, -1 for none). ``direct`` is what leads over links
    without any choice, a column for each job."""

    def __init__(self, paths: Paths, may_be_full: Array, jobs: int) -> None:
        self._paths = paths
        self._options = [_Options.of(group, may_be_full) for group in paths.groups]
        orders = max((len(group.steps) for group in paths.groups), default=1)
        depth = max((len(group.steps[0]) for group in paths.groups), default=1)
        # options by number, then commodities by the numbers of theirs
        rows = [np.full((0, depth), -1)]
        for one in self._options:
            padded = np.full((int(one.there.sum()), depth), -1)
            padded[:, depth - one.links.shape[1] :] = one.links.swapaxes(1, 2)[one.there]
            rows.append(padded)
        known, numbers = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
        numbers, begin = numbers.reshape(-1), 0
        self._numbers: list[Array] = []
        keys, demands = [np.full((0, orders), -1)], [np.zeros((0, jobs))]
        self.direct = np.zeros((len(paths.capacity), jobs))
        self._choose: list[Array] = []
        for group, one in zip(paths.groups, self._options, strict=True):
            number = np.full(one.there.shape, -1)
            end = begin + int(one.there.sum())
            number[one.there], begin = numbers[begin:end], end
            self._numbers.append(number)
            chooses = one.first.sum(0) > 1
            self._choose.append(chooses)
            for links, is_first in zip(one.links, one.first & ~chooses, strict=True):
                for link in links:
                    used = is_first & (link >= 0)
                    np.add.at(self.direct, link[used], group.demand[:, used].T)
            key = np.full((int(chooses.sum()), orders), -1)
            key[:, : len(number)] = np.sort(np.where(one.first, number, -1)[:, chooses], axis=0).T
            keys.append(key)
            demands.append(group.demand[:, chooses].T)
        self._keys, self._of_pair = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
        self._of_pair = self._of_pair.reshape(-1)
        self.demand = np.zeros((len(self._keys), jobs))
        np.add.at(self.demand, self._of_pair, np.concatenate(demands))
        self.commodity, place = np.nonzero(self._keys >= 0)
        self.links = known[self._keys[self.commodity, place]]
        self._choice = np.full(self._keys.shape, -1)
        self._choice[self.commodity, place] = np.arange(len(self.commodity))

    def carried(self, flows: Array, shares: Array) -> Array:
        """What all links of each kind carry, if each choice gets its part of these ``flows`` and each job its
        share of its demand. Paths that are one option get the same."""
        total = np.bincount(self.commodity, flows, len(self.demand))
        count = np.bincount(self.commodity, minlength=len(self.demand))
        safe = np.where(total > 0, total, 1.0)[self.commodity]
        parts = np.where(total[self.commodity] > 0, flows / safe, 1 / count[self.commodity])
        found, begin = np.zeros(len(self._paths.capacity)), 0
        for group, one, number, chooses in zip(
            self._paths.groups, self._options, self._numbers, self._choose, strict=True
        ):
            end = begin + int(chooses.sum())
            mine, begin = self._of_pair[begin:end], end
            part = one.there / one.alike
            for order, row in enumerate(number[:, chooses]):
                is_it = self._keys[mine] == row[:, None]
                choice = self._choice[mine, is_it.argmax(1)]
                part[order, chooses] *= np.where(row >= 0, parts[choice], 0.0)
            sent = shares @ group.demand
            for way, share in zip(group.steps, part, strict=True):
                for step in way:
                    found += np.bincount(step, sent * share, len(found))
        return found
