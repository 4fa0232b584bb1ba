"""What samples of a job's power say of the moments to come, on a live cluster and on a simulated machine."""

from collections import deque
from collections.abc import Iterable

from dask_hpc.model.power import PowerRange

WINDOW = 30.0  # seconds that tell what is to be expected
LOW, HIGH = 0.05, 0.95  # the quantiles that count as the least and the most
ENOUGH = 3  # samples


def quantiles(values: Iterable[float]) -> PowerRange:
    """The least and the most of at least one value, but for the tails."""
    found = sorted(values)
    last = len(found) - 1
    return PowerRange(found[round(LOW * last)], found[round(HIGH * last)])


class LevelWindow:
    """Samples of the last ``WINDOW`` seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, now: float, watts: float) -> None:
        """One more; what is older than the window is forgotten."""
        self._samples.append((now, watts))
        while self._samples[0][0] < now - WINDOW:
            self._samples.popleft()

    @property
    def range(self) -> PowerRange | None:
        """What they say, if there are enough."""
        if len(self._samples) < ENOUGH:
            return None
        return quantiles(watts for _, watts in self._samples)
