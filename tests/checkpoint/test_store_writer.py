"""A version's blocks are written by those who have them, each content once, only so many at a time."""

import asyncio
from types import SimpleNamespace

import pytest
from distributed.utils_test import gen_test

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler import series
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.scheduler.series import StoreWriter
from dask_hpc.checkpoint.store.files import Trouble

GONE = {"error": "it is not here", "gone": True}


class Cluster:
    """Workers that note what they are asked, and say it was done, or what they are told to say."""

    def __init__(self, monkeypatch, held=None):
        self.catalogue, self.asked, self.says = Catalogue(), [], {}
        self.at_once = self.most = 0
        monkeypatch.setattr(series, "holders", lambda context, key: tuple((held or {}).get(key, ())))

    def get(self, kind):
        return self

    async def call(self, address, name, *, call, **what):
        self.asked.append((address, what))
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        said = self.says.get(address, {"result": {"file": address}})
        if isinstance(said, Exception):
            raise said
        return said

    def has_copies(self, key, content, *agents):
        for agent in agents:
            self.catalogue.joins(agent)
            self.catalogue.copied(key, content, 100, agent, len(agents))


def version_of(keys, form="value"):
    specs = {place: {"form": form} for place in keys}
    return SimpleNamespace(specs=specs, writer=compat.pickled), SimpleNamespace(keys=keys)


@gen_test()
async def test_those_who_have_a_block_write_it_agents_first(monkeypatch):
    cluster = Cluster(monkeypatch, {"x": ["holder"], "y": ["other"]})
    cluster.has_copies("x", "1", "agent", "busy")
    cluster.has_copies("z", "2", "third")
    commit, version = version_of({("u", "0"): "x", ("u", "1"): "y"})
    written = await StoreWriter(cluster)._write_blocks(commit, version)
    assert written == {("u", "0"): {"file": "agent"}, ("u", "1"): {"file": "other"}}
    assert sorted(cluster.asked) == [("agent", {"content": "1"}), ("other", {"key": "y"})]


@gen_test()
async def test_who_has_a_block_no_longer_is_passed_over(monkeypatch):
    cluster = Cluster(monkeypatch, {"x": ["holder"]})
    cluster.has_copies("x", "1", "a", "b", "c")
    cluster.says = {"a": GONE, "b": None, "c": OSError("c does not answer")}
    commit, version = version_of({("u", "0"): "x"})
    assert await StoreWriter(cluster)._write_blocks(commit, version) == {("u", "0"): {"file": "holder"}}
    assert [address for address, _ in cluster.asked] == ["a", "b", "c", "holder"]


@pytest.mark.parametrize(
    "said, why", [({"error": "disk full"}, "disk full"), (GONE, r"nobody has u\[0\]"), (OSError("x"), "x")]
)
@gen_test()
async def test_why_a_block_is_not_written_is_told(monkeypatch, said, why):
    cluster = Cluster(monkeypatch, {"x": ["a"]})
    cluster.says = {"a": said}
    commit, _ = version_of({("u", "0"): "x"})
    with pytest.raises(Trouble if isinstance(said, dict) else OSError, match=why):
        await StoreWriter(cluster)._ask_holder(commit, ("u", "0"), "x", compat.pickled)


@pytest.mark.parametrize("form, times", [("value", 1), ("cell", 3)])
@gen_test()
async def test_what_has_the_same_contents_is_written_once_unless_it_is_a_cell(monkeypatch, form, times):
    cluster = Cluster(monkeypatch)
    for key in "xyz":
        cluster.has_copies(key, "1", "agent")
    places = {("u", key): key for key in "xyz"}
    commit, version = version_of(places, form)
    writer = StoreWriter(cluster)
    assert (await writer._write_blocks(commit, version)).keys() == places.keys()
    assert len(cluster.asked) == times and writer.written == 100 * times


@gen_test()
async def test_only_so_many_are_written_at_a_time_and_so_many_bytes_per_second(monkeypatch):
    cluster, slept, sleep = Cluster(monkeypatch), [], asyncio.sleep
    keys = [f"x{number}" for number in range(6)]
    for key in keys:
        cluster.has_copies(key, f"content of {key}", "agent")

    def soon(seconds):
        slept.append(seconds)
        return sleep(0)

    monkeypatch.setattr(series.asyncio, "sleep", soon)
    monkeypatch.setattr(series, "monotonic", lambda: 1000.0)
    commit, version = version_of({("u", key): key for key in keys})
    await StoreWriter(cluster, writers=2, rate=50.0)._write_blocks(commit, version)
    assert cluster.most == 2
    assert [one for one in slept if one] == [2.0 * number for number in range(1, 6)]
