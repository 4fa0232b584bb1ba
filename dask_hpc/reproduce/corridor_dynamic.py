"""A corridor that moves three times, and one application that follows it (seed 000, 9.2.3; digest 3.3.2)."""

from dask_hpc.model.power import Corridor
from dask_hpc.reproduce.claim import Bench, Figure, Outcome, at_most, claim, exactly
from dask_hpc.reproduce.corridor_resizing import HOW, NO_IDLE, App, Observed

_WATTS = 125.0
_STEPS = ((0.0, 100.0, 600.0), (240.0, 700.0, 1200.0), (470.0, 1300.0, 1900.0), (700.0, 100.0, 600.0))


def run(bench: Bench) -> Outcome:
    """16 nodes: 100-600, 700-1,200, 1,300-1,900 and again 100-600 W."""
    seen = Observed(16, (App("Pi", _WATTS, 1, 16),), Corridor(_STEPS), 1000.0)
    printed = "printed as a number of nodes"
    second, third = seen.size_at("Pi", 460), seen.size_at("Pi", 690)
    grown = next((time for time, size in seen.sizes("Pi") if size == second and time >= 240), float("inf"))
    claims = (
        claim("nodes in the first corridor", 1, seen.size_at("Pi", 230), exactly(1), "nodes", printed),
        claim("nodes in the second corridor", 9, second, exactly(9), "nodes", printed),
        claim("there from", 250, grown, (240, 250), "s", "the corridor moves at 240 s"),
        claim("nodes in the third corridor over those in the second", "more", third - second, (1, 7), "nodes",
              "said in words: at least one more, and there are 16"),
        claim("nodes in the first corridor when it comes back", 4, seen.size_at("Pi", 1000), exactly(4),
              "nodes", printed),
        claim("last change", 700, seen.last_change(), (700, 710), "s",
              "about 700 s, where we let the corridor move for the last time: within one decision of that"),
        claim("times outside for longer than one decision", 0, len(seen.result.power.violations), at_most(0),
              "", "said in words"),
    )  # fmt: skip
    beside = (
        Figure("nodes in the third corridor", third, "nodes"),
        Figure("power in the third corridor", third * _WATTS, "W"),
    )
    return Outcome(claims, (*_ASSUMPTIONS, NO_IDLE, HOW), beside)


_ASSUMPTIONS = (
    "Watts of a node, not given: 9 nodes are the most in 1,200 W, and 4 in 600 W, for 120 to 133 W: 125 W.",
    "When the corridor moves, not all given: at 240 s as printed, at 700 s, when the last change is seen, "
    "and half-way between (470 s).",
    "1 node at first and 4 at last, in the same corridor: a decision is made only when power is outside, and "
    "then as few nodes as possible are left idle.",
)
