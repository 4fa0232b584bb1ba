"""The best of what a node's sensors say, and never a part of it as if it were all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_tree import SPAN, MadeUpTree, denying

from dask_hpc.power.model import PowerModel
from dask_hpc.power.worker import meters
from dask_hpc.power.worker.meters import Hwmon, Rapl
from dask_hpc.power.worker.node_meter import NodeMeter, ThisNode
from dask_hpc.power.worker.sensors import SensorRow

MODEL = PowerModel(100, 400, 20, 80)
REST, MEMORY = 0.21 * 400, 0.18 * 400


class Says:
    """A meter that says this."""

    def __init__(self, *rows):
        self.rows = list(rows)

    def sense(self, now, use):
        return self.rows


def row(covers, watts, doubt=0.0, **more):
    return SensorRow("test", covers, covers, watts, doubt, **more)


def read(*rows, use=0.5):
    return NodeMeter(MODEL, [Says(*rows)]).read(7.0, use)


def test_nothing_is_modelled():
    for found in (read(), read(row("processor", None, problem="no rights"))):
        assert (found.time, found.source) == (7.0, "modelled")
        assert (found.watts, found.uncertainty) == (250, 50) and found.used == ()
    assert found.problem == "test: no rights" and found.idle == 100


def test_a_sensor_of_the_node_is_measured():
    found = read(row("processor", 100, 5), row("node", 300, 15), row("memory", None, problem="x"))
    assert found.source == "measured"
    assert (found.watts, found.uncertainty) == (300, 15)
    assert found.used == ("test node",) and found.problem == ""


def test_a_node_that_needs_less_than_its_parts_is_not_believed():
    found = read(row("node", 50, 1), row("processor", 100, 5), row("memory", 20, 0))
    assert found.source == "estimated"
    assert found.problem == "test: node says 50 W for the node, its parts alone use 120 W"


def test_parts_and_the_model_for_the_rest():
    found = read(row("processor", 100, 5), row("processor", 60, 5), row("memory", 20, 4), row("gpu", 70, 3))
    assert found.source == "estimated" and len(found.used) == 4
    assert found.watts == pytest.approx(250 + REST)
    assert found.uncertainty == pytest.approx((25 + 25 + 16 + 9 + (REST / 2) ** 2) ** 0.5)


def test_memory_without_a_counter_is_part_of_the_rest():
    for rows in ([], [row("memory", None, problem="x"), row("memory", 20)]):
        found = read(row("processor", 100, 5), *rows)
        assert found.watts == pytest.approx(100 + REST + MEMORY)
        assert found.used == ("test processor",)


def test_what_a_package_counts_is_not_added():
    found = read(row("processor", 100), row("other", 60, within="package-0"), row("memory", 10))
    assert found.watts == pytest.approx(110 + REST)
    twice = read(row("processor", 100), row("processor", 100, within="package-0"), row("memory", 10))
    assert twice.watts == found.watts


def test_one_package_that_is_not_known_makes_all_modelled():
    found = read(row("processor", 100), row("processor", None, problem="it has disappeared"))
    assert found.source == "modelled" and found.watts == 250
    assert found.problem == "test: it has disappeared"


def test_gpus_are_added_to_the_model():
    found = read(row("gpu", 300, 15))
    assert found.source == "estimated" and found.watts == 550
    assert found.uncertainty == pytest.approx((50**2 + 15**2) ** 0.5)


def test_idle_power_is_learnt_from_idle_moments():
    says = Says(row("node", 300))
    meter = NodeMeter(MODEL, [says])
    assert meter.read(0, 0.9).idle == 100  # nothing better is known
    for now in range(50):
        says.rows = [row("node", 140)]
        idle = meter.read(now, 0.01).idle
    says.rows = [row("node", 300)]
    assert idle == pytest.approx(140) and meter.read(60, 0.9).idle == idle
    says.rows = [row("node", 50)]
    assert meter.read(61, 0.9).idle == 50  # never more than there is


def test_a_meter_that_fails_is_told():
    class Fails:
        def sense(self, now, use):
            raise RuntimeError("boom")

    found = NodeMeter(MODEL, [Fails(), Says(row("node", 200))]).read(0, 0)
    assert found.watts == 200 and found.rows[0].problem == "RuntimeError: boom"


rows = st.builds(
    row,
    st.sampled_from(["node", "processor", "memory", "gpu", "other"]),
    st.none() | st.floats(0.1, 1e4),
    st.floats(0, 100),
    within=st.sampled_from(["", "", "package-0"]),
)


@given(st.lists(rows, max_size=8), st.floats(0, 1))
def test_a_node_never_needs_less_than_its_known_processors(sensed, use):
    found = read(*sensed, use=use)
    parts = [r for r in sensed if r.covers == "processor" and not r.within]
    if found.source != "modelled" and parts and all(r.watts is not None for r in parts):
        assert found.watts >= 0.9 * sum(r.watts for r in parts) - 1e-6
    assert found.uncertainty >= 0 and 0 <= found.idle <= found.watts
    assert (found.source == "modelled") == (not found.used)


def test_a_machine_through_its_troubles(tmp_path, monkeypatch):
    """One made-up machine whose counters come, wrap, are lost and freeze: at every step what is right."""
    tree = MadeUpTree(tmp_path)
    denied = []
    monkeypatch.setattr(meters, "read_text", lambda path: denying(*denied)(path))
    meter = NodeMeter(MODEL, [Rapl(tree.root), Hwmon(tree.root)])
    assert meter.read(0, 0.5).source == "modelled"
    tree.zone("intel-rapl:0", "package-0", SPAN - 50)
    tree.zone("intel-rapl:0:0", "dram", 0)
    assert meter.read(1, 0.5).source == "modelled"
    tree.count("intel-rapl:0", SPAN + 50)
    tree.count("intel-rapl:0:0", 10)
    found = meter.read(2, 0.5)
    assert found.watts == pytest.approx(110 + REST, abs=1e-4) and found.source == "estimated"
    assert "hwmon: no such file" in found.problem
    found = meter.read(1000, 0.5)
    assert found.source == "modelled" and "wrapped more than once" in found.problem
    denied.append("energy_uj")
    assert "permission denied" in meter.read(1001, 0.5).problem
    tree.sensor("hwmon0", "power_meter", power1_average=210_000_000, power1_accuracy="2.5%")
    found = meter.read(1002, 0.5)
    assert (found.watts, found.uncertainty) == (210, 5.25)
    assert found.source == "measured" and found.used == ("hwmon power_meter power1",)
    (tree.hwmon / "hwmon0/power1_average").write_text("0")
    found = meter.read(1003, 0.5)
    assert found.source == "modelled" and "says 0 W, which cannot be" in found.problem


def test_this_machine_has_a_power(tmp_path):
    node = ThisNode(str(tmp_path), [(0, 50), (1, 150)])
    busy, found = node.sample(0)
    node.close()
    assert found.watts >= 50 + 100 * busy.use and {row.meter for row in found.rows} >= {
        "rapl",
        "nvml",
    }
    assert ThisNode(sensors=False).sample(0)[1].rows == ()
