"""Changing what is in force: validated as a whole, with a way back, from wherever the call comes."""

import pytest
from distributed import Client, Event, LocalCluster
from distributed.utils_test import async_poll_for, captured_logger, inc
from hypothesis import given
from hypothesis import strategies as st
from small_cluster import blocked, cluster2, held, plugin_of, until

import dask_hpc
from dask_hpc import InputError, Policy, config
from dask_hpc.cluster.scheduler.in_force import STEPS, History, InForce, difference

FIRST = InForce(Policy.load("performance-aware"), config.settings())
PATH = next(path for path, one, _ in FIRST.policy.parameters() if one.parameter.unit == "s")


def test_parameters_and_settings_change_by_key_path():
    new = FIRST.changed(changes={PATH: "7s", "settings.fair-shares": True})
    assert {path: value for path, _, value in new.policy.parameters()}[PATH] == 7.0
    assert new.settings["fair-shares"] is True and FIRST.settings["fair-shares"] is False
    words = difference(FIRST, new)
    assert f"{PATH} is 7 s" in words and "fair-shares is True, was False" in words


def test_a_policy_comes_by_name_or_as_text():
    assert FIRST.changed("fcfs").policy == Policy.load("fcfs")
    text = "queue: {strategy: fcfs}"
    assert FIRST.changed(text).policy.name == "policy"
    assert FIRST.changed(text, "mine").policy.name == "mine"
    assert (
        FIRST.changed("fcfs", changes={"queue.strategy": "easy-backfill"}).policy.queue.name
        == "easy-backfill"
    )
    assert difference(FIRST, FIRST.changed("fcfs")) == "fcfs from now on"


@pytest.mark.parametrize(
    "bad",
    [
        {"policy": "no-such"}, {"policy": "/etc/passwd"}, {"policy": "./policies/fcfs.yaml"}, {"policy": 3},
        {"policy": ":", "name": "x"}, {"policy": "queue: {strategy: fcfs}", "name": ""}, {"name": "x"},
        {"policy": "fcfs", "name": 3}, {"changes": 3}, {"changes": {3: 4}}, {"changes": {"x": 1}},
        {"changes": {"settings.x": 1}}, {"changes": {"settings.fair-shares": "yes"}},
        {"changes": {PATH: "no time"}}, {"changes": {PATH: "5s", "settings.node": "host"}},
        {"policy": "fcfs", "changes": {PATH: "5s"}},
    ],
)  # fmt: skip
def test_bad_changes_say_what_is_wrong(bad):
    with pytest.raises(InputError) as caught:
        FIRST.changed(**bad)
    assert "\n" not in str(caught.value)


@given(st.lists(st.sampled_from(["undo", *range(3)]), max_size=STEPS + 10))
def test_undo_goes_back_step_by_step(script):
    versions = [FIRST, FIRST.changed("fcfs"), FIRST.changed("easy-backfill")]
    history, expected = History(FIRST), [FIRST]
    for what in script:
        if what == "undo":
            if len(expected) == 1:
                with pytest.raises(InputError):
                    history.undo()
            else:
                history.undo()
                expected.pop()
        else:
            history.accept(versions[what])
            if versions[what] != expected[-1]:
                expected = [*expected, versions[what]][-STEPS - 1 :]
        assert history.now == expected[-1] and len(history) == len(expected) - 1


@cluster2
async def test_set_and_undo_on_a_cluster(c, s, *workers):
    async with await dask_hpc.manage(c, "performance-aware") as m:
        context = plugin_of(s).context
        before = await m.set()
        assert before["name"] == "performance-aware" and before["state"] == "on" and before["undo"] == 0
        assert Policy.parse(before["policy"], name="performance-aware") == context.policy
        now = await m.set(**{PATH: "7s"})
        assert now["undo"] == 1 and "7 s" in now["policy"]
        with pytest.raises(InputError, match="fair-shares"):
            await m.set("fcfs", **{"settings.fair-shares": 3})
        assert await m.set() == now
        assert (await m.set("fcfs"))["name"] == "fcfs" and "fcfs" in repr(m)
        # the same again, and told from what was in force before by its number
        with pytest.raises(InputError, match="version: found 1, and version 2 is in force"):
            await m.set("fcfs", version=1)
        assert await m.undo() == now | {"version": 3}
        assert await m.undo() == before | {"version": 4}
        with pytest.raises(InputError, match="nothing to undo"):
            await m.undo()
        told = [h.reason for h in plugin_of(s).story.happenings if h.decision == "policy"]
        assert [text.partition(" is ")[0] for text in told] == [
            "performance-aware from now on", PATH, "fcfs from now on",
            "undone: performance-aware from now on", f"undone: {PATH}",
        ]  # fmt: skip
        with captured_logger("distributed") as log:  # which is red in a notebook
            with pytest.raises(InputError, match="nonsense"):
                await c.scheduler.hpc_set(nonsense=3)
            with pytest.raises(InputError, match="no arguments"):
                await c.scheduler.hpc_status(all=True)
            with pytest.raises(InputError, match="nobody"):
                await m.hold(["nobody"])
            with pytest.raises(InputError, match="many"):
                await m.give_back("many")
        assert log.getvalue() == ""


@cluster2
async def test_paused_decides_nothing_until_resumed(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        with dask_hpc.job("runs", nodes=1):
            runs = c.submit(blocked, "go")
        await until(s, "runs", "running")
        assert (await m.pause())["state"] == "paused" and (await m.pause())["state"] == "paused"
        with dask_hpc.job("waits", nodes=1):
            waits = c.submit(inc, 1, pure=False)
        job = await until(s, "waits", "waiting")
        await async_poll_for(lambda: held(job), 10)
        await Event("go").set()
        await runs  # what runs is not disturbed, and its end is noticed
        await until(s, "runs", "done")
        status = await m.status()
        assert status["state"] == "paused" and job.state == "waiting"
        assert {j["name"]: j for j in status["jobs"]}["waits"]["waiting_because"] == "decisions are paused"
        assert (await m.set("fcfs"))["state"] == "paused"  # may be prepared meanwhile
        assert (await m.resume())["state"] == "on"
        assert await waits == 2
        told = [row["decision"] for row in await m.story() if row["decision"] in ("pause", "resume")]
        assert told == ["pause", "resume"]


@pytest.mark.slow
def test_a_synchronous_client():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as local,
        Client(local) as client,
        dask_hpc.manage(client) as m,
    ):
        assert m.pause()["state"] == "paused"
        assert m.resume()["state"] == "on"
        assert m.set("fcfs", **{"settings.fair-shares": True})["settings"]["fair-shares"] is True
        with pytest.raises(InputError) as caught:
            m.set(**{"settings.fair-shares": 7})
        assert str(caught.value).startswith("settings.fair-shares: found 7; allowed: true, false, or")
        assert m.undo()["name"] == "easy-backfill"
        with pytest.raises(InputError):
            m.set(policy=3)
