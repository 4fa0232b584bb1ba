"""Every decision of a plan is explained by its rule, its inputs and what was not done instead."""

from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.plan import Interrupt, Plan, Resize, Start
from dask_hpc.model.power import Corridor, PowerRange, PowerView, Verdict
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.model.story import explain, explain_levers

RULES = {
    "start": "queue: q",
    "resize": "malleability: m",
    "request": "asked",
    "interrupt": "failure: f",
    "power": "power: p",
}


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


def test_what_was_done_for_power_says_what_was_known_of_it():
    indices = machine(malleable("w"), running=[malleable("m"), malleable("n")])
    indices.power = PowerView(2600.0, "measured", 25.0, held=2, doubt="frozen")
    snapshot = Snapshot(indices, Corridor.constant(1000.0, 2500.0))
    plan = Plan(
        0, 0.0, (Start("w", 1, ""),), (Resize("m", 1, ""), Resize("n", 3, "")), for_power=frozenset("wm")
    )
    found = explain(snapshot, plan, RULES)
    assert found["w"].is_for_power and found["m"].rule == "power: p" and found["n"].rule == "malleability: m"
    assert found["m"].inputs["from"] == 2 and "watts" not in found["n"].inputs
    levers = explain_levers(snapshot, RULES)
    assert levers.is_for_power and levers.inputs.items() <= found["m"].inputs.items()
    known = {"watts": 2600.0, "source": "measured", "uncertainty": 25.0, "lower": 1000.0, "upper": 2500.0}
    assert known.items() <= levers.inputs.items()
    assert (
        levers.inputs["held"] == 2 and levers.inputs["doubt"] == "frozen" and "forecast" not in levers.inputs
    )


def test_what_the_corridor_does_not_allow_is_among_what_was_rejected():
    indices = machine(
        Job(id="a", nodes=2), Job(id="b", nodes=4), Job(id="c", nodes=1), running=[malleable("m")]
    )
    indices.power = PowerView(260.0, idle=10.0, active=PowerRange(100.0, 100.0))
    snapshot = Snapshot(indices, Corridor.constant(0.0, 600.0))
    plan = Plan(0, 0.0, (Start("a", 2, ""),), for_power=frozenset("a"))
    found = explain(snapshot, plan, RULES)["a"]
    assert found.inputs["watts"] == 260 and found.inputs["after"] == 440
    assert found.rejected == (
        "start b on 4 nodes: power would leave its corridor",
        "start c on 1 node: would fit, but its turn has not come",
    )
    verdict = Verdict(0.0, 600.0, True, PowerRange(440.0, 440.0), 80.0, 800.0)
    told = explain_levers(snapshot, RULES, Plan(0, 0.0, verdict=verdict))
    assert told.inputs["reachable"] == (80, 800) and told.rejected[0].startswith("start a on 2 nodes: ")


def test_little_is_said_where_little_is_known():
    snapshot = Snapshot(machine(), Corridor.constant(1.0))
    assert "upper" not in explain_levers(snapshot, RULES).inputs
    indices = machine()
    indices.power = PowerView(1.0)
    assert explain_levers(Snapshot(indices, Corridor.constant(1.0)), RULES).inputs["upper"] is None
