"""Programs that iterate commit as they go, and go on where they were."""

import asyncio
import sys
from asyncio import sleep as sleep_async
from tempfile import TemporaryDirectory
from time import sleep
from uuid import uuid4

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client, Event, LocalCluster, futures_of, wait
from distributed.utils_test import async_poll_for, gen_cluster, gen_test
from hypothesis import given, settings
from hypothesis import strategies as st
from killed_runs import until
from small_stores import computed, write

import dask_hpc
from dask_hpc.checkpoint.client.loop import in_memory
from dask_hpc.checkpoint.client.program import _OURS
from dask_hpc.checkpoint.faults import VARIABLE
from dask_hpc.checkpoint.scheduler.commits import Commits
from dask_hpc.checkpoint.store import cells
from dask_hpc.checkpoint.store.items import describe
from dask_hpc.checkpoint.store.seal import WrongKey
from dask_hpc.checkpoint.store.versions import read_note
from dask_hpc.dask.scheduler import refusal
from dask_hpc.model.errors import InputError


@pytest.fixture
def client():
    cluster = LocalCluster(n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0")
    with cluster, Client(cluster) as client:
        yield client


three = gen_cluster(client=True, nthreads=[("", 1)] * 3)


def controller(client):
    return client.cluster.scheduler.plugins["dask-hpc-checkpoint"]


def program(client, store, n, stop=None, **options):
    """What the iterations did, the state after them, and the statistics."""
    done = []
    with dask_hpc.Checkpoint("run", store, client=client, **{"every": 2, **options}) as ck:
        u = ck.add("u", client.persist(da.zeros((6, 4), chunks=(2, 4))))
        dt = ck.add("dt", 0.5)
        for i in ck.loop(range(n)):
            if i == stop:
                break
            done.append(i)
            u = client.persist(u * 1.5 + 1)
            dt *= 2
            ck.update(u=u, dt=dt)
            wait(u)
        assert dt == 0.5 * 2 ** (stop if stop is not None else n)
    return done, client.compute(u).result(), ck.stats() if stop is None else None


def expected(n):
    u = np.zeros((6, 4))
    for _ in range(n):
        u = u * 1.5 + 1
    return u


def test_a_program_goes_on_where_it_was(client, tmp_path):
    done, _, _ = program(client, str(tmp_path), 9, stop=5)
    assert done == [0, 1, 2, 3, 4]
    service = controller(client)
    done, u, _ = program(client, str(tmp_path), 9)
    assert done == [4, 5, 6, 7, 8]
    np.testing.assert_array_equal(u, expected(9))
    done, u, _ = program(client, str(tmp_path), 9)
    assert done == []
    np.testing.assert_array_equal(u, expected(9))
    assert not service.errors


def test_without_a_store_memory_is_enough_for_another_client(client):
    assert program(client, None, 9, stop=5)[0] == [0, 1, 2, 3, 4]
    with Client(client.cluster) as other:
        done, u, _ = program(other, None, 9)
    assert done == [4, 5, 6, 7, 8]
    np.testing.assert_array_equal(u, expected(9))


def test_another_cluster_goes_on_from_the_store(client, tmp_path):
    program(client, str(tmp_path), 9, stop=5)
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as small,
        Client(small) as other,
    ):
        done, u, _ = program(other, str(tmp_path), 9)
    assert done == [4, 5, 6, 7, 8]
    np.testing.assert_array_equal(u, expected(9))


def test_memory_is_free_when_the_program_is_over(client, tmp_path):
    with dask_hpc.Checkpoint("other", client=client):
        service = controller(client)
        program(client, str(tmp_path), 4)
        client.sync(async_poll_for, lambda: not service.catalogue.contents, 10)
        assert service.commits.series.keys() == {"other"} and not client.cluster.scheduler.tasks


@pytest.mark.slow
def test_the_graph_does_not_grow_with_the_iterations(client):
    with dask_hpc.Checkpoint("run", client=client, every=1) as ck:
        u = ck.add("u", client.persist(da.zeros(4, chunks=2)))
        for _ in ck.loop(range(40)):
            u = client.persist(u + 1)
            ck.update(u=u)
            wait(u)
        # two iterations, what waits to be committed, and the scattered values
        assert len(client.cluster.scheduler.tasks) < 20


def test_what_did_not_change_is_not_copied_again(client):
    with dask_hpc.Checkpoint("run", client=client, every=1) as ck:
        mask = ck.add("mask", client.persist(da.ones(1000, chunks=250)))
        same = ck.add("same", client.persist(da.ones(1000, chunks=500)))
        u = ck.add("u", client.persist(da.zeros(4, chunks=4)))
        ck.commit(wait=True)
        first = ck.stats()
        for _ in ck.loop(range(3)):
            u, same = client.persist([u + 1, same + 0])
            ck.update(u=u, same=same)
            wait([u, same])
            ck.commit()
        assert first.moved >= 8000 and mask is not None
        assert ck.stats().moved - first.moved <= 3 * 32
        assert ck.stats().unchanged > 0


@three
async def test_a_commit_keeps_what_was_current_and_does_not_wait(c, s, *workers):
    async with dask_hpc.Checkpoint("run", client=c) as ck:
        u = await ck.add("u", c.submit(lambda: Event("go").wait(60) or 1, pure=False))
        await ck.commit()  # the result is not there yet
        ck.update(u=c.submit(lambda: 2))
        del u
        assert (await ck.stats()).versions == {}
        await Event("go").set()
        await async_poll_for(lambda: s.plugins["dask-hpc-checkpoint"].commits.series["run"].base, 10)
        (key,) = s.plugins["dask-hpc-checkpoint"].commits.series["run"].base.keys.values()
        assert key in s.tasks and s.tasks[key].state == "memory"


@three
async def test_a_program_goes_on_before_the_cluster_answers_and_keeps_the_results_until_then(
    c, s, *workers, monkeypatch
):
    go, commit = asyncio.Event(), Commits.commit

    async def slow(self, **what):
        await go.wait()
        return await commit(self, **what)

    monkeypatch.setattr(Commits, "commit", slow)
    async with dask_hpc.Checkpoint("run", client=c, every="auto") as ck:
        u = await ck.add("u", c.persist(da.random.random((6, 6), chunks=(2, 6))))
        before, keys = await c.compute(u), {future.key for future in futures_of(u)}
        await asyncio.wait_for(ck.commit(), 10)
        assert not ck.due.planned, "the cluster has yet to say how often"
        del u
        ck.update(u=c.submit(lambda: 2, pure=False))
        assert await c.submit(lambda: 1, pure=False) == 1  # whatever is released is released before that
        assert keys <= set(s.tasks)
        looks = asyncio.ensure_future(ck.stats())
        await sleep_async(0)
        assert not looks.done()
        go.set()
        assert (await looks).failed == 0 and "partner" in ck.due.planned  # alone it knows of a store
        series = s.plugins["dask-hpc-checkpoint"].commits.series["run"]
        await async_poll_for(lambda: series.base is not None, 10)
        assert set(series.base.keys.values()) == keys
        told = await c.scheduler.hpc_checkpoint_open(name="run", client=c.id)
        found = await in_memory(c, told["version"])
        np.testing.assert_array_equal(await c.compute(found.values["u"]), before)
        del found
        ck.step = 1
        await ck.commit(wait=True)
        await async_poll_for(lambda: not keys & set(s.tasks), 10)  # nobody keeps what was replaced


@pytest.mark.parametrize("answer", ["an error", "nothing"])
@three
async def test_a_commit_that_the_cluster_refuses_is_told_and_made_again(c, s, *workers, monkeypatch, answer):
    asked = []

    async def refuse_once(**what):
        asked.append(what["step"])
        if len(asked) > 1:
            return await commit(**what)
        return refusal(ZeroDivisionError("no")) if answer == "an error" else None

    async with dask_hpc.Checkpoint("run", client=c) as ck:
        u = await ck.add("u", c.persist(da.ones(6, chunks=2)))
        ck.step = 3
        await ck.commit(wait=True)
        commit, ck.step = s.handlers["hpc_checkpoint_commit"], 4
        monkeypatch.setitem(s.handlers, "hpc_checkpoint_commit", refuse_once)
        await ck.commit()
        with pytest.warns(UserWarning, match="iteration 4 could not be committed"):
            await ck.commit(wait=True)
        monkeypatch.undo()
        assert (await ck.stats()).versions == {"partner": 4} and asked == [4, 4] and u is not None


@three
async def test_who_closes_waits_for_a_commit_that_is_on_its_way(c, s, *workers, monkeypatch):
    go, commit = asyncio.Event(), Commits.commit

    async def slow(self, **what):
        await go.wait()
        return await commit(self, **what)

    monkeypatch.setattr(Commits, "commit", slow)
    async with dask_hpc.Checkpoint("run", client=c) as ck:
        u = await ck.add("u", c.persist(da.ones(6, chunks=2)))
        ck.step = 2
        await ck.commit()
        asyncio.get_running_loop().call_later(0.3, go.set)
    series = s.plugins["dask-hpc-checkpoint"].commits.series["run"]
    assert go.is_set() and series.base is not None and series.base.step == 2 and u is not None


@three
async def test_the_newest_that_waits_is_committed_next(c, s, *workers):
    async with dask_hpc.Checkpoint("run", client=c, every=1) as ck:
        blocked = c.submit(lambda: Event("go").wait(60) or 0, pure=False)
        blocked = await ck.add("u", blocked)
        async for i in ck.loop(range(6)):
            ck.update(u=c.submit(lambda i=i: Event("go").wait(60) and i))
            if i == 5:
                stats = await ck.stats()
                await Event("go").set()
        assert stats.superseded == 3 and stats.commits == 0
        stats = await ck.stats()
        assert stats.commits == 2 + (stats.superseded == 3) and stats.versions == {"partner": 6}


@three
async def test_a_version_survives_a_worker_and_its_agent_alike(c, s, *workers):
    async with dask_hpc.Checkpoint("run", client=c) as ck:
        u = await ck.add("u", c.persist(da.random.random((6, 6), chunks=(2, 6))))
        before = await c.compute(u)
        await ck.commit(wait=True)
        del u
        ck.update(u=0)
        await workers[0].close()
        told = await c.scheduler.hpc_checkpoint_open(name="run", client=c.id)
        assert told["version"]["step"] == 0
        series = s.plugins["dask-hpc-checkpoint"].commits.series["run"]
        found = await in_memory(c, told["version"])
        np.testing.assert_array_equal(await c.compute(found.values["u"]), before)
        assert series.base is not None and not s.plugins["dask-hpc-checkpoint"].errors


@three
async def test_a_commit_whose_task_fails_is_no_version(c, s, *workers):
    async with dask_hpc.Checkpoint("run", client=c) as ck:
        await ck.add("u", c.submit(lambda: 1 / 0))
        with pytest.warns(UserWarning, match="could not be committed"):
            await ck.commit(wait=True)
        assert (await ck.stats()).failed == 1
        ck.update(u=c.submit(lambda: 1))
        ck.step += 1
        await ck.commit(wait=True)
        assert (await ck.stats()).versions == {"partner": 1}


def test_a_dataset_a_bag_and_objects_come_back(client, tmp_path):
    import dask.bag as db

    data = xr.Dataset(
        {"t": (("x", "y"), np.arange(12.0).reshape(4, 3))}, {"x": [3, 1, 2, 0]}, {"title": "one"}
    ).chunk(x=2)
    state = {
        "data": client.persist(data),
        "bag": client.persist(db.from_sequence(range(5), npartitions=2)),
        "rng": np.random.default_rng(7).bit_generator.state,
        "list": [1, "two", np.arange(3)],
    }
    for store in (None, str(tmp_path)):
        with dask_hpc.Checkpoint("run", store, client=client) as ck:
            for label, value in state.items():
                ck.add(label, value)
            ck.step = 3
            ck.commit(wait=True)
        with dask_hpc.Checkpoint("run", store, client=client) as ck:
            assert ck.step == 3
            got = {label: ck.add(label, value) for label, value in state.items()}
            xr.testing.assert_identical(client.compute(got["data"]).result(), data.compute())
            assert client.compute(got["bag"]).result() == list(range(5))
            assert got["rng"] == state["rng"] and got["list"][:2] == [1, "two"]
        client.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.plugins["dask-hpc-checkpoint"].commits.series.clear()
        )


# plain programs


def serial(store, n, stop=None, **options):
    done = []
    with dask_hpc.Checkpoint("run", store, every=2, **options) as ck:
        u = ck.add("u", np.zeros(3))
        for i in ck.loop(range(0, 2 * n, 2)):
            if i == stop:
                break
            done.append(i)
            u = u + i
            ck.update(u=u)
        return done, u


def test_without_a_client_plain_values_go_to_the_store(tmp_path):
    assert serial(str(tmp_path), 5, stop=6)[0] == [0, 2, 4]
    done, u = serial(str(tmp_path), 5)
    assert done == [4, 6, 8]
    np.testing.assert_array_equal(u, np.full(3, 20.0))


@gen_test()
async def test_without_a_client_a_notebook_is_as_any_program(tmp_path):
    assert serial(str(tmp_path), 5, stop=6)[0] == [0, 2, 4]
    async with dask_hpc.Checkpoint("run", str(tmp_path), every=2) as ck:
        u = ck.add("u", np.zeros(3))
        done = []
        async for i in ck.loop(range(0, 10, 2)):
            done.append(i)
            u = u + i
            ck.update(u=u)
    assert done == [4, 6, 8] and serial(str(tmp_path), 5)[0] == []


@pytest.mark.parametrize("kind", ["numpy", "dask"])
def test_a_value_that_was_restored_and_not_taken_is_told(tmp_path, client, kind):
    def begun():
        return dask_hpc.Checkpoint("run", str(tmp_path), client=client if kind == "dask" else None)

    def first():
        return da.zeros(3, chunks=1).persist() if kind == "dask" else np.zeros(3)

    u = first()
    with begun() as ck:
        ck.add("u", u)
        assert list(ck.loop(range(3))) == [0, 1, 2]
    with begun() as ck, pytest.warns(UserWarning, match="u = ck.add"):
        ck.add("u", u)
        # the thread that has read it lets go of it a moment later
        until(lambda: sys.getrefcount(ck._values["u"]) <= _OURS, "nobody else has it")
        next(iter(ck.loop(range(5))))
    with begun() as ck:
        ck.add("u", u)
        assert np.asarray(ck["u"]).tolist() == [0, 0, 0]
        assert next(iter(ck.loop(range(5)))) == 3
    with begun() as ck:
        taken = {"u": ck.add("u", u)}
        assert next(iter(ck.loop(range(5)))) == 3 and taken
    with begun() as ck:
        u = ck.add("u", first()) + 0
        assert next(iter(ck.loop(range(5)))) == 3


def test_an_iterator_is_gone_through_to_where_the_program_was(tmp_path):
    serial(str(tmp_path), 5, stop=6)
    with dask_hpc.Checkpoint("run", str(tmp_path)) as ck:
        u = ck.add("u", np.zeros(3))
        assert list(ck.loop(iter("abcde"))) == ["c", "d", "e"] and u is not None


def test_another_program_is_refused(tmp_path):
    serial(str(tmp_path), 5, token=["physics", 1])
    for token in (None, ["physics", 2]):
        with pytest.raises(InputError, match="token"):
            dask_hpc.Checkpoint("run", str(tmp_path), token=token)
    with dask_hpc.Checkpoint("run", str(tmp_path), token=["physics", 1]) as ck:
        with pytest.raises(InputError, match="as in the version"):
            ck.add("u", da.zeros(3))
        with pytest.warns(UserWarning, match="has no v"):
            assert ck.add("v", 7) == 7


def test_misuse_is_refused(tmp_path):
    with pytest.raises(InputError, match="store"):
        dask_hpc.Checkpoint("run")
    for every in (0, True, "soon", -1.0):
        with pytest.raises(InputError, match="every"):
            dask_hpc.Checkpoint("run", str(tmp_path), every=every)
    with pytest.raises(InputError, match="name"):
        dask_hpc.Checkpoint("../run", str(tmp_path))
    with dask_hpc.Checkpoint("run", str(tmp_path)) as ck:
        assert ck.add("u", 1) == 1
        with pytest.raises(InputError, match="plain values"):
            ck.add("a", da.zeros(3), on_resize="rank")
        with pytest.raises(InputError, match="labels that were added"):
            ck.update(v=1)
        for _ in ck.loop(range(2)):
            with pytest.raises(InputError, match="a loop in a loop"):
                next(iter(ck.loop(range(2))))
            with pytest.raises(InputError, match="before the loop"):
                ck.add("w", 1)
        with pytest.raises(InputError, match="a second loop"):
            next(iter(ck.loop(range(2))))


def test_two_programs_of_one_name_do_not_mix(client):
    with (
        Client(client.cluster) as other,
        dask_hpc.Checkpoint("run", client=client),
        pytest.raises(InputError, match="in use"),
    ):
        dask_hpc.Checkpoint("run", client=other)


def test_values_follow_their_rule_when_the_number_of_nodes_changes(client, tmp_path):
    with dask_hpc.Checkpoint("run", str(tmp_path), client=client) as ck:
        for label, value in {"dt": 0.5, "rng": 1, "n": 3, "c": 9}.items():
            ck.add(label, value)
        ck.step = 1
        ck.commit(wait=True)
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as small,
        Client(small) as other,
        dask_hpc.Checkpoint("run", str(tmp_path), client=other) as ck,
    ):
        assert ck.add("dt", 0.5, on_resize="default:0.1") == 0.1
        assert ck.add("rng", 1, on_resize=lambda nodes: f"seed {nodes}") == "seed 2"
        assert ck.add("n", 3, on_resize="size") == 2
        assert ck.add("c", 0) == 9


def test_a_store_that_cannot_be_used_stops_nothing(client, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    with pytest.warns(UserWarning, match="memory only|cannot be used|cannot be read"):
        done, u, _ = program(client, str(blocked / "ckpt"), 6)
    assert done == list(range(6))
    np.testing.assert_array_equal(u, expected(6))


@three
async def test_when_the_store_is_back_the_newest_version_goes_there(c, s, *workers, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    with pytest.warns(UserWarning):
        ck = await dask_hpc.Checkpoint("run", str(blocked), client=c)
        await ck.add("u", 1)
        ck.step = 1
        await ck.commit(wait=True)
    blocked.unlink()
    await async_poll_for(
        lambda: s.plugins["dask-hpc-checkpoint"].commits.series["run"].reached.get("store") == 1, 15
    )
    assert (await ck.stats()).problem == ""
    await ck.close()


@three
async def test_one_death_after_another_leaves_a_version_whole(c, s, *workers):
    async with dask_hpc.Checkpoint("run", client=c) as ck:
        u = await ck.add("u", c.persist(da.random.random((8, 6), chunks=(1, 6))))
        before = await c.compute(u)
        await ck.commit(wait=True)
        del u
        ck.update(u=0)
        service = s.plugins["dask-hpc-checkpoint"]
        version = service.commits.series["run"].base
        for worker in workers[:2]:
            await worker.close()
            await async_poll_for(lambda: all(map(service.agents.holders, version.keys.values())), 20)
            if worker is workers[0]:
                await async_poll_for(
                    lambda: all(len(set(h) | set(service.catalogue.where(k)[1])) > 1
                                for k in version.keys.values() if (h := service.agents.holders(k))), 20,
                )  # fmt: skip
        told = await c.scheduler.hpc_checkpoint_open(name="run", client=c.id)
        found = await in_memory(c, told["version"])
        np.testing.assert_array_equal(await c.compute(found.values["u"]), before)


@gen_cluster(client=True, nthreads=[("", 1)])
async def test_without_a_partner_results_go_to_the_store_directly(c, s, a, tmp_path):
    async with dask_hpc.Checkpoint("run", str(tmp_path), client=c) as ck:
        u = await ck.add("u", c.persist(da.ones(6, chunks=2)))
        ck.step = 1
        await ck.commit(wait=True)
        assert (await ck.stats()).versions == {"store": 1} and u is not None
    restored, told = await dask_hpc.restore("run", str(tmp_path), client=c)
    assert told.step == 1 and (await c.compute(restored)).tolist() == [1] * 6


@three
async def test_the_journal_tells_what_was_in_memory(c, s, *workers, tmp_path):
    ck = await dask_hpc.Checkpoint("run", str(tmp_path), client=c)
    u = await ck.add("u", c.persist(da.ones(6, chunks=2)))
    ck.step = 1
    await ck.commit(wait=True)
    ck.step = 2
    ck.update(u=u)
    await ck.commit()
    series = s.plugins["dask-hpc-checkpoint"].commits.series
    await async_poll_for(lambda: (read_note(str(tmp_path), "run") or {}).get("step") == 2, 10)
    assert series["run"].reached == {"partner": 2, "store": 1}, "auto does not store each version"
    gone = series.pop("run")
    gone.follow(gone.close())  # as if the cluster were another
    with pytest.warns(UserWarning, match="iteration 2 was in memory.*going on from 1"):
        other = await dask_hpc.Checkpoint("run", str(tmp_path), client=c)
    assert other.step == 1
    await other.close()


def test_an_encrypted_store_gives_the_state_to_those_with_the_key(client, tmp_path, monkeypatch):
    monkeypatch.setenv("KEY", "ab" * 32)
    monkeypatch.setenv("OTHER", "cd" * 32)
    done, _, _ = program(client, str(tmp_path), 9, stop=5, key="env:KEY")
    controller(client).commits.series.clear()
    with pytest.raises(WrongKey):
        program(client, str(tmp_path), 9, key="env:OTHER")
    controller(client).commits.series.clear()
    done, u, _ = program(client, str(tmp_path), 9, key="env:KEY")
    assert done == [4, 5, 6, 7, 8]
    np.testing.assert_array_equal(u, expected(9))


def test_what_is_not_added_any_more_is_told(tmp_path):
    serial(str(tmp_path), 5)
    with dask_hpc.Checkpoint("run", str(tmp_path)) as ck:
        ck.update()
        with pytest.warns(UserWarning, match="stored as u was not added"):
            assert list(ck.loop(range(5))) == []


@three
async def test_a_lazy_value_is_committed_and_told(c, s, *workers):
    async with dask_hpc.Checkpoint("run", client=c) as ck:
        u = await ck.add("u", da.ones(6, chunks=2) + 1)
        with pytest.warns(UserWarning, match="u not persisted"):
            await ck.commit(wait=True)
        assert (await ck.stats()).versions == {"partner": 0} and u is not None


def test_a_plain_value_that_changes_meanwhile_is_committed_as_it_was(client):
    with dask_hpc.Checkpoint("run", client=client) as ck:
        u = ck.add("u", np.zeros(1000))
        ck.commit()
        u += 1
        told = client.sync(client.scheduler.hpc_checkpoint_open, name="run", client=client.id)
        client.sync(async_poll_for, lambda: controller(client).commits.series["run"].base is not None, 10)
        told = client.sync(client.scheduler.hpc_checkpoint_open, name="run", client=client.id)
        found = client.sync(in_memory, client, told["version"])
        assert not found.values["u"].any()


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(0, 9),
    every=st.integers(1, 4),
    stops=st.lists(st.integers(0, 9), max_size=3),
    step=st.sampled_from([1, 3, -2]),
)
def test_wherever_a_program_is_stopped_no_iteration_is_left_out_or_counts_twice(n, every, stops, step):
    items = range(5, 5 + n * step, step)
    with TemporaryDirectory() as store:
        for stop in [*stops, None]:
            with dask_hpc.Checkpoint("run", store, every=every) as ck:
                begun = ck.step
                seen = ck.add("seen", [])
                assert seen == list(items[:begun])
                for done, i in enumerate(ck.loop(items), begun):
                    if done == stop:
                        break
                    seen = [*seen, i]
                    ck.update(seen=seen)
            with dask_hpc.Checkpoint("run", store) as ck:
                assert ck.step == n if len(seen) == n else len(seen) - ck.step < every
        assert seen == list(items)


@gen_cluster(client=True, nthreads=[("", 1)] * 3)
async def test_a_restore_with_an_asynchronous_client(c, s, *workers):
    root = f"memory://{uuid4()}"
    item = describe(da.arange(30, chunks=5), "u")
    write(root, "run", [item], computed(item), step=8)
    found, meta = await dask_hpc.restore("run", root, layout="cyclic", nodes=2, client=c)
    assert meta.step == 8
    assert (await c.compute(found)).tolist() == list(range(30))
    holders = [worker for worker in workers if any("restore" in str(key) for key in worker.data)]
    assert len(holders) == 2
    with pytest.raises(InputError, match="latest, or one of 1"):
        await dask_hpc.restore("run", root, 5, client=c)


def stored(root):
    return sum(path.stat().st_size for path in root.rglob("c/*") if path.is_file())


@three
async def test_what_can_be_compressed_is(c, s, *workers, tmp_path):
    zeros = c.persist(da.zeros(2**20, chunks=2**18))
    noise = c.persist(da.random.default_rng(0).random(2**20, chunks=2**18))
    async with dask_hpc.Checkpoint("run", str(tmp_path), client=c) as ck:
        await ck.add("zeros", zeros), await ck.add("noise", noise)
        await ck.commit(wait=True)
    sizes = {label: stored(tmp_path / "run" / "00000001" / f"{label}.zarr") for label in ("zeros", "noise")}
    assert sizes["zeros"] < 2**23 / 100 and sizes["noise"] == 2**23
    async with dask_hpc.Checkpoint("run", str(tmp_path), client=c) as ck:
        found = await ck.add("zeros", zeros)
        assert (await c.compute(found == 0)).all() and found is not zeros


def test_what_can_be_compressed_is_without_a_cluster(tmp_path):
    with dask_hpc.Checkpoint("run", str(tmp_path)) as ck:
        ck.add("u", xr.Dataset({"u": ("x", np.zeros(2**18))}))
        ck.commit()
    assert stored(tmp_path) < 2**21 / 100


@pytest.mark.parametrize("point", ["metadata-begun", "manifest-begun", "manifest-written"])
@three
async def test_a_version_that_cannot_be_finished_leaves_nothing(c, s, *workers, tmp_path, monkeypatch, point):
    u = c.persist(da.ones(6, chunks=2))
    async with dask_hpc.Checkpoint("run", str(tmp_path), client=c) as ck:
        await ck.add("u", u)
        monkeypatch.setenv(VARIABLE, f"{point}!ENOSPC")
        with pytest.warns(UserWarning, match="in memory only"):
            await ck.commit(wait=True)
        assert not list(tmp_path.rglob("00*"))
        monkeypatch.delenv(VARIABLE)
        await ck.commit(wait=True)


@gen_cluster(client=True, nthreads=[("", 1)] * 5)
async def test_a_layout_holds_until_something_else_is_asked_for(c, s, *workers, monkeypatch):
    root, item = f"memory://{uuid4()}", describe(da.arange(64, chunks=4), "u")
    write(root, "run", [item], computed(item))
    slow, read = [], cells.opened
    monkeypatch.setattr(cells, "opened", lambda *args: (slow.append(sleep(0.1)), read(*args))[1])
    found, _ = await dask_hpc.restore("run", root, layout="block", nodes=2, client=c)  # Dask has tasks stolen
    assert slow and len({one for there in (await c.who_has(found)).values() for one in there}) == 2
    found, _ = await dask_hpc.restore("run", root, layout="replicated", client=c)
    s.extensions["amm"].run_once()
    await sleep_async(0.5)
    assert {len(there) for there in (await c.who_has(found)).values()} == {5}
