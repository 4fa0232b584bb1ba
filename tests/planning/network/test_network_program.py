"""The linear programme against closed forms and against one that writes down every path."""

from itertools import product

import numpy as np
import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.model.topology import LinkLevel, Topology, fat_tree, xc30
from dask_hpc.planning.network import program
from dask_hpc.planning.network.commodities import Commodities
from dask_hpc.planning.network.demands import Traffic, demands
from dask_hpc.planning.network.graph import graph_of
from dask_hpc.planning.network.loads import load_of
from dask_hpc.planning.network.paths import Paths
from dask_hpc.planning.network.program import solve
from tests.planning.network.drawn_networks import best, draw, sent_by

#: what each ordered pair of blades can send in one cabinet: copper carries 14 GB/s for 1 + 15 of them
LARGEST = 14e9 / 16
WHOLE = xc30(service=False)
REAL = xc30()


def blades(topology, rule):
    """Compute blades by numbers of cabinet, chassis and blade."""
    names = product(range(2), range(6), range(16))
    found = (f"cabinet{c}-chassis{h}-blade{b}" for c, h, b in names if rule(c, h, b))
    return tuple(name for name in found if name not in topology.service)


def shares(topology, objective="sum", **jobs):
    found = solve(topology, jobs, objective)
    capacity = graph_of(topology).capacity
    assert (found.loads <= capacity * (1 + 1e-6)).all(), "no link carries more than it can"
    return found.thetas


def test_contiguous_applications_do_not_disturb_each_other():
    one, other = (blades(WHOLE, lambda c, h, b, who=who: c == who) for who in (0, 1))
    alone = shares(WHOLE, a=Traffic(one, rate=2 * LARGEST))
    assert alone["a"] == pytest.approx(0.5, abs=1e-6)
    both = shares(WHOLE, a=Traffic(one, rate=LARGEST), b=Traffic(other, rate=LARGEST))
    assert both == pytest.approx({"a": 1.0, "b": 1.0}, abs=1e-6)
    loads = solve(WHOLE, {"a": Traffic(one, rate=LARGEST)}).loads
    graph = graph_of(WHOLE)
    assert graph.lattice_links(loads, 1).max() == pytest.approx(14e9)


@pytest.mark.parametrize(
    ("rule", "links"),
    [
        (lambda c, h, b: h % 2 == 0, 48),
        (lambda c, h, b: b % 2 == 0, 48),
        (lambda c, h, b: (h + c) % 2 == 0, 96),
        (lambda c, h, b: (h + b + c) % 2 == 0, 96),
    ],
)
def test_pieces_send_over_their_own_optical_links(rule, links):
    """Half of an application in each cabinet: 48 times 48 pairs each way over so many links of 12.5 GB/s."""
    job = Traffic(blades(WHOLE, rule), rate=LARGEST)
    share = links * 12.5e9 / (48**2 * LARGEST)
    assert shares(WHOLE, a=job)["a"] == pytest.approx(share, abs=1e-6)
    # two of them share all links, or have each their own half: it comes to the same
    other = Traffic(blades(WHOLE, lambda c, h, b: not rule(c, h, b)), rate=LARGEST)
    half = 48 * 12.5e9 / (48**2 * LARGEST)
    assert shares(WHOLE, "min", a=job, b=other) == pytest.approx({"a": half, "b": half}, abs=1e-6)
    assert sum(shares(WHOLE, a=job, b=other).values()) == pytest.approx(2 * half, abs=1e-6)


def test_service_blades_left_out_leave_more_for_each():
    for rule, share in ((lambda c, h, b: h % 2 == 0, 0.3104), (lambda c, h, b: (h + c) % 2 == 0, 0.6208)):
        found = shares(REAL, a=Traffic(blades(REAL, rule), rate=LARGEST))
        assert found["a"] == pytest.approx(share, abs=5e-5)


def test_checkpoints_of_a_cabinet_wait_at_the_service_blades():
    """Into each lead 15 backplane and 5 copper links from its own cabinet, and an optical one."""
    job = blades(REAL, lambda c, h, b: c == 0)
    own = shares(REAL, a=Traffic(job, "store", stores="own"))["a"]
    assert own == pytest.approx(20 * 14e9 / (94 * 12.5e9 / 2), abs=1e-6)
    any_of_them = shares(REAL, a=Traffic(job, "store"))["a"]
    assert any_of_them == pytest.approx(20 * 14e9 / (94 * 12.5e9 / 4), abs=1e-6)
    back = shares(REAL, a=Traffic(job, "store", restart=True))["a"]
    assert back == pytest.approx(any_of_them, abs=1e-6)
    assert shares(REAL, a=Traffic(job, "partner"))["a"] == pytest.approx(1.0)
    assert shares(REAL, a=Traffic(job, "partner", 2 * 12.5e9))["a"] == pytest.approx(0.5)


def test_a_tree_needs_no_path_variables():
    tree = fat_tree(4, 2, bandwidth=1.0, oversubscription=2.0)
    nodes = tuple(f"node{number}" for number in range(8))
    found = solve(tree, {"a": Traffic(nodes, rate=1.0)})
    # 4 nodes of a switch send to 4 others each, over an uplink of 2
    assert found.thetas["a"] == pytest.approx(2 / 16) and found.variables == 0


@pytest.mark.parametrize("objective", ["sum", "min"])
@pytest.mark.parametrize("seed", range(25))
def test_as_good_as_with_every_path_written_down(seed, objective):
    topology, jobs = draw(seed)
    ours, expected = solve(topology, jobs, objective), best(topology, jobs, objective)
    assert sum(ours.thetas.values()) == pytest.approx(sum(expected.values()), abs=1e-6)
    if objective == "min":
        assert min(ours.thetas.values()) == pytest.approx(min(expected.values()), abs=1e-6)
    assert (ours.loads <= graph_of(topology).capacity * (1 + 1e-6)).all()
    assert all(0 <= share <= 1 for share in ours.thetas.values())


@pytest.mark.parametrize("seed", range(25))
def test_links_that_are_looked_at_later_change_nothing(seed, monkeypatch):
    """From the first all links, or those alone that even division overfills."""
    topology, jobs = draw(seed)
    usual = solve(topology, jobs, "min")
    for first in (0.0, 0.999):
        monkeypatch.setattr(program, "_HALF", first)
        found = solve(topology, jobs, "min")
        assert sum(found.thetas.values()) == pytest.approx(sum(usual.thetas.values()), abs=1e-6)
        assert (found.loads <= graph_of(topology).capacity * (1 + 1e-6)).all()


def test_where_nothing_can_be_full_all_is_divided_evenly():
    topology, jobs = draw(8)
    calm = {name: Traffic(job.nodes, job.pattern, 1e-3) for name, job in jobs.items()}
    found = solve(topology, calm)
    assert found.variables == 0 and set(found.thetas.values()) == {1.0}
    assert found.loads == pytest.approx(sum(load_of(topology, job) for job in calm.values()))


def test_paths_that_need_more_of_what_may_be_full_are_no_option():
    """What crosses cabinets does so once, at one of four places, however it gets there; so if optical links
    alone can be full, six paths are four options."""
    topology = xc30(2, 2, 2, service=False)
    job = Traffic(topology.nodes, rate=1.0)
    graph = graph_of(topology)
    paths = Paths(graph, {"a": demands(graph, job)})
    only = np.zeros(len(paths.capacity), bool)
    assert len(Commodities(paths, only, 1).commodity) == 0
    # where all values are alike so are all orders of changes
    everything = Commodities(paths, ~only, 1)
    assert len(paths.capacity) == 3 and len(everything.commodity) == 0
    assert (everything.direct[:, 0] == [32, 32, 32]).all(), "8 times 4 pairs differ in each coordinate"
    apart = {"a": demands(graph, Traffic(topology.nodes[:1] + topology.nodes[-1:], rate=1.0))}
    paths = Paths(graph, apart)
    optical = np.zeros(len(paths.capacity), bool)
    optical[: 2 * 2 * 2 * 2] = True
    found = Commodities(paths, optical, 1)
    assert len(found.demand) == 2 and list(np.bincount(found.commodity)) == [4, 4]
    assert (np.sort(found.links, 1)[:, :2] == -1).all() and not found.direct.any()


def test_loads_are_those_of_the_shares():
    """Each pair crosses a level once where it differs in it, whatever the division."""
    topology, jobs = draw(8)
    found = solve(topology, jobs, "min")
    graph = graph_of(topology)
    for at in range(len(graph.shape)):
        crossed = 0.0
        for name, job in jobs.items():
            crossed += found.thetas[name] * sum(
                rate
                for (one, other), rate in sent_by(topology, job).items()
                if topology.places[one][at] != topology.places[other][at]
            )
        assert np.nansum(graph.lattice_links(found.loads, at)) == pytest.approx(crossed, rel=1e-6)


def test_demands_of_nothing_are_met():
    nodes = tuple(WHOLE.nodes[:4])
    jobs = {"silent": Traffic(nodes, rate=0.0), "loud": Traffic(nodes, rate=1e12)}
    assert shares(WHOLE, **jobs)["silent"] == pytest.approx(1.0)
    assert shares(WHOLE, "min", **jobs)["silent"] == pytest.approx(1.0)
    assert shares(WHOLE) == {}


def test_what_is_too_large_is_not_begun(monkeypatch):
    topology, jobs = draw(8)
    monkeypatch.setattr(program, "_MOST_VARIABLES", 1)
    assert solve(topology, jobs) is None
    monkeypatch.setattr(program, "_MOST_KINDS", 1)
    assert solve(topology, jobs) is None
    with pytest.raises(InputError, match="objective: found 'most'; allowed: sum, min"):
        solve(topology, jobs, "most")


def test_a_single_router_is_no_lattice():
    levels = (LinkLevel("cabinet", 1.0, "all-to-all"), LinkLevel("node", 3.0))
    one = Topology(levels, {name: ("cabinet0", name) for name in "abc"})
    assert shares(one, a=Traffic(("a", "b", "c"), rate=3.0))["a"] == pytest.approx(0.5)


@pytest.mark.slow
def test_two_thousand_endpoints_with_nothing_in_common():
    """Eight on each of 256 blades, dealt at random: one blade is one endpoint, and what is left is solved."""
    machine = xc30(2, 8, 16)
    places = {f"{name}-{one}": place for name, place in machine.places.items() for one in range(8)}
    topology = Topology(machine.levels, places)
    dealt = [str(name) for name in np.random.default_rng(0).permutation(topology.nodes)]
    jobs = {f"job{at}": Traffic(tuple(dealt[500 * at : 500 * at + 500]), rate=20e6) for at in range(4)}
    found = solve(topology, jobs)
    # each sends 1/4 over optical links each way: 128 of 12.5 GB/s for 4 times about 250 times 250 pairs
    pairs = sum(
        sum(topology.places[name][0] == "cabinet0" for name in job.nodes)
        * sum(topology.places[name][0] == "cabinet1" for name in job.nodes)
        for job in jobs.values()
    )
    assert sum(found.thetas.values()) == pytest.approx(4 * 128 * 12.5e9 / (pairs * 20e6), rel=0.01)
