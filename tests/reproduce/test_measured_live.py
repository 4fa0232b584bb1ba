"""Experiments that are measured on a live cluster, made small: they end, and measure what they say."""

import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.reproduce import EXPERIMENTS, live_adaptation
from dask_hpc.reproduce.claim import Bench


def by_name(found):
    return {one.claim: one for one in found.claims} | {one.figure: one for one in found.beside}


def test_growing_and_shrinking_node_by_node(monkeypatch):
    monkeypatch.setattr(live_adaptation, "_NODES", 3)
    told = []
    found = by_name(live_adaptation.overhead(Bench(1, progress=told.append)))
    assert told == [1]
    published = {name: one.published for name, one in found.items() if hasattr(one, "published")}
    assert {name: value for name, value in published.items() if isinstance(value, float)} == {
        "grow from 1 to 2 nodes": 0.11,
        "grow from 2 to 3 nodes": 1.29,
        "shrink from 2 to 1 node": 0.05,
        "shrink from 3 to 2 nodes": 2.25,
    }
    drain, move = found["shrink: drain, over all sizes"].ours, found.get("shrink: move, over all sizes")
    assert 1 < drain < 10_000, "a task of 50 ms runs there"
    seen = found["shrink from 2 to 1 node"].ours + found["shrink from 3 to 2 nodes"].ours
    assert 2 * drain / 1000 < seen, "the program waits for it"
    assert move is None or move.ours > 0
    assert 0 < found["grow from 1 to 2 nodes"].ours < 10 and found["grow: decision, over all sizes"].ours > 0
    without = [one.ours for name, one in found.items() if "without the wait" in name]
    assert len(without) == 2 and sum(without) / 1000 + 2 * drain / 1000 == pytest.approx(seen)


@pytest.mark.parametrize("name", ["adaptation-overhead"])
def test_a_cluster_of_others_is_refused(name):
    with pytest.raises(InputError, match="a cluster of its own"):
        EXPERIMENTS[name].run(Bench(1, client=object()))
    assert EXPERIMENTS[name].summary.startswith("Measured live: ")
