"""Power sensors under /sys/class/hwmon, on a made-up tree."""

import pytest
from made_up_tree import MadeUpTree, denying

from dask_hpc.power.worker import meters
from dask_hpc.power.worker.meters import Hwmon


@pytest.fixture
def tree(tmp_path):
    return MadeUpTree(tmp_path)


def test_the_acpi_meter_is_the_node(tree):
    tree.sensor("hwmon0", "coretemp", temp1_input=40000)
    tree.sensor("hwmon1", "power_meter", power1_average=250_500_000, power1_accuracy="99.0%", power1_cap=1)
    (row,) = Hwmon(tree.root).sense(0, 0)
    assert (row.covers, row.watts, row.sensor) == ("node", 250.5, "power_meter power1")
    assert row.uncertainty == pytest.approx(250.5 * 0.99)


def test_now_is_better_than_an_average(tree):
    tree.sensor("hwmon0", "power_meter", power1_average=1_000_000, power1_input=3_000_000)
    assert Hwmon(tree.root).sense(0, 0)[0].watts == 3


def test_several_sensors_and_what_they_cover(tree):
    tree.sensor("hwmon0", "amdgpu", power1_average=30_000_000, power1_label="slowPPT")
    tree.sensor("hwmon1", "ina2xx", power1_input=5_000_000, power2_input=6_000_000, power2_label="rail")
    tree.sensor(
        "hwmon2", "corsairpsu", power1_input=100_000_000, power1_label="power total",
        power2_input=60_000_000, power2_label="power +12v",
    )  # fmt: skip
    rows = Hwmon(tree.root).sense(0, 0)
    assert [(row.sensor, row.covers, row.watts) for row in rows] == [
        ("amdgpu slowPPT", "gpu", 30),
        ("ina2xx power1", "other", 5),
        ("ina2xx rail", "other", 6),
        ("corsairpsu power total", "node", 100),
        ("corsairpsu power +12v", "other", 60),
    ]


@pytest.mark.parametrize("text, problem", [("0", "which cannot be"), ("-3", "cannot be"), ("x", "could not"),
                                           ("nan", "cannot be"), ("9e15", "cannot be")])  # fmt: skip
def test_what_cannot_be_is_not_believed(tree, text, problem):
    tree.sensor("hwmon0", "power_meter", power1_average=text)
    (row,) = Hwmon(tree.root).sense(0, 0)
    assert row.watts is None and problem in row.problem and row.covers == "node"


def test_no_rights(tree, monkeypatch):
    tree.sensor("hwmon0", "power_meter", power1_average=5)
    monkeypatch.setattr(meters, "read_text", denying("_average"))
    (row,) = Hwmon(tree.root).sense(0, 0)
    assert row.watts is None and row.problem.startswith("permission denied") and "chmod" in row.fix


def test_no_sensor(tree):
    assert "no such file" in Hwmon(tree.root).sense(0, 0)[0].problem
    tree.sensor("hwmon0", "coretemp", temp1_input=3)
    (tree.hwmon / "hwmon1").write_text("no directory")
    (row,) = Hwmon(tree.root).sense(0, 0)
    assert row.problem.startswith("no sensor of power")
