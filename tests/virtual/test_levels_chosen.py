"""Levels are chosen on the virtual clock: programs whose workers die, and such whose workers do not."""

from statistics import fmean

import pytest
from killed_programs import run

WAYS = ("auto", ["partner"])


def test_a_program_that_loses_a_worker_is_kept_from_then_on(virtual_cluster):
    took, told = run(virtual_cluster, "auto", mtbf=15.0, seed=4, steps=30)
    assert told.commits > 5 and "partner" in told.versions
    plain, _ = run(virtual_cluster, None, mtbf=15.0, seed=4, steps=30)
    assert took < 0.8 * plain


def test_a_program_that_loses_none_takes_no_longer(virtual_cluster):
    took, told = run(virtual_cluster, "auto", mtbf=None, seed=1, steps=20)
    plain, _ = run(virtual_cluster, None, mtbf=None, seed=1, steps=20)
    assert took < 1.02 * plain
    assert "lineage alone" in told.why and "an hour" in told.why


@pytest.mark.slow
def test_a_choice_is_hardly_worse_than_a_partner_alone_under_many_seeds(virtual_cluster):
    took = [[run(virtual_cluster, way, 20.0, seed, steps=40)[0] for seed in range(4)] for way in WAYS]
    found, fixed = map(fmean, took)
    assert found <= 1.1 * fixed, took
