"""Two applications draw too much: one shrinks, the other grows (seed 000, 9.2.2; digest 3.3.2)."""

from dask_hpc.model.power import Corridor
from dask_hpc.reproduce.claim import Bench, Outcome, at_most, claim, exactly
from dask_hpc.reproduce.corridor_resizing import HOW, NO_IDLE, SAID, TICK, App, Observed

_APPS = (App("App 1", 320.0, 12, 32), App("App 2", 125.0, 2, 24))


def run(bench: Bench) -> Outcome:
    """32 nodes, 3,000 to 4,000 W."""
    seen = Observed(32, _APPS, Corridor.constant(3000, 4000), 1000.0)
    inside = seen.inside_from()
    printed = "printed as a number of nodes"
    claims = (
        claim("App 1 comes to", 3, seen.size_at("App 1", 1000), exactly(3), "nodes", printed),
        claim("App 2 comes to", 24, seen.size_at("App 2", 1000), exactly(24), "nodes", printed),
        claim("inside the corridor from", 300, inside, at_most(300), "s",
              "read off a plot that has no time of the first decision: by then"),
        claim("resizes after that", 0, seen.changes_after(inside + TICK), exactly(0), "", SAID),
    )  # fmt: skip
    return Outcome(claims, (*_ASSUMPTIONS, NO_IDLE, HOW))


_ASSUMPTIONS = (
    "Watts of a node, not given: App 2 draws the 125 W that the dynamic corridor's sizes imply. Then App 1 "
    "draws 313 to 333 W, or 12 and 2 nodes would be inside, or 3 and 24 outside: 320.",
    "Most nodes, not given: 24 for App 2. Without such a limit no watts at all make 3 and 24 nodes the "
    "distribution with the fewest idle nodes: App 1 on one node and App 2 on 27 would be better.",
)
