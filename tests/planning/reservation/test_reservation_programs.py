"""The programs: best among all sequences, and the quick one equal to the document's cubic one."""

from dataclasses import replace
from math import inf
from time import process_time

import numpy as np
import pytest
from by_hand import (
    H,
    cubic,
    every_sequence,
    grid_of,
    law,
    mean_cost,
    random_grid,
    random_setting,
    reserved,
)

from dask_hpc.planning.reservation.cost import Cost
from dask_hpc.planning.reservation.discrete import equal_hazard, equal_probability, equal_time, grid_at
from dask_hpc.planning.reservation.law import EmpiricalLaw
from dask_hpc.planning.reservation.methods import METHODS, Question
from dask_hpc.planning.reservation.programs import all_checkpoint, no_checkpoint, optimal
from dask_hpc.planning.reservation.sequence import Milestone, Setting, expected_cost, steps


def test_the_quick_program_equals_the_cubic_one_on_a_thousand_random_laws():
    rng = np.random.default_rng(1)
    for number in range(1000):
        times, weights = random_grid(rng)
        saved = float(times[0] * rng.random()) if number % 4 == 3 else 0.0
        setting = random_setting(rng, float(times @ weights), saved=saved)
        grid = grid_of(times, weights, saved)
        found, known = optimal(grid, setting), cubic(grid, setting)
        assert found.expected == pytest.approx(known, rel=1e-12), number
        # and the sequence is one that costs this
        mean = mean_cost(found.milestones, times, weights, setting)
        assert mean == pytest.approx(known, rel=1e-10), number


def test_with_a_longest_request_too():
    rng = np.random.default_rng(2)
    possible = 0
    for number in range(300):
        times, weights = random_grid(rng)
        setting = random_setting(rng, float(times @ weights))
        setting = replace(setting, longest=float(times[-1] * rng.uniform(0.1, 1.2)))
        grid = grid_of(times, weights)
        found, known = optimal(grid, setting), cubic(grid, setting)
        assert found.expected == pytest.approx(known, rel=1e-12), number
        assert (found.milestones == ()) == (known == inf)
        if found.milestones:
            possible += 1
            assert max(one.length for one in steps(found.milestones, setting)) <= setting.longest * (
                1 + 1e-12
            )
            assert mean_cost(found.milestones, times, weights, setting) == pytest.approx(known, rel=1e-10)
    assert 100 < possible < 290, "both happen"


def test_each_program_is_the_best_of_all_sequences_of_its_kind():
    """Digest 8, item 11: exhaustive for six times."""
    rng = np.random.default_rng(3)
    for _ in range(25):
        times, weights = np.cumsum(rng.random(6) + 0.01), rng.dirichlet(np.ones(6))
        setting = random_setting(rng, 3.0, saved=float(times[0] / 2 * (rng.random() > 0.5)))
        grid = grid_of(times, weights, setting.saved)
        costs = {one: mean_cost(one, times, weights, setting) for one in every_sequence(times.tolist())}
        always = [cost for one, cost in costs.items() if all(m.commit for m in one[:-1])]
        never = [cost for one, cost in costs.items() if not any(m.commit for m in one)]
        assert optimal(grid, setting).expected == pytest.approx(min(costs.values()), rel=1e-12)
        assert all_checkpoint(grid, setting).expected == pytest.approx(min(always), rel=1e-12)
        assert no_checkpoint(grid, setting).expected == pytest.approx(min(never), rel=1e-12)
        nothing_kept = replace(setting, checkpoint=inf, restart=inf, saved=0.0)
        grid = grid_of(times, weights)
        assert optimal(grid, nothing_kept) == no_checkpoint(grid, nothing_kept)


def test_the_judge_equals_the_mean_over_jobs():
    rng = np.random.default_rng(4)
    for _ in range(30):
        times, weights = np.cumsum(rng.random(6) + 0.01), rng.dirichlet(np.ones(6))
        setting = random_setting(rng, 3.0, saved=float(times[0] / 2 * (rng.random() > 0.5)))
        of = EmpiricalLaw.of(times, weights)
        for one in every_sequence(times.tolist()):
            assert expected_cost(one, of, setting) == pytest.approx(
                mean_cost(one, times, weights, setting), rel=1e-12
            )
    assert expected_cost((Milestone(float(times[-2])),), of, setting) == inf, "a job may take longer"
    assert expected_cost((), of, setting) == inf


def test_its_cost_is_never_above_that_of_any_other_method_on_a_thousand_random_laws():
    rng = np.random.default_rng(5)
    names = [name for name in METHODS if name not in ("discrete-ckpt", "brute-force")]
    won = dict.fromkeys(names, 0)
    for number in range(1000):
        times, weights = random_grid(rng)
        setting = random_setting(rng, float(times @ weights))
        runs = tuple(rng.choice(times, 5, p=weights).tolist())
        question = Question(EmpiricalLaw.of(times, weights), setting, runs)
        best = METHODS["discrete-ckpt"](question, None).expected
        for name in names:
            chunks = int(rng.integers(1, 30)) if "periodic" in name else None
            other = METHODS[name](question, chunks).expected
            assert best <= other * (1 + 1e-12), (number, name)
            won[name] += best < other * (1 - 1e-9)
    assert all(won[name] for name in names if name != "dyn-prog-count"), "each of them can be worse"


@pytest.mark.parametrize("name", ["Exponential", "Weibull"])
def test_a_thousand_times_take_less_than_five_seconds(name):
    setting = reserved(0.1 * H, beta=1.0, gamma=0.1 * H)
    for make in (equal_time, equal_probability, equal_hazard):
        grid = make(law(name), 0.0, 1000, float(law(name).isf(1e-7)))
        began = process_time()
        assert optimal(grid, setting).milestones
        assert process_time() - began < 5
    limited = replace(setting, longest=2 * H)
    began = process_time()
    optimal(grid, limited)
    assert process_time() - began < 5


def test_commits_that_take_longer_the_later_they_are():
    """Of a state that grows: what each costs is that at its own time."""
    rng = np.random.default_rng(6)
    times, weights = np.cumsum(rng.random(5) + 0.01), rng.dirichlet(np.ones(5))
    commits = np.array([0.0, 0.1, 0.2, 0.9, 0.3, 7.0])
    setting = Setting(Cost(1.0, 0.5, 0.1), 0.0, 0.2)
    found = all_checkpoint(grid_of(times, weights), setting, commits)

    def paid(milestones, time):
        kept, total, restart = 0.0, 0.0, 0.0
        for number, one in enumerate(milestones):
            takes = commits[1 + times.tolist().index(one.work)] if number + 1 < len(milestones) else 0.0
            length = restart + one.work - kept + takes
            if time <= one.work:
                return total + length + 0.5 * (restart + time - kept) + 0.1
            total, kept, restart = total + 1.5 * length + 0.1, one.work, 0.2
        raise AssertionError

    def mean(milestones):
        return sum(w * paid(milestones, t) for t, w in zip(times, weights, strict=True))

    always = [one for one in every_sequence(times.tolist()) if all(m.commit for m in one[:-1])]
    assert found.expected == pytest.approx(min(map(mean, always)), rel=1e-12)
    assert mean(found.milestones) == pytest.approx(found.expected, rel=1e-12)


def test_any_cost_of_a_request_without_commits():
    """Theorem 14: long requests cost more than in proportion; the best of all sequences again."""
    rng = np.random.default_rng(7)
    setting = Setting(Cost(1.0, 0.7, 0.0))

    def price(length):
        return length**2 + 0.3 * length + 0.05

    for _ in range(10):
        times, weights = np.cumsum(rng.random(6) + 0.01), rng.dirichlet(np.ones(6))
        found = no_checkpoint(grid_of(times, weights), setting, price)

        def mean(milestones, times=times, weights=weights):
            total = 0.0
            for time, weight in zip(times, weights, strict=True):
                for one in milestones:
                    total += weight * (price(one.work) + 0.7 * min(time, one.work))
                    if time <= one.work:
                        break
            return total

        never = every_sequence(times.tolist(), can_commit=False)
        assert found.expected == pytest.approx(min(map(mean, never)), rel=1e-12)


def test_where_nearly_nothing_is_left_there_is_one_request():
    """All choices cost the same there: rounding would make requests out of nothing."""
    times = np.arange(1.0, 61.0)
    weights = 0.1 ** np.arange(60)
    grid = grid_of(times, weights)
    assert len(grid.times) < 25 and grid.times[-1] == 60.0
    assert optimal(grid, reserved(0.01)).milestones[-1] == Milestone(60.0, False)


def test_grids():
    exponential, uniform = law("Exponential"), law("Uniform")
    end = float(exponential.isf(1e-7))
    by_time = equal_time(exponential, 0.0, 10, end)
    assert np.allclose(np.diff(by_time.times), end / 10)
    assert by_time.longer[0] == 1 and by_time.longer[-1] == 0
    assert by_time.weights.sum() == pytest.approx(1)
    likely = equal_probability(exponential, 0.0, 10, end)
    assert np.allclose(likely.weights, 0.1)
    hazard = equal_hazard(exponential, 0.0, 200, end)
    assert len(hazard.times) == 201 and hazard.times[-1] == end
    stops = grid_at(uniform, 0.0, [10 * H, 20 * H], [0.5 * H, 10 * H, 15 * H, 30 * H])
    assert stops.times.tolist() == [0.0, 0.5 * H, 10 * H, 15 * H, 20 * H]
    assert stops.longer == pytest.approx([1, 1, 10 / 19, 5 / 19, 0])
