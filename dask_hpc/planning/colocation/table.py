"""Slowdowns of all kinds in all mixes that fit on a node, asked for once and looked up from then on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import inf, isfinite
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, insist, shown

_MOST = 1_000_000  # mixes


@dataclass(frozen=True, slots=True)
class SlowdownTable:
    """How many times as long a task takes than alone, by what runs on its node.

    A mix has a code: the sum of ``places`` of the kinds of its tasks. ``values[code, kind]`` is the slowdown
    of a task of that kind in this mix, of which it is part. One more kind stands for an idle core: it adds
    nothing to a code, and never ends.
    """

    kinds: tuple[str, ...]
    cores: int
    #: what a task of each kind adds to a code; 0 for the idle one, which is the last
    places: np.ndarray
    values: np.ndarray

    @classmethod
    def of(
        cls, kinds: Sequence[str], cores: int, slowdown: Callable[[str, Mapping[str, int]], float]
    ) -> "SlowdownTable":
        """What ``slowdown`` says of each kind beside others, who are given without the task itself; less than
        1 is taken for 1."""
        fine = isinstance(cores, int) and not isinstance(cores, bool) and cores >= 1
        insist(fine, "cores", cores, "a whole number, 1 or more")
        names = tuple(dict.fromkeys(kinds))
        insist(bool(names), "kinds", kinds, "one or more")
        codes = (cores + 1) ** len(names)
        insist(codes <= _MOST, "kinds", len(names), f"fewer kinds, or fewer than {cores} cores")
        places = np.array([(cores + 1) ** number for number in range(len(names))] + [0])
        values = np.full((codes, len(names) + 1), inf)
        for mix in _mixes(len(names), cores):
            code = int(places[list(mix)].sum())
            for kind in set(mix):
                others = {names[one]: mix.count(one) - (one == kind) for one in sorted(set(mix))}
                found = slowdown(names[kind], {name: count for name, count in others.items() if count})
                if not isfinite(found):
                    who = f"found {found} of {shown(names[kind])} beside {shown(others)}"
                    raise InputError("slowdown", who, "a finite number")
                values[code, kind] = max(1.0, found)
        return cls(names, cores, places, values)

    @property
    def idle(self) -> int:
        """The kind that stands for an idle core."""
        return len(self.kinds)

    def slowdown(self, kind: str, others: Mapping[str, int]) -> float:
        """Of a task of one kind beside so many of others."""
        number = self._number(kind)
        counts = [(self._number(name), count) for name, count in others.items()]
        total = 1 + sum(count for _, count in counts)
        fine = all(count >= 0 for _, count in counts) and total <= self.cores
        insist(fine, "tasks on the node", total, f"up to {self.cores}")
        code = self.places[number] + sum(self.places[one] * count for one, count in counts)
        return float(self.values[code, number])

    def disturbed(self, error: float, rng: Any) -> "SlowdownTable":
        """As a predictor sees it whose relative error is normal, with this deviation, for each kind in each
        mix; of a task alone nothing is predicted."""
        drawn = 1 + error * rng.normal(size=self.values.shape)
        alone = np.zeros(len(self.values), bool)
        alone[self.places[:-1]] = True
        values = np.where(alone[:, None], self.values, np.maximum(1.0, self.values * drawn))
        return SlowdownTable(self.kinds, self.cores, self.places, values)

    def _number(self, kind: str) -> int:
        if kind not in self.kinds:
            raise InputError("kind", f"found {shown(kind)}", ", ".join(self.kinds))
        return self.kinds.index(kind)


def _mixes(kinds: int, cores: int) -> Iterator[tuple[int, ...]]:
    """Of one task up to as many as there are cores."""
    for count in range(1, cores + 1):
        yield from combinations_with_replacement(range(kinds), count)


def ends_by_table(table: SlowdownTable, kinds: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Seconds from now at which each task ends, for many nodes at once: ``completions``, a row for each node
    and a column for each core; the work of idle cores is inf, and so is their end."""
    # a row for each core from here on: numpy adds long rows up faster than many short ones
    kinds, left = kinds.T.copy(order="C"), work.T.astype(float, order="C")
    codes = table.places[kinds].sum(axis=0)
    ends = np.full(left.shape, inf)
    now = np.zeros(left.shape[1])
    flat = table.values.ravel()
    for _ in range(len(left)):
        slower = flat[codes * table.values.shape[1] + kinds]
        needs = left * slower
        step = needs.min(axis=0)
        step[step == inf] = 0.0  # nothing runs there any more
        now += step
        ended = needs <= step
        left -= step / slower
        np.maximum(left, 0.0, out=left)
        np.copyto(ends, now, where=ended)
        left[ended] = inf
        codes -= np.where(ended, table.places[kinds], 0).sum(axis=0)
        kinds[ended] = table.idle
    return ends.T
