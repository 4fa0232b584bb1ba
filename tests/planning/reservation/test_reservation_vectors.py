"""The reference values of digest 004, section 8, that concern reservations.

Items 1 and 2 are in tests/planning/test_partition_relaxed.py, items 11 in test_reservation_programs.py, 13 in
test_memory_chain.py, and the row of 14 is a claim of ``reproduce reservation-checkpoints`` as well.
"""

from math import inf

import numpy as np
import pytest
from by_hand import LAWS, H, law, mean_cost, reserved
from scipy.optimize import brentq

from dask_hpc.planning.reservation.brute_force import ConvexPrice, brute_force, most_first
from dask_hpc.planning.reservation.closed_forms import (
    EXPONENTIAL_FIRST,
    EXPONENTIAL_NEVER,
    exponential_always,
    uniform_best,
    uniform_chunks,
)
from dask_hpc.planning.reservation.cost import Cost
from dask_hpc.planning.reservation.discrete import end_of, equal_time
from dask_hpc.planning.reservation.law import EmpiricalLaw, read_law
from dask_hpc.planning.reservation.methods import METHODS, Question, choose
from dask_hpc.planning.reservation.programs import all_checkpoint, no_checkpoint, optimal
from dask_hpc.planning.reservation.rules import by_rule, periodic, periodic_costs
from dask_hpc.planning.reservation.sequence import Milestone, Setting, expected_cost


def answer(name, setting, method="best", number=1000):
    return choose(Question(law(name), setting, (), number), method, compare=False)


def test_3_exponential_without_commits():
    found = answer("Exponential", reserved())
    assert (
        found.expected / H == pytest.approx(EXPONENTIAL_NEVER, rel=2e-5)
        and found.expected / H > EXPONENTIAL_NEVER
    )
    assert found.milestones[0].work / H == pytest.approx(EXPONENTIAL_FIRST, abs=0.01)
    scan = answer("Exponential", reserved(), "brute-force 20000")
    assert scan.milestones[0].work / H == pytest.approx(EXPONENTIAL_FIRST, abs=1e-3)
    assert scan.expected / H == pytest.approx(EXPONENTIAL_NEVER, rel=1e-4)
    quick = read_law("exponential mean=6min")
    tenth = choose(Question(quick, reserved()), compare=False)
    assert tenth.expected == pytest.approx(found.expected / 10, rel=1e-9), "whatever the unit"


def test_3_the_first_request_gives_the_cost():
    """E = s1 + 1 + sum of e^-s_i; s2 = e^s1, s_i = e^(s_(i-1) - s_(i-2)), as far as floats go."""
    before, this, total = 0.0, EXPONENTIAL_FIRST, EXPONENTIAL_FIRST + 1
    for _ in range(8):
        total += np.exp(-this)
        before, this = this, np.exp(this - before) if before else np.exp(this)
    assert total == pytest.approx(EXPONENTIAL_NEVER, abs=1e-3)


@pytest.mark.parametrize("cost", [Cost(1, 0, 0), Cost(0.5, 2.0, 100.0), Cost(3, 0, 1e5)])
def test_4_uniform_without_commits_is_one_request(cost):
    for words in ("uniform min=1h max=20h", "uniform min=10h max=20h"):
        found = choose(Question(read_law(words), Setting(cost)), compare=False)
        assert found.milestones == (Milestone(20 * H),)


def test_5_exponential_always_with_commits():
    setting = Setting(Cost(1, 0, 0), 0.1, 0.1)
    assert exponential_always(1.0, setting) == pytest.approx((0.5722498, 1.6722498), abs=1e-7)
    dear = Setting(Cost(1, 1, 0.1), 1.0, 1.0)
    assert exponential_always(1.0, dear) == pytest.approx((1.9535279, 5.0535279), abs=1e-7)
    found = answer("Exponential", reserved(0.1 * H))
    assert found.expected / H == pytest.approx(1.6722498, abs=1e-6) and found.by == "closed form"
    program = answer("Exponential", reserved(0.1 * H), "all-checkpoint")
    assert 1.6722498 < program.expected / H < 1.6724
    # commits that cost nearly nothing: the branch of the formula without its digits
    tiny = exponential_always(1.0, Setting(Cost(1, 0, 0), 1e-9, 1e-9))
    assert tiny.period == pytest.approx(np.sqrt(4e-9), rel=1e-3)
    assert tiny.expected == pytest.approx(1 + tiny.period, rel=1e-6)


def test_6_where_always_and_never_cost_the_same():
    def difference(commit):
        return exponential_always(1.0, Setting(Cost(), commit, commit)).expected - EXPONENTIAL_NEVER

    assert brentq(difference, 0.1, 1.0) == pytest.approx(0.3616, abs=1e-4)


def test_7_uniform_equal_chunks():
    known = [20, 17, 16.6667, 17, 17.6, 18.3333, 19.1429]
    assert [uniform_chunks(2, 20, 1, 1, n) for n in range(1, 8)] == pytest.approx(known, abs=1e-4)
    assert (
        uniform_best(2, 20, 1, 1) == 3 and uniform_best(2, 20, 8, 1) == 1 and uniform_best(2, 20, 9.5, 1) == 1
    )
    of, setting = read_law("uniform min=2h max=20h"), reserved(H)
    costs = periodic_costs(of, setting, 20 * H, range(1, 8), commits=True)
    assert costs / H == pytest.approx(known, abs=1e-4)
    # equal chunks are not the best: the last one needs no commit
    better = (Milestone(9.67 * H, True), Milestone(15.33 * H, True), Milestone(20 * H))
    assert expected_cost(better, of, setting) / H == pytest.approx(16.54, abs=0.005)
    assert choose(Question(of, setting), compare=False).expected / H == pytest.approx(16.54, abs=0.005)


def normalised(words, rule):
    of = read_law(words)
    return METHODS[rule](Question(of, reserved()), None).expected / of.mean


def test_8_rules_of_thumb():
    assert normalised("uniform min=10h max=20h", "mean-by-mean") == pytest.approx(2.2222, abs=1e-4)
    assert normalised("uniform min=10h max=20h", "mean-doubling") == pytest.approx(1.6667, abs=1e-4)
    for rule in ("mean-by-mean", "mean-stdev"):
        assert normalised(LAWS["Exponential"], rule) == pytest.approx(2.5027, abs=1e-4)


@pytest.mark.parametrize(
    "name, optimum, by_mean, stdev, doubling, median",
    [
        ("Exponential", 2.3645, 2.503, 2.503, 2.429, 2.773),
        ("Weibull", 2.549, 2.877, 3.300, 2.928, 2.883),
        ("Gamma", 2.145, 2.326, 2.271, 2.203, 2.625),
        ("Lognormal", 1.917, 2.120, 2.096, 2.016, 2.456),
        ("TruncatedNormal", 1.369, 2.027, 1.840, 2.000, 2.191),
        ("Pareto", 1.732, 1.800, 1.944, 1.790, 2.270),
        ("Uniform", 1.905, 2.603, 2.164, 1.952, 2.603),
        ("Beta", 1.805, 2.401, 2.094, 2.000, 2.505),
        ("BoundedPareto", 1.922, 1.972, 2.125, 1.928, 2.375),
    ],
)
def test_table_11_3_as_it_is_exactly(name, optimum, by_mean, stdev, doubling, median):
    """Digest 5.3: the best plan and four rules, over an omniscient's cost."""
    words = LAWS[name] if name != "TruncatedNormal" else f"truncnormal mean=8h std={2**0.5!r}h"
    of = read_law(words)
    found = choose(Question(of, reserved(), (), 400), compare=False)
    assert found.expected / of.mean == pytest.approx(optimum, abs=1e-3)
    rules = ("mean-by-mean", "mean-stdev", "mean-doubling", "median-by-median")
    known = (by_mean, stdev, doubling, median)
    assert [normalised(words, rule) for rule in rules] == pytest.approx(known, abs=1e-3)


@pytest.mark.parametrize(
    "words, t, known",
    [
        ("weibull shape=0.5 scale=1s", 2.3, 7.33315018),
        ("gamma shape=2 scale=0.5s", 2.3, 2.88928571),
        (f"lognormal median={float(np.exp(3))!r}s sigma=0.5", 30, 41.08458379),
        (f"truncnormal mean=8s std={2**0.5!r}s", 9.5, 10.22587367),
        ("pareto min=1.5s shape=3", 4, 6),
        ("beta a=2 b=2 min=0 max=1s", 0.6, 0.74545455),
        ("boundedpareto min=1s max=20s shape=2.1", 5, 7.89771432),
        ("exponential mean=2s", 3, 5),
        ("uniform min=1s max=20s", 5, 12.5),
    ],
)
def test_9_the_mean_of_what_is_longer(words, t, known):
    of = read_law(words)
    assert of.conditional_mean(t) == pytest.approx(known, abs=1e-8)
    assert of.given(t).mean == pytest.approx(known, abs=1e-8)
    second = by_rule("mean-by-mean", of.given(t), (), reserved())[0].work
    assert second == pytest.approx(known, abs=1e-8)


def test_10_the_worked_example():
    """Section 9.1.3: the probabilities are its, the fourth cost is not (its third request is too long)."""
    times, weights = (20.0, 40.0, 80.0), (0.66, 0.26, 0.08)
    setting = Setting(Cost(1, 0, 0), 7.0, 7.0)
    ways = {
        80.0: [Milestone(80.0)],
        47.2: [Milestone(20.0), Milestone(80.0)],
        41.54: [Milestone(20.0, True), Milestone(40.0), Milestone(80.0)],
        42.32: [Milestone(20.0, True), Milestone(40.0, True), Milestone(80.0)],
    }
    of = EmpiricalLaw.of(times, weights)
    for known, way in ways.items():
        assert expected_cost(way, of, setting) == pytest.approx(known)
        assert mean_cost(way, times, weights, setting) == pytest.approx(known)
    fitted = read_law("lognormal mean=21.4h std=19.7h max=80h")
    shares = [*fitted.cdf(np.array([20 * H, 40 * H])), 1.0]
    assert np.diff(shares, prepend=0) == pytest.approx([0.63, 0.27, 0.10], abs=0.005)


#: digest 5.4: the best cost in hours, and how much more always and never committing costs; 6 min, 1 h
_TABLE = {
    "Exponential": (1.6723, 1.000, 1.414, 2.3641, 1.483, 1.000),
    "Weibull": (2.9056, 1.001, 1.760, 4.2991, 1.275, 1.189),
    "Gamma": (1.6101, 1.000, 1.332, 2.1452, 1.508, 1.000),
    "Lognormal": (25.2632, 1.000, 1.727, 30.6002, 1.000, 1.426),
    "Pareto": (2.8577, 1.000, 1.368, 3.8547, 1.193, 1.014),
    "TruncatedNormal": (8.9672, 1.000, 1.221, 10.7389, 1.022, 1.020),
    "Uniform": (12.3376, 1.000, 1.621, 16.2105, 1.000, 1.234),
    "Beta": (0.8519, 1.023, 1.059, 0.9026, 1.108, 1.000),
    "BoundedPareto": (2.4613, 1.000, 1.438, 3.4651, 1.239, 1.022),
}


@pytest.mark.parametrize("name", _TABLE)
def test_12_costs_with_commits_that_pay(name):
    """With the grid that the digest used; what is planned has a better one, and costs no more."""
    of = law(name)
    cut = of.until(end_of(of))
    grid = equal_time(cut, 0.0, 1000, cut.high)
    for commit, known in zip((0.1 * H, H), (_TABLE[name][:3], _TABLE[name][3:]), strict=True):
        setting = reserved(commit)
        best = optimal(grid, setting).expected
        assert best / H == pytest.approx(known[0], abs=6e-5)
        assert all_checkpoint(grid, setting).expected / best == pytest.approx(known[1], abs=6e-4)
        assert no_checkpoint(grid, setting).expected / best == pytest.approx(known[2], abs=6e-4)
        planned = choose(Question(of, setting, (), 150), compare=False).expected
        # cut where 1e-7 is left, a law is a little shorter
        assert planned <= best * (1 + 5e-4)


@pytest.mark.parametrize(
    "beta, commit, best, always, never",
    [
        (0, 600, 1.166, 1.166, 2.223),
        (0, 3600, 1.410, 1.410, 2.223),
        (0, 43200, 2.183, 2.614, 2.223),
        (1, 600, 1.114, 1.114, 1.847),
        (1, 3600, 1.271, 1.271, 1.847),
        (1, 43200, 1.807, 1.969, 1.847),
    ],
)
def test_12_the_second_scenario(beta, commit, best, always, never):
    """Digest 5.5: a lognormal law of 21.4 h and 19.7 h; over an omniscient's cost."""
    of = read_law("lognormal mean=21.4h std=19.7h")
    setting = reserved(commit, beta=beta)
    found = choose(Question(of, setting, (), 400), compare=False)
    unit = setting.cost.omniscient(of.mean)
    assert found.expected / unit == pytest.approx(best, abs=1.5e-3)
    for method, known in (("all-checkpoint", always), ("no-checkpoint", never)):
        other = METHODS[method](Question(of, setting, (), 400), None)
        assert other.expected / unit == pytest.approx(known, abs=1.5e-3)


def test_14_the_first_row_of_table_11_5():
    """Published: it is reached with 0.1 h for each request, and where 1e-8 is left."""
    of = law("Exponential")
    cut = of.until(float(of.isf(1e-8)))
    setting = reserved(0.1 * H, gamma=0.1 * H)
    best = optimal(equal_time(cut, 0.0, 1000, cut.high), setting).expected
    assert best / H == pytest.approx(1.88627, abs=1e-5)
    chunks = range(1, 1001)
    always = periodic_costs(cut, setting, cut.high, chunks, commits=True) / best
    never = periodic_costs(cut, setting, cut.high, chunks, commits=False) / best
    assert (int(np.argmin(always)) + 1, int(np.argmin(never)) + 1) == (27, 14)
    places = np.array([1, 200, 400, 600, 800, 1000]) - 1
    assert always[places] == pytest.approx([9.82, 2.31, 4.02, 5.75, 7.47, 9.20], abs=0.006)
    assert never[places] == pytest.approx([9.82, 6.91, 13.23, 19.56, 25.89, 32.22], abs=0.006)
    one = periodic(cut, cut.high, 27, commits=True)
    assert expected_cost(one, cut, setting) / best == pytest.approx(always[26], rel=1e-12)


@pytest.mark.parametrize(
    "name, first, cost",
    [("Gamma", 1.2345, 2.145), ("Lognormal", 29.77, 1.917), ("Pareto", 2.598, 1.732), ("Beta", 0.7826, 1.805),
     ("BoundedPareto", 1.961, 1.922), ("Uniform", 20.0, 1.905)],
)  # fmt: skip
def test_table_11_4_brute_force(name, first, cost):
    of = law(name)
    found = brute_force(of, reserved())
    assert found[0].work / H == pytest.approx(first, rel=5e-3)
    scanned = METHODS["brute-force"](Question(of, reserved()), None).expected
    assert scanned / of.mean == pytest.approx(cost, abs=1e-3)
    works = [one.work for one in found]
    assert works == sorted(set(works)) and not any(one.commit for one in found)


def test_the_bound_of_the_first_request_does_not_depend_on_the_unit():
    short, long = read_law("gamma shape=2 scale=1s"), read_law("gamma shape=2 scale=1000h")
    assert most_first(long, reserved()) == pytest.approx(3.6e6 * most_first(short, reserved()))
    assert most_first(law("Uniform"), reserved()) == 20 * H
    assert most_first(read_law("pareto min=1h shape=1.5"), reserved()) < inf, "no second moment"


def test_a_convex_price_in_both_ways():
    """Theorem 14: the scan and the program agree; a linear price is the usual cost."""
    of = read_law("gamma shape=2 scale=1s")
    setting = Setting(Cost(1.0, 0.5, 0.2))
    price = ConvexPrice(
        lambda w: 0.1 * w * w + w + 0.2, lambda w: 0.2 * w + 1, lambda p: -5 + np.sqrt(25 + 10 * (p - 0.2))
    )
    grid = equal_time(of, 0.0, 1500, end_of(of))
    program = no_checkpoint(grid, setting, price.of)
    scanned = brute_force(of, setting, 5000, price)
    assert scanned[0].work == pytest.approx(program.milestones[0].work, abs=0.03)
    linear = ConvexPrice(lambda w: w + 0.2, lambda w: np.ones_like(w), lambda p: p - 0.2)
    assert brute_force(of, setting, 2000, linear) == brute_force(of, setting, 2000)
