"""Managers and results show themselves as a control room, or as text; whatever fails, the cell goes on."""

import logging
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from distributed import Client, LocalCluster

import dask_hpc
from dask_hpc import display
from dask_hpc.display import mimebundle

VIEW = "application/vnd.jupyter.widget-view+json"
needs_widgets = pytest.mark.skipif(find_spec("anywidget") is None, reason="needs the extra widgets")


@pytest.fixture(scope="module")
def result():
    return dask_hpc.simulate("builtin:esp", policy="elastic", allotments=True)


@pytest.fixture
def offered(monkeypatch):
    """Let this be the display of every class."""

    def offer(*found):
        monkeypatch.setattr(display, "entry_points", lambda **wanted: found)

    return offer


class Point(SimpleNamespace):
    """An entry point that loads what it is given, or fails with it."""

    def load(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def test_both_classes_are_registered():
    found = {point.name: point.value for point in entry_points(group="dask_hpc.displays")}
    assert found["Manager"] == "dask_hpc_widgets:control_room_of"
    assert found["Result"] == "dask_hpc_widgets:ControlRoom"


@needs_widgets
def test_a_result_is_a_control_room(result):
    bundle = result._repr_mimebundle_()
    assert VIEW in bundle
    assert bundle["text/plain"] == repr(result)
    assert "jobs" in bundle["text/html"]


@needs_widgets
def test_a_manager_is_one_control_room_until_it_is_closed():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=0
        ) as cluster,
        Client(cluster) as client,
    ):
        manager = dask_hpc.manage(client, policy="fcfs")
        first, second = manager._repr_mimebundle_(), manager._repr_mimebundle_()
        assert first[VIEW]["model_id"] == second[VIEW]["model_id"]
        vars(manager)["control_room"].close()
        assert manager._repr_mimebundle_()[VIEW]["model_id"] != first[VIEW]["model_id"]
        vars(manager)["control_room"].close()
        manager.close()
        assert manager._repr_mimebundle_() is None
        assert "closed" in repr(manager)


def test_a_large_result_is_text(result, monkeypatch, offered):
    offered(Point(name="Result", found=lambda shown: pytest.fail("it was shown")))
    monkeypatch.setattr("dask_hpc.simulator.result._MOST_SHOWN", 10)
    assert result._repr_mimebundle_() is None


def test_nobody_offers_a_display(offered):
    offered()
    assert mimebundle(object()) is None


def test_without_the_extra_it_is_text(offered, caplog):
    offered(Point(name="x", found=ModuleNotFoundError("No module named 'anywidget'")))
    assert mimebundle(object()) is None
    assert caplog.records == []


def test_the_next_one_is_asked(offered):
    shown = SimpleNamespace(_repr_mimebundle_=lambda **_: {"text/plain": "shown"})
    offered(Point(name="x", found=ImportError()), Point(name="x", found=lambda _: shown))
    assert mimebundle(object()) == {"text/plain": "shown"}


def test_a_display_that_fails_is_logged_and_the_cell_goes_on(offered, caplog):
    def broken(shown):
        raise ZeroDivisionError("in the display")

    offered(Point(name="x", found=broken))
    with caplog.at_level(logging.ERROR, logger="dask_hpc.display"):
        assert mimebundle(object()) is None
    (record,) = caplog.records
    assert "object cannot be shown" in record.getMessage()


def test_what_a_front_end_includes_is_passed_on(offered):
    asked = {}
    shown = SimpleNamespace(_repr_mimebundle_=lambda **kwargs: asked.update(kwargs))
    offered(Point(name="x", found=lambda _: shown))
    mimebundle(object(), include={"text/html"}, exclude=None)
    assert asked == {"include": {"text/html"}, "exclude": None}


@pytest.mark.slow
def test_where_the_libraries_are_missing_a_result_prints_itself():
    """In an interpreter of its own, in which neither library can be imported."""
    program = (
        "import sys; sys.modules['ipywidgets'] = sys.modules['anywidget'] = None\n"
        "import dask_hpc\n"
        "result = dask_hpc.simulate('builtin:esp', policy='fcfs')\n"
        "print(result._repr_mimebundle_(), repr(result)[:20])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.stdout.startswith("None <"), done.stderr
