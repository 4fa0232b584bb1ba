"""Power as it is now, as plain data: of the machine, of every node and of every job."""

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_hpc.model.power import PowerRange, PowerView, Source
from dask_hpc.model.units import show_large

if TYPE_CHECKING:
    from dask_hpc.cluster.scheduler.loop import ControlLoop


def power_of(control: "ControlLoop") -> dict[str, Any]:
    """All that is known of power now; by the model alone while nobody watches. Watts throughout; what has no
    bound is None."""
    watch, indices = control.power, control.indices
    control.look_at_the_clock()
    watch.refresh()
    view = watch.view() if indices.power is None else indices.power
    corridor = watch.corridor
    lower, upper = (0.0, inf) if corridor is None else corridor.at(indices.now)
    source = watch.source
    return {
        "time": indices.now,
        "is_watched": watch.sight is not None,
        "meter": watch.meter_name,
        "watts": view.watts,
        "uncertainty": view.uncertainty,
        "source": view.source,
        "doubt": view.doubt,
        "corridor": {
            "lower": lower,
            "upper": None if upper == inf else upper,
            "is_kept": lower <= view.watts <= upper,
            "steps": None if corridor is None else corridor.written(),
            "follow": "" if source is None else source.follow,
            "problem": "" if source is None else source.problem,
        },
        "verdict": None if control.verdict is None else _verdict(control),
        "forecast": None if view.forecast is None else list(view.forecast),
        "idle_node": view.idle,
        "busy_node": list(view.active),
        "nodes": _nodes(control),
        "jobs": [_job(control, job_id, per_node) for job_id, per_node in view.jobs.items()],
        "outside": {
            "working": view.outside_nodes,
            "wanted": view.outside_wanted,
            "per_node": list(view.outside),
        },
        "levers": sorted(view.levers),
        "held": view.held,
        "threads": view.threads,
        "cap": view.cap,
        "released": view.released,
    }


def _verdict(control: "ControlLoop") -> dict[str, Any]:
    verdict = control.verdict
    assert verdict is not None
    found = {key: None if value == inf else value for key, value in asdict(verdict).items()}
    return found | {"expected": list(verdict.expected), "text": str(verdict)}


def _nodes(control: "ControlLoop") -> list[dict[str, Any]]:
    holders = {name: job_id for job_id, running in control.indices.running.items() for name in running.nodes}
    return [
        {
            "name": name,
            "watts": reading.watts,
            "uncertainty": reading.uncertainty,
            "source": reading.source,
            "doubt": reading.doubt,
            "job": holders.get(name),
        }
        for name, reading in control.power.readings().items()
    ]


def _job(control: "ControlLoop", job_id: str, per_node: PowerRange) -> dict[str, Any]:
    job = control.jobs[job_id]
    nodes = len(job.nodes) if job.state == "running" else 0
    return {
        "id": job_id,
        "name": job.name,
        "nodes": nodes,
        "per_node": list(per_node),
        "watts": list(per_node.times(nodes)),
    }


class Sample(NamedTuple):
    """Power and its corridor at one time."""

    time: float
    watts: float
    lower: float = 0.0
    upper: float = inf
    forecast: PowerRange | None = None
    source: Source = "modelled"
    uncertainty: float = 0.0
    doubt: str = ""

    @property
    def is_outside(self) -> bool:
        """Whether power is not where it is to be."""
        return not self.lower <= self.watts <= self.upper

    @property
    def origin(self) -> str:
        """How the figure came to be, and how sure it is: "measured ± 12 W"."""
        doubt = f" ± {show_large(self.uncertainty, 'W')}" if self.uncertainty else ""
        return self.source + doubt


class PowerTrace:
    """The newest samples and excursions, and figures over all of them.

    An excursion is from a sample outside the corridor to the next one inside. It counts as a violation
    once it has lasted longer than ``tick``, as simulated ones do.
    """

    def __init__(self, length: int = 7_200, tick: float = 1.0) -> None:
        self.samples: deque[Sample] = deque(maxlen=length)
        #: (from when, until when) power was outside, the last one perhaps still; only those that count
        self.violations: deque[tuple[float, float]] = deque(maxlen=1_000)
        self.tick = tick
        #: how many samples there ever were
        self.count = 0
        #: seconds that were sampled, seconds outside, and joules beyond the edges
        self.seconds = self.outside_seconds = self.outside_energy = 0.0
        #: how many violations there ever were
        self.violation_count = 0
        self._since: float | None = None
        self._counts = False

    def add(self, time: float, view: PowerView, lower: float = 0.0, upper: float = inf) -> None:
        """What is known now, and the corridor that holds now."""
        sample = Sample(
            time, view.watts, lower, upper, view.forecast, view.source, view.uncertainty, view.doubt
        )
        last = self.last
        if last is not None:
            took = max(0.0, time - last.time)
            self.seconds += took
            if last.is_outside:
                self.outside_seconds += took
                self.outside_energy += took * max(last.watts - last.upper, last.lower - last.watts)
        self._follow(sample)
        self.samples.append(sample)
        self.count += 1

    @property
    def last(self) -> Sample | None:
        """The newest sample, if there is any."""
        return self.samples[-1] if self.samples else None

    def since(self, number: int) -> Iterator[Sample]:
        """The samples from that number on (numbered from 0), as far as they are remembered."""
        return islice(self.samples, max(0, len(self.samples) - (self.count - number)), None)

    def _follow(self, sample: Sample) -> None:
        if self._since is not None:
            if sample.time - self._since > self.tick:
                if self._counts:
                    self.violations.pop()
                self.violation_count += not self._counts
                self._counts = True
                self.violations.append((self._since, sample.time))
            if not sample.is_outside:
                self._since, self._counts = None, False
        elif sample.is_outside:
            self._since = sample.time
