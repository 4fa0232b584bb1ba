"""Caps on a made-up powercap tree: only when asked, all or nothing, and taken back."""

import os
import subprocess
import sys

import pytest
from made_up_tree import MadeUpTree

from dask_hpc import InputError
from dask_hpc.power.worker import caps as module
from dask_hpc.power.worker.caps import CannotCap, PackageCaps, write_text

LIMIT = "constraint_0_power_limit_uw"


@pytest.fixture
def tree(tmp_path):
    tree = MadeUpTree(tmp_path)
    for package, limit in (("0", 200), ("1", 100)):
        tree.zone(f"intel-rapl:{package}", f"package-{package}", limits=[(limit, limit), (250, 250)])
        tree.zone(f"intel-rapl:{package}:0", "core", limits=[(10, 10)])
    tree.zone("intel-rapl:2", "psys", limits=[(500, 500)])
    tree.zone("intel-rapl-mmio:0", "package-0", limits=[(200, 200)])
    return tree


def limits(tree):
    return [int((tree.powercap / f"intel-rapl:{i}" / LIMIT).read_text()) / 1e6 for i in (0, 1)]


def caps_of(tree):
    return PackageCaps(tree.root, one=tree.root[-90:])


def test_a_cap_and_back(tree):
    caps = caps_of(tree)
    assert caps.why_not() == "" and caps.bounds() == pytest.approx((90, 300))
    assert limits(tree) == [200, 100]  # asking writes nothing
    caps.set(150)
    assert limits(tree) == [100, 50]
    caps.set(300)
    assert limits(tree) == [200, 100]
    caps.set(90)
    assert limits(tree) == [60, 30] and caps.bounds() == pytest.approx((90, 300))
    caps.close()
    caps.close()
    assert limits(tree) == [200, 100]
    others = [
        tree.powercap / zone / LIMIT for zone in ("intel-rapl:2", "intel-rapl-mmio:0", "intel-rapl:0:0")
    ]
    assert [float(path.read_text()) / 1e6 for path in others] == [500, 200, 10]


@pytest.mark.parametrize("watts", [0, 89, 301, -5, float("nan")])
def test_no_senseless_cap(tree, watts):
    caps = caps_of(tree)
    with pytest.raises(InputError, match="90 W to 300 W"):
        caps.set(watts)
    assert limits(tree) == [200, 100]


def test_a_lowest_limit_of_the_hardware_counts(tree):
    (tree.powercap / "intel-rapl:0/constraint_0_min_power_uw").write_text("120000000")
    assert caps_of(tree).bounds() == pytest.approx((150, 300))


def test_all_or_none(tree, monkeypatch):
    def write(path, text):
        if "intel-rapl:1/" in path and float(text) < 1e8:
            raise OSError(22, "Invalid argument")
        write_text(path, text)

    monkeypatch.setattr(module, "write_text", write)
    caps = caps_of(tree)
    with pytest.raises(CannotCap, match="invalid argument"):
        caps.set(150)
    assert limits(tree) == [200, 100]


def test_one_process_at_a_time(tree):
    first, second = caps_of(tree), caps_of(tree)
    first.set(150)
    with pytest.raises(CannotCap, match="another process"):
        second.set(100)
    second.close()
    assert limits(tree) == [100, 50]
    first.close()
    second.set(90)
    second.close()
    assert limits(tree) == [200, 100]


def test_no_right(tree, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may do anything
    caps = caps_of(tree)
    assert "permission denied (caps need root)" in caps.why_not()
    with pytest.raises(CannotCap):
        caps.set(150)
    assert limits(tree) == [200, 100]


def test_nothing_to_cap(tmp_path):
    tree = MadeUpTree(tmp_path)
    assert "no such file" in caps_of(tree).why_not()
    tree.zone("intel-rapl:0", "package-0")  # it counts, but has no limit
    assert "no package with a limit" in caps_of(tree).why_not()


def test_the_interpreter_takes_its_cap_back(tree):
    program = (
        f"from dask_hpc.power.worker.caps import PackageCaps; from pathlib import Path; root = {tree.root!r};"
        "PackageCaps(root, one=root[-90:]).set(90);"
        f"print(Path(root, 'sys/class/powercap/intel-rapl:0/{LIMIT}').read_text()); raise SystemExit(3)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "60000000\n"), done.stderr
    assert limits(tree) == [200, 100]
