"""The law of used over requested time, learned by looking."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from queues import queue

from dask_hpc.planning.asks.queue import PendingAsk, RunningAsk
from dask_hpc.planning.asks.used import ShareLaw, ShareWatch, UsedShare, UsedShares

SHARES = st.floats(0, 1)


@given(st.lists(st.tuples(SHARES, SHARES, st.booleans()), max_size=30), SHARES, SHARES, SHARES)
def test_quantiles_rise_with_the_level_and_with_what_was_used(seen, after, low, high):
    law = ShareLaw.of(UsedShare(60.0, min(a, b), max(a, b), over) for a, b, over in seen)
    low, high = sorted((low, high))
    given_law = law.given(after)
    assert after <= given_law.quantile(low) <= given_law.quantile(high) <= 1.0
    assert law.quantile(low) <= given_law.quantile(low) + 1e-9
    assert given_law.quantile(1.0) == 1.0 or law.levels[-1] == 1.0


def test_it_is_the_empirical_law_of_jobs_that_were_seen_from_their_beginning():
    law = ShareLaw.of(UsedShare(60.0, 0.0, share) for share in (0.2, 0.4, 0.6, 0.8))
    assert [round(law.quantile(level), 9) for level in (0.25, 0.5, 0.75, 1.0)] == [0.2, 0.4, 0.6, 1.0]
    assert law.level(0.4) == 0.5
    assert law.given(0.4).quantile(0.5) == 0.6


def test_who_was_seen_late_says_nothing_of_shorter_ones_and_who_runs_only_that_he_is_longer():
    dice = random.Random(1)
    truth = [dice.random() ** 2 for _ in range(4000)]
    seen = []
    for share in truth:
        first, last = dice.random() * 0.5 if dice.random() < 0.5 else 0.0, dice.random() * 1.5
        if share > first:
            seen.append(UsedShare(60.0, first, min(share, last), is_over=share < last))
    law = ShareLaw.of(one for one in seen if one.last >= one.first)
    for level in (0.2, 0.4, 0.6, 0.8):
        assert abs(law.quantile(level) - np.quantile(truth, level)) < 0.03


def test_jobs_of_another_walltime_stand_for_this_one_only_if_there_are_no_others():
    short = [UsedShare(300.0, 0.0, 0.1)] * 30
    long = [UsedShare(36_000.0, 0.0, 0.9)] * 30
    law = UsedShares((*short, *long))
    assert law.given(0.0, 400.0).quantile(0.9) <= 0.1
    assert law.given(0.0, 30_000.0).quantile(0.5) > 0.4
    assert law.given(0.0, 1e9).quantile(0.9) > law.given(0.0, 400.0).quantile(0.9)


def test_a_watch_learns_from_jobs_that_come_and_go():
    watch = ShareWatch()
    pending = PendingAsk("a", ("batch",), 1, 100.0)
    early = RunningAsk("b", ("n0",), 0.0, 1000.0)
    watch.look(queue(now=100.0).__class__(100.0, {}, {}, (early,), (pending,)))
    watch.look(queue().__class__(120.0, {}, {}, (early, RunningAsk("a", ("n1",), 110.0, 100.0)), ()))
    found = watch.look(queue().__class__(140.0, {}, {}, (early,), ()))
    assert found.seen == (
        UsedShare(100.0, 0.0, (0.1 + 0.3) / 2),  # in the middle between the two looks
        UsedShare(1000.0, 0.1, 0.14, is_over=False),
    )
