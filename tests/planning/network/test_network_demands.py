"""What jobs send, in numbers, and what is refused; topologies and jobs as people write them down."""

import numpy as np
import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.model.topology import LinkLevel, Topology, fat_tree, slurm_tree, xc30
from dask_hpc.planning.network.demands import PairDemand, ProductDemand, Traffic, demands, partners_of
from dask_hpc.planning.network.description import nodes_of, topology_of, traffic_of
from dask_hpc.planning.network.graph import graph_of

CRAY = xc30()


def refused(match, make):
    with pytest.raises(InputError, match=match):
        make()


def matrix(topology, job):
    """From each node to each other one, in bytes a second."""
    graph = graph_of(topology)
    found = np.zeros((len(graph.names), len(graph.names)))
    for one in demands(graph, job):
        if isinstance(one, ProductDemand):
            found += np.outer(one.sent, one.taken)
        else:
            assert isinstance(one, PairDemand)
            np.add.at(found, (one.sources, one.targets), one.rates)
    np.fill_diagonal(found, 0)
    return found, graph.numbers


def test_all_to_all():
    nodes = CRAY.nodes[3:7]
    sent, numbers = matrix(CRAY, Traffic(nodes, rate=2.0))
    assert sent.sum() == 2.0 * 4 * 3
    assert sent[numbers[nodes[0]], numbers[nodes[3]]] == 2.0


def test_partners_are_at_the_same_place_of_the_next_cabinet():
    machine = xc30(3, 2, 3)
    nodes = ("cabinet0-chassis1-blade1", "cabinet2-chassis0-blade2")
    partners = ("cabinet1-chassis1-blade1", "cabinet0-chassis0-blade2")
    assert partners_of(machine, nodes) == partners
    sent, numbers = matrix(machine, Traffic(nodes, "partner"))
    back, _ = matrix(machine, Traffic(nodes, "partner", restart=True))
    assert sent.sum() == 2 * 12.5e9 and (back == sent.T).all()
    assert sent[numbers[nodes[0]], numbers[partners[0]]] == 12.5e9
    assert matrix(machine, Traffic(nodes, "partner", 3.0))[0].sum() == 6.0
    refused("^found one cabinet: no partner is in another; allowed: two or more",
            lambda: demands(graph_of(xc30(1)), Traffic(xc30(1).nodes[:2], "partner")))  # fmt: skip


def test_where_no_place_is_the_same_partners_are_dealt():
    tree = slurm_tree({"a": ("r0",), "b": ("r0",), "c": ("r1",), "d": ("r0",)})
    assert partners_of(tree, ("a", "b", "d", "c")) == ("c", "c", "c", "a")


def test_stores_of_any_part_or_the_own_one():
    nodes = ("cabinet0-chassis1-blade1", "cabinet1-chassis1-blade1")
    sent, numbers = matrix(CRAY, Traffic(nodes, "store"))
    assert sent.sum() == 2 * 12.5e9
    first, corner = numbers[nodes[0]], [numbers[name] for name in CRAY.service]
    assert list(sent[first, corner]) == [12.5e9 / 4] * 4
    own, _ = matrix(CRAY, Traffic(nodes, "store", stores="own"))
    assert list(own[first, corner]) == [12.5e9 / 2] * 2 + [0, 0]
    assert list(own[numbers[nodes[1]], corner]) == [0, 0] + [12.5e9 / 2] * 2
    back, _ = matrix(CRAY, Traffic(nodes, "store", stores="own", restart=True))
    assert (back == own.T).all()
    plain = xc30(service=False)
    refused("pattern: found 'store'; allowed: a topology with service nodes",
            lambda: demands(graph_of(plain), Traffic(plain.nodes[:2], "store")))  # fmt: skip
    levels = (LinkLevel("rack", 1.0), LinkLevel("node", 1.0))
    half = Topology(levels, {"a": ("r0", "a"), "b": ("r1", "b"), "s": ("r1", "s")}, ("s",))
    refused("stores: found 'own, and no service node in r0'; allowed: any",
            lambda: demands(graph_of(half), Traffic(("a", "b"), "store", stores="own")))  # fmt: skip


def test_traffic_is_sound():
    refused("pattern: found 'ring'; allowed: all-to-all, partner, store", lambda: Traffic(("a",), "ring"))
    refused("stores: found 'none'; allowed: any, own", lambda: Traffic(("a",), stores="none"))
    refused("rate: found None; allowed: bytes a second from each node to each other", lambda: Traffic(("a",)))
    for rate in (-1.0, float("nan"), float("inf"), "2"):
        refused("rate: found .*; allowed: bytes a second, 0 or more",
                lambda rate=rate: Traffic(("a",), rate=rate))  # fmt: skip
    refused("nodes: found .*; allowed: at least one node", lambda: Traffic((), rate=1.0))
    refused("allowed: each node once", lambda: Traffic(("a", "a"), rate=1.0))
    refused("nodes: found 'x', which is not in the topology",
            lambda: demands(graph_of(CRAY), Traffic(("x",), rate=1.0)))  # fmt: skip
    assert Traffic(("a",), "store").rate is None


def test_links_have_names():
    graph = graph_of(CRAY)
    number = int(np.nonzero(graph.is_of("chassis"))[0][3])
    source, target = graph.ends_of(number)
    assert source == ("cabinet0", "chassis0", "blade0") and target == ("cabinet0", "chassis3", "blade0")
    assert graph.level_of(number).name == "chassis"
    # none leads from a place to itself: 192 of 1, of 5 and of 15
    assert [int(np.isfinite(graph.capacity[graph.is_of(one.name)]).sum()) for one in CRAY.levels] == [
        192, 960, 2880,
    ]  # fmt: skip
    tree = graph_of(fat_tree(2, 2))
    ends = [tree.ends_of(number) for number in range(len(tree.capacity))]
    assert ends[0] == (("switch1-0",), ()) and ends[3] == ((), ("switch1-1",))
    assert ends[4] == (("switch1-0", "node0"), ("switch1-0",)) and len(ends) == 12


def test_descriptions_of_topologies():
    assert topology_of(CRAY) is CRAY
    assert topology_of({"preset": "xc30", "cabinets": 2}) == CRAY
    found = topology_of({"preset": "fat-tree", "arity": 4, "levels": 2, "port": "100 Gbit/s",
                         "oversubscription": 2, "service": "node[14-15]"})  # fmt: skip
    assert found.levels == fat_tree(4, 2, oversubscription=2).levels and found.service == ("node14", "node15")
    tree = {"rack0": "n[0-3]", "rack1": ["n4", "n[5-7]"]}
    found = topology_of({"tree": tree, "port": "1 GB/s", "bandwidths": {"rack": "3 GB/s"}})
    assert [(one.name, one.bandwidth) for one in found.levels] == [("rack", 3e9), ("node", 1e9)]
    lattice = topology_of(
        {"tree": {"c0": {"b0": "n[0-1]", "b1": "n2"}, "c1": {"b0": "n3", "b1": "n4"}},
         "levels": {"cabinet": {"bandwidth": "2 GB/s", "links": "all-to-all"},
                    "blade": {"bandwidth": "3 GB/s", "links": "all-to-all"}}}
    )  # fmt: skip
    assert len(lattice.lattice) == 2 and lattice.places["n1"] == ("c0", "b0")
    mixed = topology_of({"tree": {"c0": "a", "c1": "b"},
                         "levels": {"cabinet": {"bandwidth": 2, "links": "all-to-all"},
                                    "node": {"bandwidth": 1}}})  # fmt: skip
    assert mixed.places == {"a": ("c0", "a"), "b": ("c1", "b")}
    slurm = "SwitchName=s0 Nodes=n[0-1]\nSwitchName=s1 Nodes=n[2-3]\n"
    assert len(topology_of({"slurm": slurm + "SwitchName=top Switches=s[0-1]"}).nodes) == 4
    refused("slurm: nothing joins 's0' with 's1'; allowed: a switch above both",
            lambda: topology_of({"slurm": slurm}))  # fmt: skip


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "found .*allowed: preset: xc30 or fat-tree, tree"),
        ({}, "allowed: preset: xc30"),
        ({"preset": "xc30", "tree": {}}, "allowed: preset: xc30"),
        ({"preset": "torus"}, "preset: found 'torus'; allowed: xc30, fat-tree"),
        ({"preset": ["xc30"]}, "preset: found"),
        ({"preset": "xc30", "arity": 2}, "arity: unknown key"),
        ({"preset": "xc30", "cabinets": "two"}, "cabinets: found 'two'"),
        ({"preset": "fat-tree", "port": "0 GB/s"}, "bandwidth: found 0"),
        ({"preset": "fat-tree", "port": "fast"}, "port: found 'fast'"),
        ({"tree": {"r": "n[0-"}}, "tree: found"),
        ({"tree": {"r": "n[0-1]"}, "bandwidths": 3}, "bandwidths: found 3"),
        ({"tree": {"r": "n[0-1]"}, "bandwidths": {"node": "0 B/s"}}, "level node: bandwidth: found 0"),
        ({"tree": {"r": "n[0-1]"}, "service": "x"}, "service: found 'x'"),
        ({"tree": {"r": "n[0-1]"}, "levels": {}}, "levels: found"),
        ({"tree": {"r": "n[0-1]"}, "levels": {"a": {}}}, "levels: a: bandwidth: found None"),
        (
            {"tree": {"r": "n[0-1]"}, "levels": {one: {"bandwidth": 1} for one in "abc"}},
            "allowed: one for each",
        ),
        ({"slurm": 3}, "slurm: found 3"),
        ({"slurm": "nothing"}, "slurm: "),
    ],
)
def test_descriptions_that_are_refused(found, said):
    refused(said, lambda: topology_of(found))


def test_nodes_by_name_and_by_part():
    assert nodes_of("all", CRAY) == CRAY.nodes
    part = nodes_of("all of cabinet1/chassis5", CRAY)
    assert part == tuple(f"cabinet1-chassis5-blade{blade}" for blade in range(15))
    both = ["all of cabinet1/chassis5", "cabinet1-chassis5-blade[14-14]", "cabinet0-chassis0-blade[1-2]"]
    assert nodes_of(both, CRAY) == (*part, "cabinet0-chassis0-blade1", "cabinet0-chassis0-blade2")
    refused(r"found the part 'cabinet9' \(nearest: cabinet[01]\); allowed: cabinet0, cabinet1",
            lambda: nodes_of("all of cabinet9", CRAY))  # fmt: skip
    for bad in ("", 3, [["a"]], None):
        refused("allowed: node", lambda bad=bad: nodes_of(bad, CRAY))


def test_descriptions_of_jobs():
    job = {"nodes": "all of cabinet0", "pattern": "store", "rate": "2 GB/s", "stores": "own", "restart": True}
    found = traffic_of(job, CRAY)
    assert found == Traffic(CRAY.within(("cabinet0",)), "store", 2e9, "own", True)
    assert traffic_of(found, CRAY) is found
    refused("allowed: a mapping with nodes", lambda: traffic_of("x", CRAY))
    refused("speed: unknown key", lambda: traffic_of({"speed": 1}, CRAY))
    refused("nodes: found None", lambda: traffic_of({"rate": 1}, CRAY))
    refused("restart: found 'no'", lambda: traffic_of({**job, "restart": "no"}, CRAY))
    refused("nodes: found 'nid7', which is not in the topology",
            lambda: traffic_of({**job, "nodes": "nid7"}, CRAY))  # fmt: skip
    refused("rate: found the unit 'Gb/s'; allowed: GB/s for bytes",
            lambda: traffic_of({**job, "rate": "2 Gb/s"}, CRAY))  # fmt: skip
