"""What has been seen of power lately: of idle nodes, of busy ones, of each job's, of work outside of jobs.

Power follows load with some delay, so a node counts as idle, or as at work, only when it has been so for
``_SETTLED`` looks; likewise a job when it starts or changes size.
"""

from collections import deque
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from dask_hpc.live.power.meters import NodeUse
from dask_hpc.model.power import PowerRange, Source
from dask_hpc.power.model import PowerModel

WINDOW = 30.0  # seconds that tell what is to be expected
LOW, HIGH = 0.05, 0.95  # the quantiles that count as the least and the most
_SETTLED = 3  # looks
_ENOUGH = 3  # samples
_LEARN = 0.2  # weight of a new sample of a level
_MOST_KEPT = 512  # samples of a job's whole life


class NodeReading(NamedTuple):
    """Power of one node as far as it can be trusted."""

    watts: float
    uncertainty: float
    source: Source
    #: whether the error is chance; those of models are alike everywhere
    is_chance: bool
    #: why the sensor is not trusted and these watts are the model's, if so
    doubt: str = ""


def quantiles(values: Iterable[float]) -> PowerRange:
    """The least and the most of at least one value, but for the tails."""
    found = sorted(values)
    last = len(found) - 1
    return PowerRange(found[round(LOW * last)], found[round(HIGH * last)])


class Window:
    """Samples of the last ``WINDOW`` seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, now: float, watts: float) -> None:
        """One more."""
        self._samples.append((now, watts))
        while self._samples[0][0] < now - WINDOW:
            self._samples.popleft()

    @property
    def range(self) -> PowerRange | None:
        """What they say, if there are enough."""
        if len(self._samples) < _ENOUGH:
            return None
        return quantiles(watts for _, watts in self._samples)


class JobLevel:
    """Watts per node of one running job."""

    def __init__(self) -> None:
        self.window = Window()
        self._whole_life: list[float] = []
        self._allotment: tuple[str, ...] = ()
        self._settled = 0
        self._skip, self._skipped = 1, 0

    def add(self, now: float, nodes: tuple[str, ...], watts: float, doubt: float = 0.0) -> None:
        """One look at the nodes it holds: the mean of their watts, and by how much it may be wrong because
        of sensors that are not trusted."""
        if nodes != self._allotment:
            self._allotment, self._settled = nodes, 0
        self._settled += 1
        if self._settled <= _SETTLED:
            return
        if doubt:
            self.window.add(now, max(watts - doubt, 0.0))
            self.window.add(now, watts + doubt)
            return
        self.window.add(now, watts)
        self._skipped += 1
        if self._skipped < self._skip:
            return
        self._skipped = 0
        self._whole_life.append(watts)
        if len(self._whole_life) == _MOST_KEPT:  # half as many say as much
            self._whole_life, self._skip = self._whole_life[::2], 2 * self._skip

    @property
    def nodes(self) -> int:
        """How many it held at the last look."""
        return len(self._allotment)

    @property
    def whole_life(self) -> PowerRange | None:
        """Over all its life, for reruns."""
        return quantiles(self._whole_life) if len(self._whole_life) >= _ENOUGH else None


class _NodeLevel:
    """What one node draws when idle and when all its threads work, as far as that was seen."""

    __slots__ = ("full", "idle", "is_busy", "settled")

    def __init__(self) -> None:
        self.idle: float | None = None
        self.full: float | None = None
        self.is_busy = False
        self.settled = 0

    def add(self, load: float, watts: float) -> bool:
        """Whether the node has been as it is for some time."""
        is_busy = load > 0
        self.settled = self.settled + 1 if is_busy == self.is_busy else 1
        self.is_busy = is_busy
        if self.settled <= _SETTLED:
            return False
        if not is_busy:
            self.idle = watts if self.idle is None else self.idle + _LEARN * (watts - self.idle)
        elif load >= 1:
            self.full = watts if self.full is None else self.full + _LEARN * (watts - self.full)
        return True


class Levels:
    """Of all nodes and jobs. Only what trusted sensors say is learned from."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeLevel] = {}
        self._active = Window()
        self._outside = Window()
        self.jobs: dict[str, JobLevel] = {}
        #: the most that any node was seen to draw
        self.highest = 0.0

    def add(
        self,
        now: float,
        readings: Mapping[str, NodeReading],
        uses: Mapping[str, NodeUse],
        jobs: Mapping[str, tuple[str, ...]],
        given_up: Container[str] = (),
    ) -> None:
        """One look: what each node draws, how it is used, and who holds which nodes. Those that jobs are
        giving up say nothing of them any more: they idle one by one."""
        held = {name for nodes in jobs.values() for name in nodes}
        busy, outside = [], []
        for name, reading in readings.items():
            if reading.doubt:
                continue
            self.highest = max(self.highest, reading.watts)
            level = self._nodes.setdefault(name, _NodeLevel())
            if level.add(uses[name].load, reading.watts) and level.is_busy:
                busy.append(reading.watts)
                if name not in held:
                    outside.append(reading.watts)
        for window, found in ((self._active, busy), (self._outside, outside)):
            for watts in quantiles(found) if found else ():  # however many nodes there are
                window.add(now, watts)
        for name in self._nodes.keys() - readings.keys():
            del self._nodes[name]
        for job, holds in jobs.items():
            nodes = tuple(name for name in holds if name not in given_up)
            there = [readings[name] for name in nodes if name in readings]
            if there:
                watts = sum(one.watts for one in there) / len(there)
                doubt = sum(one.uncertainty for one in there if one.doubt) / len(there)
                self.jobs.setdefault(job, JobLevel()).add(now, nodes, watts, doubt)

    def idle(self, name: str, model: PowerModel) -> float:
        """Watts of the node when nothing runs there: as seen, else by the model."""
        level = self._nodes.get(name)
        return model.idle if level is None or level.idle is None else level.idle

    def expected(self, name: str, load: float, model: PowerModel) -> float:
        """Watts of the node under that load: as seen of it, else by the model."""
        idle = self.idle(name, model)
        level = self._nodes.get(name)
        full = level.full if level is not None and level.full is not None else max(model.busy, idle)
        return idle + (full - idle) * load

    @property
    def active(self) -> PowerRange | None:
        """Of a node that works for anybody."""
        return self._active.range

    @property
    def outside(self) -> PowerRange | None:
        """Of a node that works outside of jobs."""
        return self._outside.range
