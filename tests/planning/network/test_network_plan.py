"""``plan_network``: shares, busiest links, other placements, partners, and what is said of all that."""

import pytest

import dask_hpc
from dask_hpc.model.errors import InputError
from dask_hpc.model.topology import LinkLevel, Topology, fat_tree, xc30
from dask_hpc.planning import plan_network as plan_module
from dask_hpc.planning.network.demands import Traffic
from dask_hpc.planning.plan_network import contiguous, plan_network

TREE = {"rack0": "n[0-3]", "rack1": "n[4-7]", "rack2": "n[8-11]"}
#: half a rack's ports lead up
NETWORK = {"tree": TREE, "port": "1 GB/s", "oversubscription": 2}


def test_two_racks_share_their_uplinks():
    jobs = {
        "split": {"nodes": "n[2-5]", "rate": "0.5 GB/s"},
        "whole": {"nodes": "all of rack2", "rate": "0.2 GB/s"},
    }
    plan = dask_hpc.plan_network(NETWORK, jobs)
    split, whole = plan.jobs["split"], plan.jobs["whole"]
    # each of its nodes sends 1.5 through a port of 1; its racks send 2 up links of 2
    assert split.theta == pytest.approx(1 / 1.5) and split.slowdown == pytest.approx(1.5)
    assert whole.theta == pytest.approx(1.0) == whole.alone
    assert split.contiguous == pytest.approx(1 / 1.5), "the port is in the way, not the rack"
    assert plan.is_exact and plan.least == plan.most == pytest.approx(1 / 1.5)
    first = plan.busiest(1)[0]
    assert first.level == "node" and first.share == pytest.approx(1.0) and first.name == "up from rack0/n2"
    assert plan.levels["node"].full == 8 and plan.levels["node"].links == 24
    assert plan.levels["rack"].most == pytest.approx(2 / 3)
    assert plan.reason == "1 of 2 jobs slowed down: 'split' gets 67% of its demand; full: 8 of 24 node links"


def test_contiguous_nodes_and_partners():
    jobs = {"a": {"nodes": "n[2-5]", "rate": "1 GB/s"}}
    plan = plan_network({**NETWORK, "oversubscription": 4}, jobs)
    found = plan.jobs["a"]
    # 4 pairs of GB/s each way over an uplink of 1; in one rack a port of 1 for 3
    assert found.theta == pytest.approx(1 / 4) and found.contiguous == pytest.approx(1 / 3)
    assert set(found.nodes) == {"n0", "n1", "n2", "n3"}
    assert found.partners == {"n2": "n6", "n3": "n7", "n4": "n8", "n5": "n9"}
    assert plan.reason.endswith("with contiguous nodes 'a' gets 33%")
    assert plan.levels["rack"].full == 4 and plan.busiest(1)[0].name == "up from rack0"
    assert [one.name for one in plan.busiest(3)] == ["up from rack0", "up from rack1", "down to rack0"]


def test_jobs_are_put_together_the_largest_first():
    topology = plan_module.topology_of(NETWORK)
    jobs = {
        "small": Traffic(("n0", "n8"), rate=1.0),
        "saved": Traffic(("n0", "n8"), "partner"),
        "large": Traffic(("n1", "n2", "n4", "n9", "n10"), rate=1.0),
        "whole": Traffic(("n3", "n5", "n6", "n7"), rate=1.0),
    }
    found = {name: job.nodes for name, job in contiguous(topology, jobs).items()}
    assert list(found) == list(jobs)
    racks = {name: {topology.places[node][0] for node in nodes} for name, nodes in found.items()}
    assert len(racks["large"]) == 2 and len(racks["whole"]) == 1 and len(racks["small"]) == 1
    assert found["small"] == found["saved"] and len(found["large"]) == 5
    everything = [node for name, nodes in found.items() if name != "saved" for node in nodes]
    assert len(set(everything)) == len(everything) == 11
    # the fullest part that has room
    uneven = plan_module.topology_of({"tree": {"r0": "n[0-3]", "r1": "n[4-5]"}})
    assert contiguous(uneven, {"a": Traffic(("n0", "n4"), rate=1.0)})["a"].nodes == ("n4", "n5")
    # jobs that share nodes with others may be more than there are nodes
    many = {name: Traffic(topology.nodes[at:], rate=1.0) for at, name in enumerate("ab")}
    assert contiguous(topology, many)["b"].nodes == topology.nodes[1:]


def test_lattices_name_links_by_their_routers():
    jobs = {"a": {"nodes": ["cabinet0-chassis0-blade1", "cabinet1-chassis0-blade1"], "rate": "25 GB/s"}}
    plan = plan_network({"preset": "xc30"}, jobs, objective="min")
    assert plan.jobs["a"].theta == pytest.approx(0.5)
    assert {one.name for one in plan.busiest()} == {
        "cabinet0/chassis0/blade1 to cabinet1", "cabinet1/chassis0/blade1 to cabinet0",
    }  # fmt: skip
    assert plan.jobs["a"].contiguous == pytest.approx(14 / 25)
    assert plan.jobs["a"].partners["cabinet0-chassis0-blade1"] == "cabinet1-chassis0-blade1"


def test_more_than_two_thousand_endpoints_have_bounds():
    tree = fat_tree(13, 3, bandwidth=1.0, oversubscription=2.0)
    assert len(tree.nodes) == 2197
    plan = plan_network(tree, {"a": Traffic(tree.nodes, rate=1e-3)})
    assert not plan.is_exact and "bounds, not a linear programme (2,197 endpoints)" in plan.reason
    # what leaves a switch: 13 nodes to all others, over links of 6.5
    assert plan.least == pytest.approx(6.5 / (13 * 2184 * 1e-3)) == pytest.approx(plan.jobs["a"].theta)
    assert f"the worst served job gets {plan.least:.1%} at best" in plan.reason
    fewer = plan_network(tree, {"a": Traffic(tree.nodes[:2000], rate=1e-3)})
    assert fewer.is_exact and "bounds" not in fewer.reason


def test_what_cannot_be_solved_is_bounded(monkeypatch):
    topology = xc30(2, 3, 4)
    jobs = {name: Traffic(topology.nodes[at::2], rate=5e9) for at, name in enumerate(("even", "odd"))} | {
        "save": Traffic(topology.nodes[:5], "store")
    }
    exact = plan_network(topology, jobs, objective="min")
    monkeypatch.setattr(plan_module, "solve", lambda *_: None)
    plan = plan_network(topology, jobs, objective="min")
    assert exact.is_exact and not plan.is_exact and "(too many paths that differ)" in plan.reason
    assert plan.least <= exact.least * (1 + 1e-6) and plan.most >= exact.least * (1 - 1e-6)
    assert plan.most <= 1.1 * plan.least and " to " in plan.reason.split("gets")[-1]


def test_nothing_in_the_way_and_nobody_to_lean_on():
    plan = plan_network({"tree": {"r": "n[0-3]"}}, {"a": {"nodes": "all", "rate": 0}})
    assert plan.jobs["a"].theta == 1.0 and plan.jobs["a"].slowdown == 1.0
    assert plan.jobs["a"].partners == {"n0": "n1", "n1": "n2", "n2": "n3", "n3": "n0"}, "each fails alone"
    cabinet = plan_network({"preset": "xc30", "cabinets": 1}, {"a": {"nodes": "all", "rate": 1.0}})
    assert cabinet.reason == (
        "the network carries all that the jobs send; one cabinet: no node has a partner that does not fail "
        "with it"
    )
    assert cabinet.jobs["a"].partners == {} and cabinet.busiest(2)


@pytest.mark.parametrize(
    ("topology", "jobs", "said"),
    [
        (NETWORK, {}, "jobs: found {}; allowed: 1 to 1,000"),
        (NETWORK, [], "jobs: found"),
        (NETWORK, {"": {}}, "jobs: found ''; allowed: names"),
        (NETWORK, {"a": {"nodes": "n[0-99]", "rate": 1}}, "jobs: a: nodes: found 'n12', which is not in the"),
        (NETWORK, {"a": {"nodes": "n0"}}, "jobs: a: rate: found None"),
        (NETWORK, {"a": {"nodes": "n0", "pattern": "store"}}, "jobs: a: pattern: found 'store'"),
        ({"preset": "xc30", "cabinets": 1}, {"a": {"nodes": "all", "pattern": "partner"}},
         "jobs: a: found one cabinet: no partner is in another"),
        ({"tree": TREE, "port": 0}, {"a": {"nodes": "n0", "rate": 1}}, "topology: port: found"),
    ],
)  # fmt: skip
def test_what_is_refused(topology, jobs, said):
    with pytest.raises(InputError, match=said):
        plan_network(topology, jobs)
    with pytest.raises(InputError, match="objective: found 'best'; allowed: sum, min"):
        plan_network(topology, jobs, objective="best")


def test_a_disconnected_lattice_is_refused():
    levels = (LinkLevel("cabinet", 1.0, "all-to-all"), LinkLevel("blade", 1.0, "all-to-all"))
    with pytest.raises(InputError, match="nothing joins c0/b0 with c1/b1"):
        Topology(levels, {"a": ("c0", "b0"), "b": ("c1", "b1")})
