"""What joins the nodes of a machine, from a file: ready-made, a tree with what its links carry, or places."""

import pytest

from dask_hpc import InputError
from dask_hpc.model.topology import xc30
from dask_hpc.planning.topology_file import topology_from, topology_in, with_usual_bandwidths

TREE = "tree: {rack0: {sw0: 'n[0-3]', sw1: 'n[4-7]'}, rack1: {sw2: 'n[8-11]'}}\n"
SLURM = "SwitchName=root Switches=leaf[0-1]\nSwitchName=leaf0 Nodes=n[0-3]\nSwitchName=leaf1 Nodes=n[4-5]\n"


def bandwidths(read):
    return {level.name: level.bandwidth for level in read.topology.levels}


def test_a_tree_says_what_its_links_carry():
    read = topology_in(TREE + "bandwidths: {rack: 40 GB/s, node: 100 Gbit/s}\noversubscription: 4\n")
    # of a switch with four nodes the ports' 12.5 GB/s each, over 4
    assert bandwidths(read) == {"rack": 40e9, "sw": 12.5e9, "node": 12.5e9}
    assert read.assumed == ("sw",)
    assert read.places["n5"] == ("rack0", "sw1") and read.topology.places["n5"] == ("rack0", "sw1", "n5")


def test_a_port_is_as_good_a_word():
    read = topology_in(TREE + "port: 1 GB/s\nbandwidths: {rack: 3 GB/s, sw: 2 GB/s}")
    assert bandwidths(read) == {"rack": 3e9, "sw": 2e9, "node": 1e9} and read.assumed == ()


@pytest.mark.parametrize("text", ["a: [x, y]\nb: [z]\n", SLURM, SLURM.encode(), b"a: [x, y]\nb: [z]\n"])
def test_places_alone_have_usual_bandwidths(text):
    read = topology_in(text)
    assert set(read.assumed) == set(bandwidths(read)) and bandwidths(read)["node"] == 12.5e9
    assert read.topology == with_usual_bandwidths(read.places).topology


def test_the_root_of_slurm_stays_in_places_and_joins_nothing():
    read = topology_in(SLURM)
    assert read.places["n4"] == ("root", "leaf1") and read.topology.places["n4"] == ("leaf1", "n4")


def test_presets():
    assert topology_in("xc30").topology == topology_from("xc30").topology == xc30()
    read = topology_in("{preset: xc30, cabinets: 1, chassis: 2, blades: 2, service: false}")
    assert read.topology == xc30(1, 2, 2, service=False) and read.assumed == ()
    assert read.places["cabinet0-chassis1-blade0"] == ("cabinet0", "chassis1")
    tree = topology_in("{preset: fat-tree, arity: 4, levels: 2, port: 8 Gbit/s, oversubscription: 2}")
    assert list(bandwidths(tree).values()) == [2e9, 1e9] and len(tree.places) == 16


def test_levels_of_its_own():
    text = "tree: {c0: {b0: [a, b], b1: [c]}, c1: {b0: [d], b1: [e]}}\nlevels:\n"
    links = "links: all-to-all"
    read = topology_in(text + f"  c: {{bandwidth: 1 GB/s, {links}}}\n  b: {{bandwidth: 2 GB/s, {links}}}\n")
    assert read.assumed == () and bandwidths(read) == {"c": 1e9, "b": 2e9}
    # two nodes are at one place: none is a part by itself
    assert read.places["a"] == read.topology.around()["a"] == ("c0", "b0")
    assert xc30().around()["cabinet0-chassis1-blade3"] == ("cabinet0", "chassis1")


def test_nodes_of_presets_have_names():
    text = "{preset: xc30, cabinets: 2, chassis: 1, blades: 2, service: false, nodes: ['nid[08-10]', login]}"
    read = topology_in(text)
    assert list(read.places) == ["nid08", "nid09", "nid10", "login"]
    assert read.topology.places["login"] == ("cabinet1", "chassis0", "blade1")
    assert read.places["nid09"] == ("cabinet0", "chassis0")


def test_service_nodes_keep_their_names_and_have_no_place_for_jobs():
    read = topology_in("{preset: xc30, cabinets: 1, chassis: 2, blades: 2, nodes: 'n[0-1]'}")
    assert list(read.places) == ["n0", "n1"] and len(read.topology.places) == 4
    assert read.topology.service == ("cabinet0-chassis0-blade0", "cabinet0-chassis1-blade1")


def test_what_leads_to_the_store_is_no_place_for_jobs():
    read = topology_in("tree: {a: [x, y], b: [z]}\nservice: [y]\n")
    assert read.topology.service == ("y",) and set(read.places) == {"x", "z"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("xc3", "preset: found 'xc3'; allowed: xc30, fat-tree"),
        ("preset: 3", "preset: found 3; allowed: xc30, fat-tree"),
        ("{preset: xc30, service: 3}", "service: found 3; allowed: true, false"),
        ("{preset: xc30, tree: {a: [b]}}", "found .*; allowed: preset: xc30 or fat-tree, tree: "),
        ("{preset: xc30, arity: 3}", "arity: unknown key"),
        ("{preset: xc30, cabinets: 0}", "cabinets: found 0; allowed: 1 to"),
        ("{preset: xc30, nodes: 'n[0-3]'}", "nodes: found '4 names'; allowed: 188 different ones"),
        ("{preset: xc30, nodes: 3}", r"nodes: found 3; allowed: names of nodes: nid\[000-187\]"),
        ("{preset: xc30, nodes: 'n[0-'}", r"nodes: found 'n\[0-'; allowed: names of nodes"),
        ("{preset: fat-tree, port: 3 GB}", "port: found the unit 'GB' in '3 GB'"),
        ("{preset: fat-tree, port: 0}", "bandwidth: found 0.0"),
        ("tree: 3", "tree: found 3; allowed: parts with parts"),
        ("{tree: {a: [b]}, bandwidths: [3]}", r"bandwidths: found \[3\]"),
        ("{tree: {a: [b]}, bandwidths: {node: 0}}", "level node: bandwidth: found 0.0; allowed: bytes"),
        ("{tree: {a: [b], c: [d]}, bandwidths: {x: 1}}", "bandwidths: found 'x'; allowed: level1, node"),
        ("{tree: {a: [b]}, oversubscription: 0.5}", "oversubscription: found 0.5; allowed: 1 or more"),
        ("{}", "topology: found '0 nodes'"),
        ("[1, 2]", r"found \[1, 2\]"),
    ],
)
def test_bad_input(text, says):
    with pytest.raises(InputError, match=says) as found:
        topology_in(text)
    assert "\n" not in str(found.value)


def test_two_names_of_a_node_are_two_nodes_at_one_place():
    topology = topology_in(TREE).topology.renamed({"n0": ("a", "b"), "n1": ()})
    assert topology.places["a"] == topology.places["b"] == ("rack0", "sw0", "n0")
    assert "n0" not in topology.places and "n1" not in topology.places and "n2" in topology.places
