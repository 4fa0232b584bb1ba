"""RAPL on a made-up powercap tree: what goes wrong on real machines is said, and is never little power."""

import pytest
from made_up_tree import SPAN, MadeUpTree, denying

from dask_hpc.power.worker import meters
from dask_hpc.power.worker.meters import Rapl


@pytest.fixture
def tree(tmp_path):
    return MadeUpTree(tmp_path)


def by_sensor(rows):
    return {row.sensor: row for row in rows}


def test_two_packages_with_parts(tree):
    for package in (0, 1):
        tree.zone(f"intel-rapl:{package}", f"package-{package}", 10)
        tree.zone(f"intel-rapl:{package}:0", "core", 5)
        tree.zone(f"intel-rapl:{package}:1", "dram", 2)
    tree.zone("intel-rapl:2", "psys", 100)
    rapl = Rapl(tree.root)
    assert all(row.watts is None and "first look" in row.problem for row in rapl.sense(0, 0.5))
    for package in (0, 1):
        tree.count(f"intel-rapl:{package}", 10 + 200)
        tree.count(f"intel-rapl:{package}:0", 5 + 120)
        tree.count(f"intel-rapl:{package}:1", 2 + 30)
    tree.count("intel-rapl:2", 100 + 800)
    rows = by_sensor(rapl.sense(2.0, 0.5))
    assert list(rows) == [
        "package-0", "package-0 core", "package-0 dram",
        "package-1", "package-1 core", "package-1 dram", "psys",
    ]  # fmt: skip
    assert [round(row.watts, 6) for row in rows.values()] == [100, 60, 15, 100, 60, 15, 400]
    assert [row.covers for row in rows.values()] == ["processor", "other", "memory"] * 2 + ["node"]
    assert [row.within for row in rows.values()] == ["", "package-0", "", "", "package-1", "", ""]
    assert rows["package-0"].uncertainty == pytest.approx(5)
    assert not any(row.problem for row in rows.values())


def test_a_package_shown_twice_counts_once(tree):
    tree.zone("intel-rapl-mmio:0", "package-0")
    rapl = Rapl(tree.root)
    assert [(row.sensor, row.within) for row in rapl.sense(0, 0)] == [("package-0 (mmio)", "")]
    tree.zone("intel-rapl:0", "package-0")  # its driver comes later
    assert {row.sensor: row.within for row in rapl.sense(1, 0)} == {
        "package-0": "",
        "package-0 (mmio)": "package-0",
    }


def test_a_wrap(tree):
    tree.zone("intel-rapl:0", "package-0", SPAN - 30)
    rapl = Rapl(tree.root)
    rapl.sense(0, 1)
    tree.count("intel-rapl:0", SPAN + 70)
    (row,) = rapl.sense(1, 1)
    assert row.watts == pytest.approx(100, abs=1e-5)


@pytest.mark.parametrize("limits, seconds", [((), 400), (((300, 300), (360, 0)), 900)])
def test_several_wraps_are_unknown(tree, limits, seconds):
    """The default bound of 1000 W, or half more than the limits, could have wrapped twice meanwhile."""
    tree.zone("intel-rapl:0", "package-0", limits=limits)
    rapl = Rapl(tree.root)
    rapl.sense(0, 1)
    tree.count("intel-rapl:0", SPAN + 20_000)
    (row,) = rapl.sense(seconds, 1)
    assert row.watts is None and "wrapped more than once" in row.problem
    tree.count("intel-rapl:0", SPAN + 20_150)
    (row,) = rapl.sense(seconds + 1, 1)
    assert row.watts == pytest.approx(150, abs=1e-5)


def test_limits_say_what_is_plausible(tree):
    tree.zone("intel-rapl:0", "package-0", limits=[(100, 200), (120, 240)])
    rapl = Rapl(tree.root)
    rapl.sense(0, 1)
    tree.count("intel-rapl:0", 0.9 * 360 * 600)  # less than 1.5 x 240 W for ten minutes
    (row,) = rapl.sense(600, 1)
    assert row.watts == pytest.approx(324, abs=1e-5)
    tree.count("intel-rapl:0", 0.9 * 360 * 600 + 361)
    assert "jumped" in rapl.sense(601, 1)[0].problem


def test_a_counter_that_was_set_back_is_no_wrap(tree):
    tree.zone("intel-rapl:0", "package-0", 5000)
    rapl = Rapl(tree.root)
    rapl.sense(0, 1)
    tree.count("intel-rapl:0", 0)
    (row,) = rapl.sense(1, 1)
    assert row.watts is None and "set back" in row.problem
    tree.count("intel-rapl:0", 90)
    assert rapl.sense(2, 1)[0].watts == pytest.approx(90)


def test_no_rights(tree, monkeypatch):
    tree.zone("intel-rapl:0", "package-0")
    tree.zone("intel-rapl:0:0", "dram")
    monkeypatch.setattr(meters, "read_text", denying("energy_uj"))
    rapl = Rapl(tree.root)
    for now in (0, 1):
        rows = rapl.sense(now, 1)
        assert [row.covers for row in rows] == ["processor", "memory"]
        assert all(row.watts is None and row.problem.startswith("permission denied: /") for row in rows)
        assert "chmod a+r" in rows[0].fix and tree.root in rows[0].fix


def test_rights_that_come_and_go(tree, monkeypatch):
    tree.zone("intel-rapl:0", "package-0")
    denied = []
    monkeypatch.setattr(meters, "read_text", lambda path: denying(*denied)(path))
    rapl = Rapl(tree.root)
    rapl.sense(0, 1)
    denied.append("energy_uj")
    tree.count("intel-rapl:0", 100)
    assert "permission denied" in rapl.sense(1, 1)[0].problem
    denied.clear()
    tree.count("intel-rapl:0", 900)
    assert "first look" in rapl.sense(2, 1)[0].problem  # and not 900 W, or 800
    tree.count("intel-rapl:0", 1000)
    assert rapl.sense(3, 1)[0].watts == pytest.approx(100)


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1e400", "-5"])
def test_nonsense_in_the_file(tree, text):
    path = tree.zone("intel-rapl:0", "package-0", 100)
    rapl = Rapl(tree.root)
    rapl.sense(0, 1)
    (path / "energy_uj").write_text(text)
    (row,) = rapl.sense(1, 1)
    assert row.watts is None and row.problem
    for now, joules in ((2, 300), (3, 400)):
        tree.count("intel-rapl:0", joules)
        (row,) = rapl.sense(now, 1)
    assert row.watts == pytest.approx(100)


def test_a_directory_in_place_of_a_file(tree):
    path = tree.zone("intel-rapl:0", "package-0")
    (path / "energy_uj").unlink()
    (path / "energy_uj").mkdir()
    (row,) = Rapl(tree.root).sense(0, 1)
    assert row.watts is None and row.problem.startswith("is a directory")


def test_a_frozen_counter(tree):
    tree.zone("intel-rapl:0", "package-0", 1234)
    rapl = Rapl(tree.root)
    rapl.sense(0, 1)
    problems = [rapl.sense(now, 0.9)[0] for now in (1, 2, 3, 4)]
    assert all(row.watts is None for row in problems)  # a package never needs 0 W
    assert [row.problem for row in problems] == [
        "it has not changed for 1 s",
        "it has not changed for 2 s",
        "frozen: it has not changed for 3 s while the processors worked",
        "frozen: it has not changed for 4 s while the processors worked",
    ]
    tree.count("intel-rapl:0", 1234 + 80)
    assert rapl.sense(5, 0.9)[0].watts == pytest.approx(80)
    assert "frozen" not in rapl.sense(60, 0.0)[0].problem  # nothing worked


def test_zones_appear_and_disappear(tree):
    tree.zone("intel-rapl:0", "package-0")
    rapl = Rapl(tree.root)
    rapl.sense(0, 1)
    tree.zone("intel-rapl:1", "package-1")
    tree.zone("intel-rapl:1:0", "core")
    tree.count("intel-rapl:0", 50)
    rows = by_sensor(rapl.sense(1, 1))
    assert rows["package-0"].watts == pytest.approx(50) and rows["package-1"].watts is None
    tree.count("intel-rapl:0", 100)
    tree.count("intel-rapl:1", 70)
    assert [r.watts for r in rapl.sense(2, 1) if r.covers == "processor"] == pytest.approx([50, 70])
    tree.remove("intel-rapl:1:0")
    tree.remove("intel-rapl:1")
    tree.count("intel-rapl:0", 150)
    for now in (3, 4):
        tree.count("intel-rapl:0", now * 50)
        rows = by_sensor(rapl.sense(now, 1))
        assert list(rows) == ["package-0", "package-1"]  # its cores are not missed, it is
        assert rows["package-1"].problem == "it has disappeared" and rows["package-1"].watts is None
    tree.zone("intel-rapl:1", "package-1", 9999)
    assert "first look" in by_sensor(rapl.sense(5, 1))["package-1"].problem
    tree.count("intel-rapl:1", 9999 + 30)
    assert by_sensor(rapl.sense(6, 1))["package-1"].watts == pytest.approx(30)


def test_a_package_that_comes_back_elsewhere_is_not_missed(tree):
    tree.zone("intel-rapl:1", "package-0")
    rapl = Rapl(tree.root)
    rapl.sense(0, 1)
    tree.remove("intel-rapl:1")
    assert [row.problem for row in rapl.sense(1, 1)] == ["it has disappeared"]
    tree.zone("intel-rapl:0", "package-0")
    assert [row.sensor for row in rapl.sense(2, 1)] == ["package-0"]


def test_the_whole_tree_disappears(tree):
    tree.zone("intel-rapl:0", "package-0")
    rapl = Rapl(tree.root)
    rapl.sense(0, 1)
    tree.powercap.rename(tree.powercap.with_name("gone"))
    for now in (1, 2):
        (row,) = rapl.sense(now, 1)
        assert row.problem == "it has disappeared" and row.covers == "processor"


def test_no_tree(tree):
    (row,) = Rapl(tree.root).sense(0, 1)
    assert row.problem.startswith("no such file") and "modprobe" in row.fix
    (tree.powercap / "intel-rapl").mkdir(parents=True)
    (tree.powercap / "dtpm:0").mkdir()  # counts no energy
    (row,) = Rapl(tree.root).sense(0, 1)
    assert row.problem.startswith("no zone with a counter")


def test_two_looks_at_once_are_one(tree):
    tree.zone("intel-rapl:0", "package-0")
    rapl = Rapl(tree.root)
    rapl.sense(0, 1)
    tree.count("intel-rapl:0", 100)
    first = rapl.sense(1, 1)
    tree.count("intel-rapl:0", 101)
    assert rapl.sense(1.001, 1) == first
    tree.count("intel-rapl:0", 200)
    assert rapl.sense(2, 1)[0].watts == pytest.approx(100)
