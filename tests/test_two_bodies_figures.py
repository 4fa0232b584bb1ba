"""One script, two bodies: the live cluster's figures are the simulator's."""

import pytest
from test_two_bodies import MALLEABLE, RIGID, SCALING, described, live

from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival

#: named alike in ``status()["figures"]`` and in the simulator's metrics
ALIKE = (
    "makespan",
    "utilisation",
    "mean_wait",
    "max_wait",
    "mean_response",
    "max_response",
    "weighted_response",
    "mean_bounded_slowdown",
    "completed",
    "cancelled",
)


@pytest.mark.parametrize(
    "name, rows", [("easy-backfill", RIGID), ("conservative-backfill", RIGID), ("fpsma-pwma", MALLEABLE)]
)
def test_the_same_figures(name, rows):
    policy = Policy.load(name)
    arrivals = [
        Arrival(Job(id=row[0], submitted=row[1], **described(row)), row[3], speedup=SCALING) for row in rows
    ]
    result = simulate(arrivals, nodes=4, policy=policy)
    frame = result.jobs
    found = {}
    live(
        policy,
        rows,
        list(zip(frame["end"], frame["id"], strict=True)),
        look=lambda status: found.update(status),
    )
    figures, metrics = found["figures"], result.metrics
    assert metrics["mean_wait"] > 0 and metrics["mean_bounded_slowdown"] > 1, "there is something to compare"
    assert {one: figures[one] for one in ALIKE} == pytest.approx({one: metrics[one] for one in ALIKE})

    # job by job, and a change of size takes no time in either, as nothing runs on that a job gives up
    waited = {job["name"]: job["waited"] for job in found["jobs"]}
    responded = {job["name"]: job["response"] for job in found["jobs"]}
    assert waited == pytest.approx(dict(zip(frame["id"], frame["wait"], strict=True)))
    assert responded == pytest.approx(dict(zip(frame["id"], frame["end"] - frame["submit"], strict=True)))
    changes = figures["adaptation"]
    assert changes["grow"]["count"] + changes["shrink"]["count"] == metrics["resizes"]
    if metrics["resizes"]:
        assert changes["shrink"]["total"]["mean"] == metrics["mean_adaptation"] == 0
