"""Every decision of a plan is explained by its rule, its inputs and what was not done instead."""

from dask_hpc.model.explanation import explain
from dask_hpc.model.indices import Indices
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.plan import Interrupt, Plan, Resize, Start
from dask_hpc.model.snapshot import Snapshot

RULES = {"start": "queue: q", "resize": "malleability: m", "request": "asked", "interrupt": "failure: f"}


def machine(*waiting, running=()):
    indices = Indices(Node(str(i)) for i in range(8))
    for job in running:
        indices.waiting.add(job)
        indices.start(job.id, job.nodes)
    for job in waiting:
        indices.waiting.add(job)
    return indices


def malleable(name, nodes=2):
    return Job(id=name, nodes=nodes, min_nodes=1, max_nodes=8, kind="malleable")


def test_a_start_names_who_was_left_waiting_and_why():
    a, b, c = Job(id="a", nodes=5, walltime=60), Job(id="b", nodes=5), Job(id="c", nodes=1, submitted=2.0)
    snapshot = Snapshot(machine(a, b, c))
    found = explain(snapshot, Plan(0, 10.0, (Start("a", 5, "first"),)), RULES)["a"]
    assert found.rule == "queue: q"
    assert found.inputs == {
        "nodes": 8, "idle": 8, "waiting": 3, "running": 0, "asks": 5, "walltime": 60, "waited": 10.0,
    }  # fmt: skip
    assert found.rejected == (
        "start b on 5 nodes: 3 nodes left",
        "start c on 1 node: would fit, but its turn has not come",
    )


def test_a_long_queue_is_not_listed():
    jobs = [Job(id=str(i), nodes=1) for i in range(500)]
    found = explain(Snapshot(machine(*jobs)), Plan(0, 0.0, (Start("7", 1, ""),)), RULES)
    assert len(found["7"].rejected) == 3 and found["7"].inputs["walltime"] is None


def test_resizes_and_interrupts():
    indices = machine(running=[malleable("m"), malleable("n"), malleable("e"), Job(id="r", nodes=1)])
    indices.mtct["m"] = 0.5
    indices.requests["e"] = 1
    plan = Plan(0, 0.0, (), (Resize("m", 3, ""), Resize("e", 1, "")), (Interrupt("r", ""),))
    found = explain(Snapshot(indices), plan, RULES)
    # nobody is resized at the instant he started, so nobody else could have been
    assert found["m"].rule == "malleability: m" and found["e"].rule == "asked"
    assert found["m"].inputs["from"] == 2 and found["m"].inputs["to"] == 3
    assert found["m"].inputs["mtct"] == 0.5 and "mtct" not in found["e"].inputs
    assert found["m"].rejected == ("resize n instead: stays at 2 nodes of 1 to 8",)
    assert found["r"].rule == "failure: f" and found["r"].inputs["from"] == 1
