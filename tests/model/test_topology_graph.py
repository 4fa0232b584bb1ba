"""The network of a machine: what can be built, and what is refused."""

import pickle

import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.model.topology import LinkLevel, Topology, fat_tree, slurm_tree, xc30

ALL = "all-to-all"


def refused(match, make):
    with pytest.raises(InputError, match=match):
        make()


def lattice(*places, service=()):
    levels = (LinkLevel("cabinet", 1.0, ALL), LinkLevel("blade", 2.0, ALL))
    return Topology(levels, {"-".join(place): place for place in places}, service)


def test_a_cray_as_in_the_source():
    found = xc30()
    assert len(found.places) == 192 and len(found.nodes) == 188
    assert [level.name for level in found.lattice] == ["cabinet", "chassis", "blade"]
    assert [level.bandwidth for level in found.levels] == [12.5e9, 14e9, 14e9]
    assert found.service == tuple(
        f"cabinet{one}-{corner}" for one in (0, 1) for corner in ("chassis0-blade0", "chassis5-blade15")
    )
    assert found.places["cabinet1-chassis2-blade3"] == ("cabinet1", "chassis2", "blade3")
    assert found.smallest == 12.5e9
    assert len(xc30(service=False).nodes) == 192
    assert len(xc30(3, 1, 2, service=False).nodes) == 6
    refused("service nodes alone", lambda: xc30(1, 1, 1))
    refused("cabinets: found 0; allowed: 1 to 1,000,000", lambda: xc30(0))
    refused("blades: found 1.5", lambda: xc30(1, 1, 1.5))
    refused("at most 1,000,000", lambda: xc30(1000, 1000, 1000))


def test_parts_and_domains():
    found = xc30()
    assert len(found.within(("cabinet0",))) == 94
    assert len(found.within(("cabinet0", "chassis0"))) == 15, "a service blade is none for jobs"
    assert found.within(("cabinet0", "chassis9")) == ()
    assert {part: len(names) for part, names in found.domains().items()} == {"cabinet0": 94, "cabinet1": 94}
    found.insist_on(found.nodes, "")
    refused("nodes: found 'nid1', which is not in the topology", lambda: found.insist_on(["nid1"], "nodes"))
    refused("which is a service node; allowed: nodes for jobs", lambda: found.insist_on(found.service, ""))


def test_a_fat_tree_has_room_for_all_below_it_but_for_its_leaves():
    found = fat_tree(4, 3, bandwidth=10.0, oversubscription=2.0)
    assert [(level.name, level.bandwidth) for level in found.levels] == [
        ("switch1", 80.0), ("switch2", 20.0), ("node", 10.0),
    ]  # fmt: skip
    assert len(found.nodes) == 64 and not found.lattice
    assert found.places["node63"] == ("switch1-3", "switch2-3", "node63")
    assert [level.name for level in fat_tree(4, 1).levels] == ["node"]
    refused("oversubscription: found 0.5; allowed: 1 or more", lambda: fat_tree(oversubscription=0.5))
    refused("oversubscription: found inf", lambda: fat_tree(oversubscription=float("inf")))
    refused("at most 1,000,000", lambda: fat_tree(1000, 3))


def test_a_tree_of_what_slurm_says():
    places = {f"n{one}{two}": ("root", f"leaf{one}") for one in range(2) for two in range(4)}
    found = slurm_tree(places)
    # nothing has to leave the root; a leaf of 4 ports carries half of what they send
    assert [(one.name, one.bandwidth) for one in found.levels] == [("leaf", 25e9), ("node", 12.5e9)]
    assert found.places["n13"] == ("leaf1", "n13")
    given = slurm_tree(places, {"leaf": 7.0, "node": 2.0})
    assert [one.bandwidth for one in given.levels] == [7.0, 2.0]
    assert [one.bandwidth for one in slurm_tree(places, port=3.0, oversubscription=4.0).levels] == [3.0, 3.0]
    refused("bandwidths: found 'spine'; allowed: leaf, node", lambda: slurm_tree(places, {"spine": 1.0}))
    refused("port: found 0; allowed: bytes a second, more than 0", lambda: slurm_tree(places, port=0))
    refused("level leaf: bandwidth: found 0", lambda: slurm_tree(places, {"leaf": 0}))
    refused("topology: found '0 nodes'", lambda: slurm_tree({}))


def test_nodes_of_a_tree_may_be_at_any_depth():
    found = slurm_tree({"a": ("top", "one"), "b": ("top",), "c": ("top", "two")})
    assert found.places == {"a": ("one", "a"), "b": ("b", "b"), "c": ("two", "c")}
    assert [one.name for one in found.levels] == ["level1", "node"], "no name fits all"
    assert slurm_tree({"a": (), "b": ()}).places == {"a": ("a",), "b": ("b",)}
    same = slurm_tree({"a": ("r0", "c0"), "b": ("r1", "c0"), "c": ("r1", "c1")})
    assert [one.name for one in same.levels] == ["r", "c", "node"]


@pytest.mark.parametrize("bandwidth", [0, -1.0, float("nan"), float("inf"), "fast", None])
def test_links_carry_something(bandwidth):
    refused("level blade: bandwidth: found .*; allowed: bytes a second, more than 0",
            lambda: LinkLevel("blade", bandwidth))  # fmt: skip


def test_levels_are_sound():
    refused("level: found ''", lambda: LinkLevel("", 1.0))
    refused("level a: links: found 'ring'; allowed: all-to-all, tree", lambda: LinkLevel("a", 1.0, "ring"))
    one, other = LinkLevel("a", 1.0), LinkLevel("b", 1.0, ALL)
    refused("at least one level", lambda: Topology((), {"n": ()}))
    refused("1 to 1,000,000", lambda: Topology((one,), {}))
    refused("each name once", lambda: Topology((one, one), {"n": ("p", "n")}))
    refused("allowed: trees inside", lambda: Topology((one, other), {"n": ("p", "n")}))
    refused("node 'n': found .*; allowed: the names of its a", lambda: Topology((one,), {"n": ("p", "n")}))
    refused("node 'n'", lambda: Topology((one,), {"n": ("",)}))
    refused("service: found 'x'", lambda: Topology((one,), {"n": ("n",)}, ("x",)))
    refused("service nodes alone", lambda: Topology((one,), {"n": ("n",)}, ("n",)))
    Topology((other, one), {"n": ("p", "n")})


def test_a_lattice_is_whole_and_in_one_piece():
    whole = [("c0", "b0"), ("c0", "b1"), ("c1", "b0"), ("c1", "b1")]
    assert len(lattice(*whole).nodes) == 4
    refused("nothing at c1/b1; allowed: a node at each combination", lambda: lattice(*whole[:3]))
    refused("nothing joins c0/b0 with c1/b1: parts are joined where they have equal names",
            lambda: lattice(whole[0], whole[3]))  # fmt: skip


def test_equal_ones_are_the_same_to_a_cache_and_after_a_journey():
    one = xc30()
    assert one == xc30() and hash(one) == hash(xc30()) and one != xc30(1)
    assert pickle.loads(pickle.dumps(one)) == one
