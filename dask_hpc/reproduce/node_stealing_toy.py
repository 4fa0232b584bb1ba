"""Node stealing on five jobs and eight nodes, where the source gives every input (seed 002, 3.1)."""

import numpy as np

from dask_hpc.reproduce.claim import Bench, Claim, Outcome, claim, exactly, rounded
from dask_hpc.simulator import simulate
from dask_hpc.simulator.built_in import built_in

_FLOWS = {
    "conservative-backfill": ("without stealing", (8, 5, 15, 25, 3)),
    "node-stealing": ("with stealing", (8, 11, 11, 21, 10)),
}
_MEANS = {"conservative-backfill": (25, 11.2, 17), "node-stealing": (21, 12.2, 14.733)}
_SIZES = np.array((1, 1, 6, 6, 1))
_EXACT = "every input is given, so only the very number counts"


def run(bench: Bench) -> Outcome:
    """Each job's flow, and the three summaries."""
    claims: list[Claim] = []
    for policy, (how, flows) in _FLOWS.items():
        jobs = simulate(built_in("node-stealing"), policy=policy).jobs
        ours = (jobs["end"] - jobs["submit"]).to_numpy()
        for name, flow, got in zip(jobs["id"], flows, ours, strict=True):
            claims.append(claim(f"{name}'s flow {how}", flow, got, exactly(flow), "s", _EXACT))
        largest, average, weighted = _MEANS[policy]
        note = "17.067 exactly, printed as 17" if weighted == 17 else "printed with three decimals"
        last = 1 if weighted == 17 else 0.001
        claims += [
            claim(f"longest flow {how}", largest, ours.max(), exactly(largest), "s", _EXACT),
            claim(f"mean flow {how}", average, ours.mean(), exactly(average), "s", _EXACT),
            claim(
                f"mean flow weighted by nodes {how}",
                weighted,
                float(ours @ _SIZES / _SIZES.sum()),
                rounded(weighted, last),
                "s",
                f"{note}: whatever rounds to it",
            ),
        ]
    assumptions = (
        "Flow is from submission to completion: the text says execution, its numbers say completion.",
        "All jobs are submitted together; of equally small victims the last in the queue is stopped.",
    )
    return Outcome(tuple(claims), assumptions)
