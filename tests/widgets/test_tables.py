"""Nodes are seen, held, drained and released; what is asked of other tables is in ``test_view``."""

import dask_hpc_widgets as widgets
import pytest
from heard import hear, until


@pytest.fixture
def nodes(busy):
    """The table of its nodes, and of each node its workers."""
    view = widgets.NodesTable(busy)
    yield view, {node["name"]: list(node["workers"]) for node in busy.status()["nodes"]}
    view.close()


def test_a_node_is_held_drained_and_released(busy, nodes):
    view, workers = nodes
    idle = next(node["name"] for node in busy.status()["nodes"] if node["job"] is None)

    def why():
        return [one["why"] for one in busy.status()["holds"]]

    asked = {"name": idle, "workers": workers[idle]}
    assert hear(view, do="hold_nodes", **asked)["done"] == f"{idle} starts nothing new"
    assert why() == [["held in the control room"]]
    assert "may start" in hear(view, do="release_nodes", **asked)["done"]
    assert not why()
    assert "is drained" in hear(view, do="hold_nodes", drain=True, **asked)["done"]
    assert why() == [["drain"]]
    hear(view, do="release_nodes", **asked)
    assert not why()


def test_nodes_that_cannot_be_held_are_not_held_by_halves(busy, nodes):
    view, workers = nodes
    every = [address for node in workers.values() for address in node]
    assert "cluster: hold: " in hear(view, do="hold_nodes", name="cluster", workers=every)["problem"]
    assert not busy.status()["holds"]
    for wrong in (None, [], [3], "all", ["no-such"]):
        assert "worker" in hear(view, do="hold_nodes", name="x", workers=wrong)["problem"]
        assert "worker" in hear(view, do="release_nodes", name="x", workers=wrong)["problem"]


def test_nodes_are_readable_without_a_front_end(busy, nodes):
    view, workers = nodes
    # its head may come before who is where, or after it
    until(lambda: ": runs" in repr(view))
    words = repr(view)
    assert all(f"  {name}: " in words for name in workers)
    assert words.count(": runs") == 1 and words.count(": nobody") == 2
