"""Experiments that are measured on a live cluster, made small: they end, and measure what they say."""

import numpy as np
import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.reproduce import EXPERIMENTS, live_adaptation, live_checkpoint
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


@pytest.mark.parametrize("name", ["adaptation-overhead", "checkpoint-modes"])
def test_a_cluster_of_others_is_refused(name):
    with pytest.raises(InputError, match="a cluster of its own"):
        EXPERIMENTS[name].run(Bench(1, client=object()))
    assert EXPERIMENTS[name].summary.startswith("Measured live: ")


def columns(sign):
    """Of two runs in which all is as published, or all the other way round."""
    better, worse = (1.4, 0.5) if sign > 0 else (0.7, 1.2)
    found = dict.fromkeys(("later", "sent", "reads never", "writes never", "killed"), 1.0)
    found |= {"first": 7.0 if sign > 0 else 2.0, "nbytes never": 1.0, "nbytes always": worse}
    found |= {"writes always": better, "reads always": 1.0}
    for agents, push in zip(
        live_checkpoint._AGENTS, (1.4, 1.2, 1.1) if sign > 0 else (0.7, 0.8, 0.9), strict=True
    ):
        found |= {f"pull {agents}": 0.8 if sign > 0 else 1.2, f"push {agents}": 1.0, f"goes on {agents}": 0.1}
        found |= {f"pull {agents} over push {agents}": push, f"host {agents} over pull {agents}": 1.0}
        found |= {f"goes on {agents} over pull {agents}": worse, f"pull 1 over pull {agents}": better}
    found["reads never"] = 1.1 if sign > 0 else 0.9
    return {name: np.array([value, value]) for name, value in found.items()}


def test_what_is_published_of_commits_is_reached_if_it_is_so_and_else_not():
    as_published, not_so = (live_checkpoint._claims(columns(sign)) for sign in (1, -1))
    assert [one.claim for one in as_published if not one.reached] == []
    assert [one.claim for one in not_so if one.reached] == []
    assert len({one.claim for one in as_published}) == len(as_published) > 12
    assert {one.figure for one in live_checkpoint._beside(columns(1))}


@pytest.mark.slow
def test_commits_in_all_modes(monkeypatch):
    for name, value in {"_AGENTS": (1, 2), "_KEEPERS": 2, "_TIMES": 1, "_BLOCKS": 4, "_BYTES": 1e6}.items():
        monkeypatch.setattr(live_checkpoint, name, value)
    found = live_checkpoint.modes(Bench(1))
    assert all(np.isfinite(one.ours) for one in (*found.claims, *found.beside))
    by_claim = by_name(found)
    assert by_claim["1 agent: who does not wait for a commit may go on sooner by"].ours < 100
    assert by_claim["compressed, a version is smaller by"].reached


@pytest.mark.slow
def test_copies_are_on_as_many_hosts_as_it_says(monkeypatch):
    monkeypatch.setattr(live_checkpoint, "_BYTES", 1e6)
    monkeypatch.setattr(live_checkpoint, "_KEEPERS", 3)
    with live_checkpoint._cluster() as cluster:
        for agents in (1, 3, 2):
            cluster.rule(agents, transfer="push")
            data = cluster.fresh()
            with cluster.program() as ck:
                data = ck.add("data", data)
                for _ in ck.loop(range(1)):
                    ck.update(data=data)
                books = cluster.client.cluster.scheduler.plugins["dask-hpc-checkpoint"].catalogue
                assert sum(books.nbytes_on(one) > 0 for one in cluster.keepers) == agents
                assert not any(books.nbytes_on(one) for one in cluster.sources)
