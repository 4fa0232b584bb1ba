"""How often failures are to be expected, from what was said and what was seen.

A user's cluster is one of two kinds, and nobody says which. On most, what is configured holds: one failure in
``mtbf`` seconds, worth one failure seen (as ``when`` has it). On some, workers die every minute, as they are
preempted or out of memory, and to learn that as slowly as the first kind allows would take a thousand deaths.
So the prior is a mixture of two gamma distributions, and so is the posterior: what was seen shifts the
weights between its parts and moves each. Before anything is seen, failures in the first minute are a little
likelier than configured, so that copies that cost little are made; ten days without one leave what is
configured, or less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma, log

#: how many clusters in a hundred are of the kind on which anything may be
_UNKNOWN = 0.3
#: its rate per second: shape and scale of a gamma distribution, flat over orders of magnitude below 1/scale
_SHAPE, _SCALE = 0.2, 60.0


@dataclass(frozen=True, slots=True)
class _Gamma:
    """Of a rate: so many failures in so many seconds are what it is worth; ``share`` of the clusters."""

    share: float
    failures: float
    seconds: float

    def likelihood(self, seen: float, seconds: float) -> float:
        """Logarithm of how likely that is, and that a cluster is of this kind."""
        known, scale = self.failures, self.seconds
        shapes = lgamma(known + seen) - lgamma(known)
        return log(self.share) + shapes + known * log(scale) - (known + seen) * log(scale + seconds)

    def mean(self, seen: float, seconds: float) -> float:
        return (self.failures + seen) / (self.seconds + seconds)


def expected_rate(mtbf: float, seen: float, seconds: float) -> float:
    """Failures per second, after so many were seen in so many seconds: the mean of the posterior."""
    kinds = (_Gamma(1 - _UNKNOWN, 1.0, mtbf), _Gamma(_UNKNOWN, _SHAPE, min(_SCALE, mtbf)))
    weights = _normed([kind.likelihood(seen, seconds) for kind in kinds])
    return sum(weight * kind.mean(seen, seconds) for weight, kind in zip(weights, kinds, strict=True))


def pair_rate(rate: float, seconds: float) -> float:
    """How often a node and the one that has its copies die within so many seconds, after which there are
    copies again; ``rate`` is that of one node, and either may be the first."""
    return 2.0 * rate * rate * seconds


def _normed(logarithms: Sequence[float]) -> list[float]:
    most = max(logarithms)
    found = [exp(one - most) for one in logarithms]
    return [one / sum(found) for one in found]
