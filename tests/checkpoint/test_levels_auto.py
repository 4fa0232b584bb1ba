"""``levels="auto"`` and objectives: what is chosen from is measured, and what is chosen is done."""

import asyncio
from math import inf
from types import SimpleNamespace

import dask
import dask.array as da
import pytest
from distributed import wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from test_protect import controller, dies

import dask_hpc
from dask_hpc import config
from dask_hpc.checkpoint.client.loop import Due
from dask_hpc.checkpoint.scheduler import powers as powers_module
from dask_hpc.checkpoint.scheduler import schedule as schedules
from dask_hpc.checkpoint.scheduler.powers import powers
from dask_hpc.checkpoint.scheduler.schedule import Aim, FailureCounts, Recoveries, Schedule
from dask_hpc.model.errors import InputError
from dask_hpc.model.power import PowerRange, PowerView
from dask_hpc.planning.interval import TIME, energy_weights

three = gen_cluster(client=True, nthreads=[("", 1)] * 3)
MTBF = config.checkpoint()["mtbf"]


class Clock:
    def __init__(self, patch):
        self.now = 1000.0
        patch.setattr(schedules, "monotonic", lambda: self.now)


def of(levels=("partner", "store"), **more):
    failures = FailureCounts(MTBF)
    failures.nodes(4)
    return Schedule(levels, "auto", 1e6, failures, Aim(**more), may_skip_partners=True)


def test_a_short_program_on_which_nothing_was_seen_to_fail_copies_nothing(monkeypatch):
    clock = Clock(monkeypatch)
    one = of()
    assert one.chosen == () and one.due == {"partner": inf, "store": inf}, (
        "nothing is due before it is chosen"
    )
    clock.now += 10
    one.left, one.costs["partner"] = 5.0, 0.5
    found = asyncio.run(one.plan(4))
    assert one.chosen == () and found.reason.startswith("no copies, lineage alone")
    assert one.due_in() == {"partner": None, "store": None} and not one.is_due("partner")


def test_a_death_brings_copies_and_the_end_of_the_run_ends_them(monkeypatch):
    clock = Clock(monkeypatch)
    one = of()
    one.left, one.costs["store"] = 100.0, 60.0
    clock.now += 20
    one.failures.seen("partner")
    found = asyncio.run(one.plan(4))
    assert one.chosen == ("partner",) and one.due_in()["partner"] == 0.0
    assert asyncio.run(one.plan(4)) is None, "nothing has changed"
    one.done(["partner"])
    one.kept("partner", clock.now)
    assert one.due_in()["partner"] == pytest.approx(found.every["partner"])
    assert one.at_risk() == {"partner": 0.0, "store": 20.0}, (
        "what is with partners does not outlive the cluster"
    )
    clock.now += 80
    one.kept("partner", clock.now)
    one.left = 1.0
    assert asyncio.run(one.plan(4)).every == {"partner": inf, "store": inf}


def test_what_is_at_risk_is_what_came_after_the_newest_version_that_serves(monkeypatch):
    clock = Clock(monkeypatch)
    one = of()
    clock.now += 30
    one.kept("store", clock.now)
    assert one.at_risk() == {"partner": 0.0, "store": 0.0}
    clock.now += 30
    one.kept("partner", clock.now - 10)
    one.kept("partner", clock.now - 20)  # a version that took longer to get there
    assert one.at_risk() == {"partner": 10.0, "store": 30.0}


@pytest.mark.parametrize(("took", "rests"), [(0.01, 2.0), (3.0, 10.0)])
def test_what_took_long_to_weigh_is_weighed_again_later_unless_somebody_dies(monkeypatch, took, rests):
    clock = Clock(monkeypatch)
    one, weigh = of(), schedules.which

    def slowly(*stake):
        clock.now += took
        return weigh(*stake)

    monkeypatch.setattr(schedules, "which", slowly)
    one.left = 1e3
    asyncio.run(one.plan(4))
    first = one.planned
    clock.now += 0.9 * rests
    one.left = 1e4
    asyncio.run(one.plan(4))
    assert one.planned is first
    clock.now += 0.2 * rests
    asyncio.run(one.plan(4))
    assert one.planned is not first
    second = one.planned
    one.failures.seen("partner")
    asyncio.run(one.plan(4))
    assert one.planned is not second


def test_nobody_is_told_what_is_no_other_plan(monkeypatch):
    Clock(monkeypatch)
    one = of()
    one.left = 1e6
    assert asyncio.run(one.plan(4)) is not None
    before = one.planned
    one.left = 2e6
    assert asyncio.run(one.plan(4)) is None
    assert one.planned.losses != before.losses, "it was weighed again"


def test_where_two_die_at_once_the_store_is_used_too(monkeypatch):
    """Of a node and its partner nobody has anything any more; whoever dies often dies in pairs."""
    clock = Clock(monkeypatch)
    one = of()
    one.left, clock.now = 100.0, clock.now + 60
    asyncio.run(one.plan(4))
    assert "store" not in one.chosen
    for _ in range(3):
        one.failures.seen("partner")
    often = one.failures.expected("partner")
    assert often == pytest.approx(3 / 240, rel=0.3)
    assert one.failures.pairs() == pytest.approx(2 * 3.0 * often**2)
    asyncio.run(one.plan(4))
    assert one.chosen == ("partner", "store")


def test_levels_that_were_said_stay_whatever_the_objective(monkeypatch):
    Clock(monkeypatch)
    one = of(objective="energy", chooses=False)
    one.left = 1e6
    one.facts.note = "nobody knows"
    found = asyncio.run(one.plan(4))
    assert one.chosen == ("partner", "store") and max(found.every.values()) < inf
    assert found.reason.endswith("; nobody knows")
    other = of(objective="energy", chooses=False)
    other.left, other.facts.weights = 1e6, energy_weights(400, 100)
    assert asyncio.run(other.plan(4)).every["partner"] < found.every["partner"]


def test_a_run_without_an_end_is_taken_to_go_on_as_long_again(monkeypatch):
    clock = Clock(monkeypatch)
    one = of()
    asyncio.run(one.plan(4))
    assert one.chosen == ()
    clock.now += 86400.0
    found = asyncio.run(one.plan(4))
    assert "partner" in one.chosen and "24.0 h are left" in found.reason.replace("23.9", "24.0")


def test_how_fast_lost_work_is_done_again_is_measured(monkeypatch):
    clock = Clock(monkeypatch)
    known = Recoveries()
    assert known.speed == 1.0 and known.restore is None
    known.lost(["x", "y"], 100.0)
    clock.now += 10
    known.back("x")
    assert known.speed == 1.0 and "y" in known and "x" not in known
    known.lost(["z"], 5.0)  # in the midst of it
    for key in "yz":
        clock.now += 5
        known.back(key)
    assert known.speed == pytest.approx((20 + 100) / (20 + 20))
    known.loaded(2.0)
    known.loaded(4.0)
    assert known.restore == pytest.approx(2.6)


def test_powers_are_those_of_nodes_at_work_and_at_rest(monkeypatch):
    view = PowerView(800.0, idle=60.0, active=PowerRange(150.0, 250.0))
    managed = SimpleNamespace(indices=SimpleNamespace(power=view), nodes=["a", "b", "c", "d"])
    monkeypatch.setattr(powers_module, "context_of", lambda scheduler: managed)
    found, note = powers(SimpleNamespace(scheduler=None))
    assert found == energy_weights(1000.0, 240.0) and "250 W at work, 60 W" in note
    managed.indices.power = None
    found, note = powers(SimpleNamespace(scheduler=None))
    assert found == TIME and note.startswith("for least time")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"objective": "money"}, "objective: found 'money'; allowed: time or energy"),
        ({"levels": "auto", "every": "5 s"}, "every: found '5 s', and levels=\"auto\""),
        ({"objective": "energy", "every": 3}, "every: found 3, and objective='energy'"),
        ({"levels": "automatic"}, "levels: found 'automatic'"),
    ],
)
def test_what_cannot_be_is_said(wanted, said, tmp_path):
    for call in (dask_hpc.protect, dask_hpc.Checkpoint):
        about = (None, "x") if call is dask_hpc.protect else ("x", str(tmp_path))
        with pytest.raises(InputError) as error:
            call(*about, **wanted)
        assert said in str(error.value)


@three
async def test_what_is_soon_computed_again_gets_no_copies_until_workers_die(c, s, *workers):
    x = c.map(inc, range(6))
    await wait(x)
    await dask_hpc.protect(x, "x", levels="auto", client=c)
    ours = controller(s)
    one = ours.protected["x"]
    await async_poll_for(lambda: one.schedule.planned is not None, 5)
    found = await dask_hpc.protected("x", client=c)
    assert found["copied"] == 0 and "lineage alone" in found["why"]
    one._work = dict.fromkeys(one.schedule.levels, 1e4)  # as if that had taken hours
    await dies(s, workers[0])
    assert ours.failures.expected("partner") > 1e-3
    await async_poll_for(lambda: one.schedule.chosen == ("partner",), 5)
    await async_poll_for(lambda: one.base is not None, 10)
    assert await c.gather(x) == [*range(1, 7)]


@three
async def test_what_nobody_can_compute_is_copied_at_once(c, s, *workers):
    x = await c.scatter([1, 2, 3])
    await dask_hpc.protect(x, "x", levels="auto", client=c)
    one = controller(s).protected["x"]
    await async_poll_for(lambda: one.base is not None, 10)
    told = (await dask_hpc.protected("x", client=c))["why"]
    assert told.startswith("copies to partner") and "lineage alone" in told


@three
async def test_a_program_asks_and_does_as_it_is_told(c, s, *workers):
    async with dask_hpc.Checkpoint("x", levels="auto", client=c) as ck:
        u = await ck.add("u", c.persist(da.zeros(6, chunks=2)))
        async for i in ck.loop(range(4)):
            u = c.persist(u + 1)
            await wait(u)
            ck.update(u=u)
            if i == 1:
                ck.due._asked_at = -inf
                controller(s).failures.seen("partner")
        told = await ck.stats()
    assert "an hour" in told.why and set(told.due) == {"partner"}
    assert (await c.compute(u) == 4).all()


@three
async def test_with_a_store_the_end_is_there_and_nothing_before(c, s, *workers, tmp_path):
    with dask.config.set({"hpc.checkpoint.store": str(tmp_path)}):
        async with dask_hpc.Checkpoint("x", levels="auto", objective="energy", client=c) as ck:
            u = await ck.add("u", 0)
            async for _ in ck.loop(range(3)):
                u += 1
                ck.update(u=u)
            told = await ck.stats()
    assert told.versions == {"store": 3} and told.commits == 1
    assert "nobody knows what the nodes draw" in told.why


@three
async def test_what_a_program_commits_may_be_in_the_store_alone(c, s, *workers, tmp_path):
    """What is protected is written when it is copied."""
    with dask.config.set({"hpc.checkpoint.store": str(tmp_path)}):
        x = c.submit(inc, 1)
        async with dask_hpc.Checkpoint("x", levels="auto", client=c) as ck:
            await ck.add("x", x)
            await ck.commit(wait=True)
            await dask_hpc.protect(x, "x", levels="auto", client=c)
            program, protected = controller(s).commits.series["x"], controller(s).protected["x"]
            assert ("partner", "store") in protected.schedule.possible
            assert ("store",) in program.schedule.possible and ("store",) not in protected.schedule.possible


@three
async def test_a_plan_that_takes_long_is_not_waited_for(c, s, *workers):
    """It is heard of when the program looks again; who has much time between two looks waits."""
    about = {"levels": ["partner"], "every": "auto", "aim": ["time", True], "name": "x"}
    async with dask_hpc.Checkpoint("x", levels="auto", client=c):
        ours, planned = controller(s), asyncio.Event()
        plan = ours.commits.series["x"].plan

        async def late():
            await planned.wait()
            await plan()

        ours.commits.series["x"].plan = late
        assert (await ours.commits.look(**about, patience=0.0))["every"] is None
        assert (await ours.commits.look(**about, patience=0.001))["every"] is None
        planned.set()
        assert (await ours.commits.look(**about, patience=60.0))["every"] == {"partner": inf}


def test_an_answer_is_waited_for_a_thousandth_of_an_iteration():
    due = Due("auto", asks=True)
    assert due.patience == 0.0
    due.iterated(20.0)
    assert due.patience == pytest.approx(0.02)
