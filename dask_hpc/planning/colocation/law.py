"""A law of interference for kinds of which nothing is measured together: an assumption, and it says so."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dask_hpc.model.errors import insist, is_number

#: misses per instruction of cg, which weighs 1 (seed 003, table 2.3)
_HEAVY = 1.56e-2
#: so that sp and fluidanimate weigh about 0.45 and 0.35, and what computes only next to nothing
_EXPONENT = 0.35


@dataclass(frozen=True, slots=True)
class InterferenceLaw:
    """A task takes ``1 + strength m (sum of m beside it) ** power`` times as long as alone, where m is the
    weight of a kind: 1 of the heaviest of the seed's applications, 0 of one that never misses its cache.

    The seed gives no times of tasks together, but for slowdowns of two to three on full processors. This law
    has four of the heaviest take 1.8 times as long, and less than in proportion to those beside.
    """

    strength: float = 0.33
    power: float = 0.8

    def __post_init__(self) -> None:
        insist(is_number(self.strength, 0, 1e6), "strength", self.strength, "0 or more")
        insist(is_number(self.power, 0, 10), "power", self.power, "from 0 to 10")

    def slowdown(self, weight: float, beside: Iterable[float]) -> float:
        """Of a task beside others, by their weights."""
        total = sum(beside)
        return 1 + self.strength * weight * total**self.power if total > 0 else 1.0

    def of_kinds(self, weights: Mapping[str, float], kind: str, others: Mapping[str, int]) -> float:
        """Of a task of one kind beside so many of others."""
        beside = sum(weights[name] * count for name, count in others.items())
        return self.slowdown(weights[kind], (beside,))


def weight_of(intensity: float) -> float:
    """Of a kind with so many misses of the last cache per instruction."""
    return float((max(intensity, 0.0) / _HEAVY) ** _EXPONENT)
