"""A node's cap becomes its packages', and is let go, on a made-up powercap tree."""

import pytest
from made_up_tree import MadeUpTree

from dask_hpc.power.model import PowerModel
from dask_hpc.power.worker.caps import NodeCap, PackageCaps
from dask_hpc.power.worker.meters import Rapl
from dask_hpc.power.worker.node_meter import NodeMeter

LIMIT = "intel-rapl:0/constraint_0_power_limit_uw"


class Node:
    """One package of 200 W at most, of which 120 W are used; the rest of the node draws what a model says."""

    def __init__(self, path):
        self.tree = MadeUpTree(path)
        self.tree.zone("intel-rapl:0", "package-0", limits=[(200, 200)])
        self.meter = NodeMeter(PowerModel(50, 100, 0, 0), [Rapl(self.tree.root)])
        self.now = self.joules = 0.0
        self.rest = 0.39 * 100

    def power(self, watts=120.0):
        self.now += 1
        self.joules += watts
        self.tree.count("intel-rapl:0", self.joules)
        return self.meter.read(self.now, 0.5)

    def limit(self):
        return float((self.tree.powercap / LIMIT).read_text()) / 1e6

    def cap(self):
        return NodeCap(caps=PackageCaps(self.tree.root, one=self.tree.root[-90:]))


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_the_packages_get_what_the_rest_leaves(node):
    cap = node.cap()
    cap.follow(None, node.power())
    assert cap.bounds is None  # nothing is known after one look
    cap.follow(None, node.power())
    assert cap.bounds == pytest.approx((60 + node.rest, 200 + node.rest)) and node.limit() == 200
    cap.follow(150.0, node.power())
    assert node.limit() == pytest.approx(150 - node.rest) and cap.watts == pytest.approx(150)
    cap.follow(100.0, node.power(90))
    assert node.limit() == pytest.approx(100 - node.rest)
    assert cap.bounds == pytest.approx((60 + node.rest, 200 + node.rest))
    cap.follow(None, node.power())
    assert node.limit() == 200 and cap.watts is None
    cap.close()


def test_what_cannot_be_is_done_as_far_as_it_can(node):
    cap = node.cap()
    node.power()
    cap.follow(10.0, node.power())
    assert node.limit() == pytest.approx(60) and cap.watts == pytest.approx(60 + node.rest)
    cap.follow(1e6, node.power())
    assert node.limit() == 200
    cap.close()


def test_a_cap_stays_when_the_counter_is_lost_and_can_still_be_let_go(node):
    cap = node.cap()
    node.power()
    cap.follow(150.0, node.power())
    (node.tree.powercap / "intel-rapl:0/energy_uj").write_text("nonsense")
    lost = node.meter.read(node.now + 1, 0.5)
    cap.follow(150.0, lost)
    assert node.limit() < 200 and cap.watts == pytest.approx(150) and cap.bounds is None
    cap.follow(None, lost)
    assert node.limit() == 200 and cap.watts is None


def test_one_worker_of_a_machine_caps_and_another_takes_over(node):
    one, other = node.cap(), node.cap()
    node.power()
    power = node.power()
    one.follow(150.0, power)
    other.follow(150.0, power)
    assert other.watts is None and other.bounds is None and one.watts == pytest.approx(150)
    one.close()
    assert node.limit() == 200
    other.follow(140.0, node.power())
    assert other.watts == pytest.approx(140)
    other.close()
    assert node.limit() == 200
