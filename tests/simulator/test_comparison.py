"""Which policy is better, by hand-made numbers."""

import numpy as np
import pandas as pd
import pytest

from dask_hpc import InputError
from dask_hpc.simulator.comparison import ComparedPolicies, mean_and_half_width
from dask_hpc.simulator.result import METRICS
from dask_hpc.simulator.study import Study


def made(**policies):
    """A study: of each policy, values by metric, one for each seed."""
    frames = []
    for name, given in policies.items():
        values = dict.fromkeys(METRICS, 0.0) | {"completed": 5.0, "makespan": 100.0, "energy": np.nan} | given
        draws = max(np.size(one) for one in values.values())
        frames.append(pd.DataFrame({"policy": name, "seed": range(draws), **values}))
    return Study(pd.concat(frames, ignore_index=True))


def told(found):
    return {name for name, *_ in found.shown}


def verdicts(study, metric="mean_wait"):
    return {row.policy: row.figures[metric].verdict for row in study.compared().rows}


WAITS = np.array([10.0, 100.0, 1000.0, 5000.0])  # draws differ far more than policies do


def test_what_differs_in_every_draw_decides():
    study = made(base={"mean_wait": WAITS}, less={"mean_wait": WAITS - [4, 5, 6, 5]})
    figure = study.compared().rows[1].figures["mean_wait"]
    assert (figure.more, round(figure.more_half, 3)) == (-5.0, 1.299)  # t(3) = 3.182 times sqrt(2/3) / 2
    assert figure.half > 1000 and figure.verdict == "better"
    assert verdicts(made(base={"mean_wait": WAITS}, more={"mean_wait": WAITS + 1}))["more"] == "worse"


def test_an_interval_that_holds_0_decides_nothing():
    study = made(
        base={"mean_wait": WAITS}, some={"mean_wait": WAITS - [0, 1, 0, -0.5]}, none={"mean_wait": WAITS}
    )
    assert verdicts(study) == {"base": "", "some": "undecided", "none": "same"}
    assert verdicts(made(base={"mean_wait": 5.0}, one={"mean_wait": 3.0})) == {"base": "", "one": "undecided"}


def test_who_serves_other_jobs_is_not_better():
    left = {"completed": np.array([5, 5, 5, 4]), "unfinished": np.array([0, 0, 0, 1])}
    study = made(base={"mean_wait": WAITS}, fewer={"mean_wait": WAITS / 2, **left})
    base, fewer = study.compared().rows
    assert not fewer.is_alike and fewer.figures["mean_wait"].verdict == "other jobs"
    assert fewer.figures["mean_wait"].more is None
    assert fewer.figures["not_completed"].mean == 0.25
    assert fewer.figures["not_completed"].verdict == "undecided"
    assert "not_completed" in told(study.compared())
    assert "not_completed" not in told(ComparedPolicies([base]))
    # what is killed is as little served
    killed = made(base={"mean_wait": WAITS}, kills={"completed": np.full(4, 4), "killed": 1})
    assert verdicts(killed, "not_completed")["kills"] == "worse"


def test_energy_is_compared_and_power_is_a_fact():
    study = made(
        base={"energy": WAITS * 50, "makespan": 50.0},
        longer={"energy": WAITS * 60, "makespan": 100.0},  # at less power
    )
    longer = study.compared().rows[1].figures
    assert longer["power"].mean < study.compared().rows[0].figures["power"].mean
    assert longer["power"].verdict == ""
    assert longer["energy"].verdict == "undecided"  # in no draw less, but by how much is open
    more = made(base={"energy": WAITS * 50}, more={"energy": WAITS * 50 + 9})
    assert verdicts(more, "energy")["more"] == "worse"
    assert told(made(base={}, other={}).compared()) & {"energy", "power"} == set()


def test_the_best_is_marked_and_who_cannot_be_told_from_it():
    study = made(
        base={"mean_wait": WAITS},
        good={"mean_wait": WAITS - [4, 5, 6, 5]},
        best={"mean_wait": WAITS - [8, 9, 8, 9]},
        also={"mean_wait": WAITS - [9, 8, 9, 7.5]},
        worse={"mean_wait": WAITS + 3},
    )
    assert [row.policy for row in study.compared().rows if row.figures["mean_wait"].is_best] == [
        "best",
        "also",
    ]


def test_against_whom():
    study = made(base={"mean_wait": WAITS}, other={"mean_wait": WAITS - 1})
    assert study.differences().index.tolist() == ["other"]
    assert study.differences("other").loc["base", "mean_wait"] == 1
    assert [row.is_base for row in study.compared("other").rows] == [False, True]
    with pytest.raises(InputError, match="nobody"):
        study.differences("nobody")


def test_seeds_are_paired_whatever_their_order():
    study = made(base={"mean_wait": WAITS}, other={"mean_wait": WAITS - 1})
    mixed = Study(pd.concat([study.runs[:4], study.runs[:3:-1]], ignore_index=True))
    assert mixed.differences().loc["other", "mean_wait"] == -1
    assert mixed.differences().loc["other", "mean_wait_ci"] == 0


def test_an_interval_of_many_draws_is_student_s():
    values = np.arange(50.0)
    _, half = mean_and_half_width(values)
    assert half / (values.std(ddof=1) / np.sqrt(50)) == pytest.approx(2.00958, abs=1e-4)  # t(49)
