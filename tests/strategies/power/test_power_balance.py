"""The account of watts, by hand: least and most of everything are told apart."""

from dataclasses import replace

import pytest
from power_machine import job, machine, rigid

from dask_hpc.model.power import Corridor, PowerRange
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.power.balance import Balance, Coming, Learned, PowerBounds, common, learn

JOB = PowerRange(60, 100)


@pytest.fixture
def snapshot():
    """Eight nodes of 10 W when idle: a job on four, one works outside of jobs, and another one will."""
    figures = {"active": PowerRange(70, 110), "outside": PowerRange(40, 80)}
    return Snapshot(machine(running=[job("a", 4, power=JOB)], outside_nodes=1, outside_wanted=2, **figures))


@pytest.fixture
def balance(snapshot):
    return Balance.of(snapshot, snapshot.power, bias=5, extra=PowerRange(1, 3))


def test_the_figures_of_a_machine(balance):
    assert balance.planned == PowerRange(240 + 80 + 20 + 5 - 1, 400 + 160 + 20 + 5 + 3)
    assert balance.peak == 588
    assert balance.with_outside(1) == 400 + 80 + 30 + 5 + 3
    assert balance.now == PowerRange(240 + 40 + 30, 400 + 80 + 30)
    assert balance.active == 4 * 90 + 2 * 70
    assert (balance.working, balance.resting) == (6, 2 * 10 + 5 + 3)
    assert balance.alone("a", 3) == 300 + 50 + 5 + 3


def test_who_is_in_doubt_may_draw_what_working_nodes_do(snapshot, balance):
    assert balance.at_worst("a") == JOB
    wary = Balance.of(snapshot, snapshot.power, is_wary=True)
    assert wary.at_worst("a") == PowerRange(60, 110) and wary.peak == 4 * 110 + 160 + 20
    wary.view.jobs["a"] = PowerRange(60, 200)
    assert wary.at_worst("a") == PowerRange(60, 200)


def test_in_doubt_whatever_is_decided_counts_at_its_worst(snapshot):
    wary = Balance.of(snapshot, snapshot.power, is_wary=True)
    assert wary.alone("a", 3) == 3 * 110 + 5 * 10
    assert wary.fits("a", 4, 5, wary.peak + 100) and not wary.fits("a", 4, 5, wary.peak + 99)
    before = wary.peak
    wary.book("a", 4, 5)
    assert wary.peak == before + 110 - 10
    wary.view.jobs["a"] = PowerRange(5, 8)  # less than an idle node, if that is true
    wary.book("a", 5, 4)
    assert wary.peak == before + 110 - 10


def test_in_doubt_bounds_to_come_leave_room_for_what_working_nodes_draw(snapshot):
    """Of 479 W, 80 W are drawn at rest and 90 W more by "a" on one node, or 100 W; the new job needs 270 W,
    or 300 W."""
    for is_wary in (False, True):
        balance = Balance.of(snapshot, snapshot.power, is_wary=is_wary)
        balance.view.jobs["r"] = JOB
        coming = Coming(snapshot, balance, Corridor(((0, 0, 1000), (150, 0, 479))), 1000, 0)
        assert coming.admits(rigid("r", 3, power=JOB), 3) != is_wary


def test_what_is_drawn_beyond_the_figures_is_learned_unless_readings_are_as_uncertain(snapshot):
    for uncertainty, is_learned in ((20.0, False), (19.0, True)):
        view = replace(snapshot.power, source="measured", watts=320.0, uncertainty=uncertainty)
        known = Learned(revision=snapshot.revision, time=0)
        assert (learn(known, snapshot, view, PowerRange(300, 300), 30, True).bias > 0) == is_learned


def test_nodes_that_no_job_holds_are_restless_if_they_cannot_be_held(snapshot):
    for holdable, restless in ((None, 0), (1, 3), (4, 0), (5, 0)):
        view = replace(snapshot.power, holdable=holdable)
        assert Balance.of(snapshot, view).restless == restless, "of the four without a job"


def test_in_doubt_nothing_is_learned_and_less_than_the_figures_say_is_forgotten(snapshot):
    view = replace(snapshot.power, doubt="the sensor of node 3 says 0 W")
    for bias, after in ((-50, 0), (50, 50)):
        known = Learned(bias=bias, revision=snapshot.revision, time=0)
        assert learn(known, snapshot, view, PowerRange(300, 300), 30, True).bias == after


def test_what_is_given_up_is_drawn_until_it_is_gone(balance):
    balance.book("a", 4, 3)
    assert balance.planned == PowerRange(180 + 80 + 30 + 4, 300 + 160 + 30 + 8) and balance.peak == 588
    balance.book("a", 3, 5)
    assert balance.peak == 588 + 2 * 100 - 2 * 10


def test_what_draws_less_than_an_idle_node_is_not_counted_on(balance):
    """To give up such nodes means more power at once; as long as it may draw more, it does not."""
    for most, peak in ((20, 588), (8, 588 + 10 - 8)):
        balance.view.jobs["a"] = PowerRange(5, most)
        balance.book("a", 4, 3)
        assert balance.peak == peak


def test_a_job_grows_as_far_as_its_most_fits(balance):
    grown = job("a", 4, power=JOB)
    assert balance.fits("a", 4, 5, 678) and not balance.fits("a", 4, 5, 677)
    assert balance.largest(grown, 4, 6, 700) == 5
    assert balance.largest(grown, 4, 6, 677) == 4


def test_too_much_counts_by_the_most_and_too_little_by_the_least():
    bounds = PowerBounds(100, 200, 10)
    assert bounds.side(PowerRange(90, 210)) == bounds.side(PowerRange(110, 210)) == "upper"
    assert bounds.side(PowerRange(90, 190)) == "lower" and bounds.side(PowerRange(100, 200)) == ""
    assert (bounds.floor, bounds.ceiling) == (110, 190)
    assert PowerBounds.around(100, 120, 10).edge == 5


def test_what_is_inside_now_and_later():
    corridor = Corridor(((0, 100, 500), (10, 200, 600), (20, 50, 300)))
    assert common(corridor, 5, 6, 0) == PowerBounds(200, 500)
    assert common(corridor, 5, 20, 0) == PowerBounds(200, 300)
    assert common(corridor, 25, 9, 0) is None
    assert common(Corridor(((0, 0, 100), (10, 200, 600))), 5, 6, 0) is None


def test_bounds_to_come_leave_room_for_the_smallest_sizes_at_their_most(snapshot, balance):
    coming = Coming(snapshot, balance, Corridor(((0, 0, 1000), (150, 0, 500))), 1000, 0)
    new = PowerRange(5, 100)  # of the new one, too, the most counts; "a" needs 90 W above idle
    balance.view.jobs["r"] = new
    assert coming.admits(rigid("r", 3, power=new), 3)  # 270 W of 500 - 88 - 90
    assert not coming.admits(rigid("r", 4, power=new), 4)
    assert coming.admits(rigid("r", 4, power=new, walltime=40), 4)  # gone by then
    for most, fits in ((332, True), (333, False)):
        balance.view.jobs["s"] = PowerRange(5, most)
        assert coming.admits(rigid("s", 1), 1) == fits
    coming.book(rigid("r", 1, power=new), 1)
    assert not coming.admits(rigid("r", 3, power=new), 3)
