"""Running jobs in a corridor, as three experiments look at them: malleable jobs that never end in time, their
sizes and the machine's power over time (seed 000, 9.2.2 and 9.2.3; digest 3.3.2)."""

from dataclasses import dataclass
from typing import Any

from dask_hpc.model.job import Job
from dask_hpc.model.power import Corridor
from dask_hpc.policy import Policy
from dask_hpc.simulator import Arrival, Metering, Platform, Result, Workload, simulate

#: one reading and one decision every so many seconds; what that sets right counts as no violation
TICK = 10.0
POLICY = "power-corridor-reactive"
_FOREVER = 1e6

NO_IDLE = "Idle nodes, not said: they do not count. If 16 of them did, 600 W would leave each of them 37 W."
SAID = "said in words; a redistribution may take two passes, because growths wait for the nodes of shrinks"
HOW = (
    f"Readings and decisions, not given: one every {TICK:g} s and at every event. Resizing takes no time; "
    "power changes at once, and every node of a job draws the same at any size."
)


@dataclass(frozen=True)
class App:
    """A malleable job: watts of a node, the size it starts with, the most it can use."""

    name: str
    watts: float
    nodes: int
    most: int


class Observed:
    """One run under the published reactive strategy."""

    def __init__(self, nodes: int, apps: tuple[App, ...], corridor: Corridor, seconds: float) -> None:
        jobs = [
            Job(
                id=app.name,
                nodes=app.nodes,
                kind="malleable",
                min_nodes=1,
                max_nodes=app.most,
                power=(app.watts, app.watts),  # type: ignore[arg-type]
            )
            for app in apps
        ]
        platform = Platform(nodes, tick=TICK, metering=Metering(corridor=corridor))
        workload = Workload("corridor", [Arrival(job, _FOREVER) for job in jobs], platform=platform)
        self.result: Result = simulate(workload, policy=Policy.load(POLICY), horizon=seconds, allotments=True)

    def sizes(self, app: str) -> list[tuple[float, int]]:
        """From when on it had how many nodes."""
        row = self.result.record.id.index(app)
        return [(time, len(nodes)) for time, one, nodes in self.result.record.allotments or () if one == row]

    def size_at(self, app: str, time: float) -> int:
        """Its nodes at that time."""
        return next(size for since, size in reversed(self.sizes(app)) if since <= time)

    def last_change(self) -> float:
        """When anybody changed size last; 0 if nobody did."""
        return max(sizes[-1][0] for app in self.result.record.id if (sizes := self.sizes(app)))

    def changes_after(self, time: float) -> int:
        """How often anybody changed size later."""
        return sum(since > time for app in self.result.record.id for since, _ in self.sizes(app))

    def inside_from(self) -> float:
        """From when on it was inside the corridor for good."""
        trace: Any = self.result.power
        out = (trace.watts < trace.lower) | (trace.watts > trace.upper)
        last = [at for at, is_out in enumerate(out[:-1]) if is_out]
        return float(trace.time[last[-1] + 1]) if last else float(trace.time[0])
