"""Running jobs in a power corridor: malleable jobs that never end in time, their sizes and the machine's
power over time (seed 000, 9.2.2 and 9.2.3; digest 3.3.2).
"""

from dataclasses import dataclass
from typing import Any

from dask_hpc.model.job import Job
from dask_hpc.model.power import Corridor
from dask_hpc.policy import Policy
from dask_hpc.reproduce.claim import Bench, Claim, Outcome, at_most, claim, exactly, figure
from dask_hpc.simulator import Arrival, Metering, Platform, Result, Workload, simulate

#: one reading and one decision every so many seconds; what that sets right counts as no violation
_TICK = 10.0
_POLICY = "power-corridor-reactive"
_FOREVER = 1e6

_PRINTED = "printed as a number of nodes"
_SAID = "said in words; a redistribution may take two passes, because growths wait for the nodes of shrinks"


@dataclass(frozen=True)
class _App:
    """A malleable job: watts of a node, the size it starts with, the most it can use."""

    name: str
    watts: float
    nodes: int
    most: int


class _Observed:
    """One run under the published reactive strategy."""

    def __init__(self, nodes: int, apps: tuple[_App, ...], corridor: Corridor, seconds: float) -> None:
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
        platform = Platform(nodes, tick=_TICK, metering=Metering(corridor=corridor))
        workload = Workload("corridor", [Arrival(job, _FOREVER) for job in jobs], platform=platform)
        self.result: Result = simulate(
            workload, policy=Policy.load(_POLICY), horizon=seconds, allotments=True
        )

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


def _moved(
    apps: tuple[_App, ...], corridor: Corridor, come_to: tuple[int, int], inside_by: float
) -> tuple[Claim, ...]:
    """Two applications on 32 nodes: one shrinks, the other grows, and then there is peace."""
    seen = _Observed(32, apps, corridor, 1000.0)
    inside = seen.inside_from()
    sizes = [
        claim(f"{app.name} comes to", size, seen.size_at(app.name, 1000), exactly(size), "nodes", _PRINTED)
        for app, size in zip(apps, come_to, strict=True)
    ]
    return (
        *sizes,
        claim("inside the corridor from", inside_by, inside, at_most(inside_by), "s",
              "read off a plot that has no time of the first decision: by then"),
        claim("resizes after that", 0, seen.changes_after(inside + _TICK), exactly(0), "", _SAID),
    )  # fmt: skip


def upper(bench: Bench) -> Outcome:
    """Two applications draw too much: one shrinks, the other grows (seed 000, 9.2.2; digest 3.3.2)."""
    apps = (_App("App 1", 320.0, 12, 32), _App("App 2", 125.0, 2, 24))
    claims = _moved(apps, Corridor.constant(3000, 4000), (3, 24), 300)
    return Outcome(claims)


def lower(bench: Bench) -> Outcome:
    """Two applications draw too little: one shrinks, the other grows more (seed 000, 9.2.2)."""
    apps = (_App("App 1", 240.0, 4, 32), _App("App 2", 125.0, 4, 16))
    claims = _moved(apps, Corridor.constant(1500, 2500), (2, 16), 500)
    return Outcome(claims)


_WATTS = 125.0
_STEPS = ((0.0, 100.0, 600.0), (240.0, 700.0, 1200.0), (470.0, 1300.0, 1900.0), (700.0, 100.0, 600.0))


def dynamic(bench: Bench) -> Outcome:
    """A corridor that moves three times, and one application that follows it (seed 000, 9.2.3)."""
    seen = _Observed(16, (_App("Pi", _WATTS, 1, 16),), Corridor(_STEPS), 1000.0)
    second, third = seen.size_at("Pi", 460), seen.size_at("Pi", 690)
    grown = next((time for time, size in seen.sizes("Pi") if size == second and time >= 240), float("inf"))
    claims = (
        claim("nodes in the first corridor", 1, seen.size_at("Pi", 230), exactly(1), "nodes", _PRINTED),
        claim("nodes in the second corridor", 9, second, exactly(9), "nodes", _PRINTED),
        claim("there from", 250, grown, (240, 250), "s", "the corridor moves at 240 s"),
        claim("nodes in the third corridor over those in the second", "more", third - second, (1, 7), "nodes",
              "said in words: at least one more, and there are 16"),
        claim("nodes in the first corridor when it comes back", 4, seen.size_at("Pi", 1000), exactly(4),
              "nodes", _PRINTED),
        claim("last change", 700, seen.last_change(), (700, 710), "s",
              "about 700 s, where we let the corridor move for the last time: within one decision of that"),
        claim("times outside for longer than one decision", 0, len(seen.result.power.violations), at_most(0),
              "", "said in words"),
    )  # fmt: skip
    beside = (
        figure("nodes in the third corridor", third, "nodes"),
        figure("power in the third corridor", third * _WATTS, "W"),
    )
    return Outcome(claims, beside)
