"""What workers tell becomes readings of nodes: machines count once, whatever a node is."""

import pytest

from dask_hpc.dask import WorkerUse
from dask_hpc.model.node import Nodes
from dask_hpc.power.scheduler.meters import NodeUse, WorkerMeter


def told(host="h1", sequence=5, watts=200.0, share=0.5, **more):
    found = {
        "host": host, "pid": 1, "sequence": sequence, "age": 0.1, "watts": watts, "uncertainty": 10.0,
        "source": "measured", "idle": 80.0, "use": 0.6, "share": share, "meters": ["rapl"], "problem": "",
    }  # fmt: skip
    return found | more


def look(mode, said):
    """Two hosts: a and b of the first, c of the second."""
    nodes = Nodes(mode)
    workers = {}
    for number, (address, words) in enumerate(said.items()):
        host = "10.0.0.2" if address.startswith("c") else "10.0.0.1"
        nodes.join(address, address, host)
        workers[address] = WorkerUse(address, 2, 1, 1, 1000.0 + number, words)
    return WorkerMeter(1.0).look(0.0, workers, nodes, {})


def source(found):
    (part,) = found.parts.values()
    return part.source


def test_workers_of_a_host_that_is_a_node_count_once():
    found = look("host", {"a": told(), "b": told(sequence=6, watts=210.0), "c": told("h2", watts=90.0)})
    assert set(found) == {"h1", "h2"}
    assert found["h1"].parts == {"10.0.0.1": (210.0, 10.0, "measured", True, "")}  # who looked last
    assert found["h2"].parts == {"10.0.0.2": (90.0, 10.0, "measured", True, "")}
    assert found["h1"].load == 0.6


def test_workers_that_are_nodes_share_their_host():
    found = look("worker", {"a": told(share=0.75), "b": told(share=0.25)})
    assert set(found) == {"h1"} and found["h1"].watts == 200
    parts = found["h1"].parts
    assert parts["a"].watts == pytest.approx(40 + 120 * 0.75)
    assert parts["b"].watts == pytest.approx(40 + 120 * 0.25)
    assert sum(part.watts for part in parts.values()) == pytest.approx(200)


def test_the_freshest_worker_speaks_for_a_machine():
    silent = told(sequence=3, watts=50.0, age=30.0)
    found = look("host", {"a": told(sequence=9), "b": silent})
    assert found["h1"].watts == 200


def test_the_worker_that_may_ask_the_controller_speaks_for_a_machine():
    """Only one process of a machine asks its IPMI controller; the others tell what they can."""
    modelled = told(source="modelled", meters=[], watts=240.0, uncertainty=80.0, share=0.25)
    for order in (("a", "b"), ("b", "a")):
        said = dict(zip(order, (told(share=0.5), modelled), strict=True))
        found = look("host", said)
        assert found["h1"].watts == 200 and source(found["h1"]) == "measured"
        parts = look("worker", said)["h1"].parts
        assert parts[order[0]][:2] == pytest.approx((100, 5))
        assert parts[order[1]][:2] == pytest.approx((70, 3.5))
    silent = look("host", {"a": told(age=30.0), "b": modelled})
    assert silent["h1"].watts == 240 and source(silent["h1"]) == "modelled"


def test_models_err_alike():
    found = look("host", {"a": told(source="modelled", meters=[])})
    assert not found["h1"].parts["10.0.0.1"].is_chance and source(found["h1"]) == "modelled"


@pytest.mark.parametrize(
    "bad", [5, {}, told(watts=-1), told(watts=float("nan")), told(watts="much"), told(source="guessed")]
)
def test_what_makes_no_sense_is_a_problem_of_its_node_alone(bad):
    found = look("worker", {"a": bad, "c": told("h2")})
    assert found["a"].problem.startswith("hpc_power") and set(found["a"].parts) == {"a"}
    assert not found["h2"].problem


def test_who_says_nothing_has_no_reading():
    assert look("worker", {"a": None}) == {}


def test_the_model_goes_by_threads_or_by_what_was_measured():
    assert WorkerMeter(1.0).model(NodeUse(0, 8, 2)).busy > WorkerMeter(1.0).model(NodeUse(0, 4, 1)).busy
    model = WorkerMeter(1.0, [(0.0, 90.0), (1.0, 300.0)]).model(NodeUse(0, 8, 2))
    assert model.watts(0.5) == pytest.approx(195)


def test_load_of_a_node():
    assert NodeUse(1, 4, 1).load == 0.25 and NodeUse(9, 4, 1).load == 1 and NodeUse(0, 0, 0).load == 0
