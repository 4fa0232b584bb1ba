"""Two applications draw too little: one shrinks, the other grows more (seed 000, 9.2.2; digest 3.3.2)."""

from dask_hpc.model.power import Corridor
from dask_hpc.reproduce.claim import Bench, Outcome, at_most, claim, exactly
from dask_hpc.reproduce.corridor_resizing import HOW, NO_IDLE, SAID, TICK, App, Observed

_APPS = (App("App 1", 240.0, 4, 32), App("App 2", 125.0, 4, 16))


def run(bench: Bench) -> Outcome:
    """32 nodes, 1,500 to 2,500 W."""
    seen = Observed(32, _APPS, Corridor.constant(1500, 2500), 1000.0)
    inside = seen.inside_from()
    printed = "printed as a number of nodes"
    claims = (
        claim("App 1 comes to", 2, seen.size_at("App 1", 1000), exactly(2), "nodes", printed),
        claim("App 2 comes to", 16, seen.size_at("App 2", 1000), exactly(16), "nodes", printed),
        claim("inside the corridor from", 500, inside, at_most(500), "s",
              "read off a plot that has no time of the first decision: by then"),
        claim("resizes after that", 0, seen.changes_after(inside + TICK), exactly(0), "", SAID),
    )  # fmt: skip
    return Outcome(claims, (*_ASSUMPTIONS, NO_IDLE, HOW))


_ASSUMPTIONS = (
    "Nodes: 32, as in the test of the upper bound. The source says 16, but 2 and 16 are 18.",
    "Watts of a node, not given: App 2 draws the 125 W that the dynamic corridor's sizes imply. Then App 1 "
    "draws 167 to 250 W, or 4 and 4 nodes would be inside, or 2 and 16 not the most that is: 240. No pair of "
    "watts fits both this test and the one of the upper bound: the applications must be others.",
    "Most nodes, not given: 16 for App 2, or more nodes would be put to work.",
)
