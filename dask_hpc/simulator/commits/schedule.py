"""When a job commits to which level: as it says, or as the strategy of the live service plans it from what
commits take and how often nodes fail."""

from functools import lru_cache
from itertools import pairwise
from math import inf

from dask_hpc.planning.interval.pattern import Pattern
from dask_hpc.planning.interval.single import young
from dask_hpc.simulator.commits.declared import Checkpoint, LevelName
from dask_hpc.simulator.failures import Failures
from dask_hpc.simulator.platform import Platform
from dask_hpc.strategies.agents.when import Cost, when

_MOST = 10_000  # commits to one level before one to the next
_CHEAPEST = 0.01  # seconds of a commit that is planned with
_RAREST, _COMMONEST = 1e-6, 0.9  # of all failures, that need the last level


def quiet_seconds(level: LevelName, nbytes: float, platform: Platform, nodes: int) -> float:
    """What a commit to one level alone takes when nobody else uses the file system."""
    rate = platform.link
    if level == "store":
        rate = min(rate, platform.file_system / nodes)
    return nbytes / nodes / rate


def failure_rate(failures: Failures | None, nodes: int) -> float:
    """Of one node, per second, as far as it is known beforehand; ``nodes`` is how many the machine has."""
    if failures is None:
        return 0.0
    if failures.trace:
        last = max(time for time, _ in failures.trace)
        return len(failures.trace) / nodes / last if last else 0.0
    return 1 / failures.mtbf


def pattern_for(checkpoint: Checkpoint, platform: Platform, nodes: int) -> Pattern | None:
    """The order of its commits on so many nodes; None: never."""
    levels = len(checkpoint.levels)
    if not isinstance(checkpoint.every, str):
        return Pattern(checkpoint.every, (0,) * (levels - 1))
    costs = _costs(checkpoint, platform, nodes)
    if not costs:
        return None
    return _planned(checkpoint.every, costs, nodes)


@lru_cache(4096)
def _planned(rule: str, costs: tuple[Cost, ...], nodes: int) -> Pattern | None:
    """What the live service would plan, as an order of commits: every so-many-th goes one level further."""
    every = list(when(rule, costs, nodes).every.values())
    if every[0] == inf:
        return None
    counts = tuple(max(0, round(min(above / below, _MOST)) - 1) for below, above in pairwise(every))
    return Pattern(every[0], counts)


def _costs(checkpoint: Checkpoint, platform: Platform, nodes: int) -> tuple[Cost, ...]:
    """None if nothing ever fails."""
    rate = failure_rate(platform.failures, platform.nodes)
    if not rate:
        return ()
    seconds = [
        max(_CHEAPEST, quiet_seconds(level, checkpoint.nbytes, platform, nodes))
        for level in checkpoint.levels
    ]
    needs = [rate]
    if len(seconds) == 2:
        # Both copies of a part are gone if a neighbour fails as well before the next commit.
        both = 2 * rate * (young(seconds[0], nodes * rate) + seconds[0])
        needs.append(rate * min(_COMMONEST, max(_RAREST, both)))
        needs[0] -= needs[1]
    return tuple(
        Cost(level, one, need) for level, one, need in zip(checkpoint.levels, seconds, needs, strict=True)
    )
