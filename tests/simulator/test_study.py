"""Studies: the same figures wherever trials run, and no trial twice."""

import json

import numpy as np
import pandas as pd
import pytest
from distributed import Client

from dask_hpc import InputError, Policy
from dask_hpc.simulator import Overlay, Workload, reporting_seeds, synthetic_day, tuning_seeds
from dask_hpc.simulator.comparison import mean_and_half_width
from dask_hpc.simulator.study import Trial, study, variants


@pytest.fixture
def workload():
    return Workload("days", list(synthetic_day(60, 32, load=1.0, seed=1)), 32)


def test_runs_and_summary(workload):
    found = study(workload, ["fcfs", "easy-backfill"], seeds=3, malleable=0.5)
    assert list(found.runs[["policy", "seed"]].itertuples(index=False, name=None)) == [
        (policy, seed) for policy in ("fcfs", "easy-backfill") for seed in range(3)
    ]
    assert list(found.summary.index) == ["fcfs", "easy-backfill"]
    waits = found.runs[found.runs.policy == "fcfs"].mean_wait
    assert found.summary.loc["fcfs", "mean_wait"] == pytest.approx(waits.mean())


def test_confidence_interval_of_a_known_sample():
    mean, half = mean_and_half_width(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert (mean, round(half, 3)) == (3.0, 1.963)  # t(4) = 2.776 times sqrt(2.5 / 5)
    assert np.isnan(mean_and_half_width(np.array([1.0]))[1])


def test_a_cluster_gives_the_same_figures(workload):
    here = study(workload, ["easy-backfill"], seeds=2, malleable=0.5).runs
    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0") as client:
        there = study(workload, ["easy-backfill"], seeds=2, malleable=0.5, client=client).runs
    pd.testing.assert_frame_equal(here, there)


def test_finished_trials_are_not_run_again(workload, tmp_path, monkeypatch):
    store = tmp_path / "store.jsonl"
    first = study(workload, ["fcfs"], seeds=3, store=store)
    text = store.read_text()
    lines = text.splitlines()
    store.write_text("\n".join([lines[0], lines[1], lines[2][: len(lines[2]) // 2]]))  # cut off
    runs = []
    plain = Trial.run
    monkeypatch.setattr(Trial, "run", lambda self: runs.append(self.seed) or plain(self))
    again = study(workload, ["fcfs"], seeds=3, store=store)
    assert runs == [2]
    pd.testing.assert_frame_equal(first.runs, again.runs)
    assert [json.loads(line)["trial"] for line in store.read_text().splitlines()[-1:]]
    study(workload, ["fcfs"], seeds=3, store=store)
    assert runs == [2]


def test_another_policy_text_is_another_trial(workload):
    plain = Trial(workload, Policy.load("easy-backfill"), 0)
    changed = Trial(workload, Policy.load("easy-backfill").with_(**{"queue.depth": 3}), 0)
    assert plain.key != changed.key
    assert plain.key == Trial(workload, Policy.load("easy-backfill"), 0).key


def test_sweeps_are_named_after_what_they_change():
    found = variants([Policy.load("easy-backfill")], {"queue.depth": [1, 2]})
    assert [policy.name for policy in found] == ["easy-backfill queue.depth=1", "easy-backfill queue.depth=2"]
    assert [policy.queue.depth for policy in found] == [1, 2]


def test_progress_is_told(workload):
    told = []
    study(workload, ["fcfs"], seeds=2, progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize("seeds", [0, -1, 1.5, True])
def test_bad_numbers_of_seeds(workload, seeds):
    with pytest.raises(InputError, match="seeds: found"):
        study(workload, ["fcfs"], seeds=seeds)


def test_seeds_to_tune_with_and_to_report_with_have_none_in_common(workload):
    tried, told = tuning_seeds(500_000), reporting_seeds(500_000)
    assert len(tried) == len(told) == 500_000 and max(tried) < min(told) == 1_000_000
    found = study(workload, ["fcfs"], seeds=reporting_seeds(2), malleable=0.5).runs
    assert list(found["seed"]) == [1_000_000, 1_000_001]
    assert list(study(workload, ["fcfs"], seeds=2).runs["seed"]) == list(tuning_seeds(2))
    for wrong in (0, 1_000_001, True, 1.0):
        for half in (tuning_seeds, reporting_seeds):
            with pytest.raises(InputError, match="seeds: found"):
                half(wrong)


def test_nothing_is_tuned_on_the_reporting_half(workload):
    sweep = {"queue.depth": [1, 2]}
    with pytest.raises(InputError, match="seeds: found 1000001 with a sweep; allowed: below 1,000,000"):
        study(workload, ["easy-backfill"], seeds=reporting_seeds(2), sweep=sweep)
    assert len(study(workload, ["easy-backfill"], seeds=tuning_seeds(2), sweep=sweep).runs) == 4


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1], [0.5], "12", [True]])
def test_bad_lists_of_seeds(workload, seeds):
    with pytest.raises(InputError, match="seeds: found"):
        study(workload, ["fcfs"], seeds=seeds)


def test_an_overlay_is_part_of_a_trial(workload):
    plain, wide = (
        Trial(workload, Policy.load("elastic"), 0, overlay=overlay)
        for overlay in (Overlay(malleable=0.5), Overlay(malleable=0.5, rule="wide"))
    )
    assert plain.key != wide.key != Trial(workload, Policy.load("elastic"), 0).key
    share = study(workload, ["elastic"], seeds=1, malleable=0.5).runs
    same = study(workload, ["elastic"], seeds=1, overlay=Overlay(malleable=0.5, rule="constraint")).runs
    pd.testing.assert_frame_equal(share, same)
    with pytest.raises(InputError, match=r"malleable: found 0\.5; allowed: nothing beside an overlay"):
        study(workload, ["elastic"], malleable=0.5, overlay=Overlay())
