"""Laws of run times: what they say is one law, cut or not; words in and out; bad words."""

from itertools import pairwise
from math import inf, isfinite

import numpy as np
import pytest
from by_hand import LAWS, law
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from dask_hpc.model.errors import InputError
from dask_hpc.planning.reservation.law import ContinuousLaw, EmpiricalLaw, MixtureLaw, mixed, read_law

WORDS = [
    *LAWS.values(),
    "exponential mean=90s max=5min",
    "weibull mean=2h std=30min",
    "gamma mean=2h std=3h min=1h",
    "lognormal mean=21.4h std=19.7h max=80h",
    "lognormal mean=1h std=1h shift=30min",
    "normal mean=2h std=10min",
    "truncnormal mean=-1h std=2h",
    "beta a=0.5 b=3 min=1h max=4h",
    "uniform scale=2h shift=1h min=2h",
    "pareto min=1h shape=2.5 max=9h",
    "empirical 1h 2h*3 90min",
    "0.9 * uniform min=1h max=2h + 0.1 * pareto min=2h shape=40",
    "0.5 * lognormal mean=1h std=1h + 0.3 * empirical 1h 3h + 0.2 * gamma mean=2h std=1h",
]


@pytest.mark.parametrize("words", WORDS)
def test_a_law_is_one(words):
    """Probabilities, quantiles, moments and cuts belong together, and its text is the law itself."""
    of = read_law(words)
    assert read_law(str(of)) == of, "to the last digit"
    q = np.array([1e-6, 0.01, 0.3, 0.5, 0.9, 0.9999])
    times = of.quantile(q)
    assert np.all(np.diff(times) >= 0) and np.all((of.low <= times) & (times <= of.high))
    assert np.all(of.cdf(times) >= q - 1e-9) and of.sf(of.low - 1) == 1
    assert np.all(of.cdf(times * (1 - 1e-6)) <= q + 1e-5) or "empirical" in words
    assert of.isf(1 - q) == pytest.approx(times, rel=1e-6)
    # the mean is what the tail says, and the same of what is left after a while
    begin = of.low if isfinite(of.low) else float(of.isf(1 - 1e-13))
    for after in (begin, *times[1:5]):
        left = float(of.sf(after))
        if not left:
            continue
        ends = [after, *of.isf(left * np.array([0.9, 0.5, 0.1, 1e-2, 1e-4, 1e-6, 1e-9]))]
        points = sorted({float(one) for one in ends if one >= after})
        whole = sum(quad(lambda t: float(of.sf(t)), a, b, limit=200)[0] for a, b in pairwise(points))
        cut = of.given(after)
        tolerance = 1e-2 if "pareto" in words and "max" not in words else 2e-4
        assert of.conditional_mean(after) == pytest.approx(after + whole / left, rel=tolerance)
        assert cut.mean == pytest.approx(of.conditional_mean(after), rel=1e-9)
        later = np.array([after, after * 1.1 + 1, after * 2 + 5])
        assert cut.sf(later) == pytest.approx(of.sf(later) / left, rel=1e-6, abs=1e-12)
        assert cut.given(after).sf(later) == pytest.approx(cut.sf(later))
        assert read_law(str(cut)) == cut
    until = of.until(times[4])
    assert until.high <= times[4] and until.cdf(times[3]) == pytest.approx(
        of.cdf(times[3]) / of.cdf(times[4])
    )


@pytest.mark.parametrize(
    "words", [one for one in WORDS if "empirical" not in one and "bull shape" not in one]
)
def test_the_density_and_the_spread(words):
    of = read_law(words)
    points = of.quantile(np.array([1e-6, 0.1, 0.5, 0.9, 0.999]))
    for a, b in pairwise(points):
        found = quad(lambda t: float(of.pdf(t)), a, b, limit=200)[0]
        assert found == pytest.approx(of.cdf(b) - of.cdf(a), abs=1e-6)
    assert of.pdf(of.low - 1) == 0 if isfinite(of.low) else True
    if "pareto" not in words:
        draws = of.quantile((np.arange(200_000) + 0.5) / 200_000)
        assert (of.mean, of.std) == pytest.approx((draws.mean(), draws.std()), rel=5e-3)


@pytest.mark.parametrize("family", ["lognormal", "gamma", "weibull"])
@given(st.floats(1e-2, 1e6), st.floats(0.01, 5))
@settings(max_examples=30, deadline=None)
def test_mean_and_std_are_what_was_said(family, mean, ratio):
    of = read_law(f"{family} mean={mean!r}s std={mean * ratio!r}s")
    assert (of.mean, of.std) == pytest.approx((mean, mean * ratio), rel=1e-6)


def test_far_out_in_a_tail():
    of = read_law("exponential mean=1h").given(360 * 3600)  # e^-360 is left
    assert of.mean == pytest.approx(361 * 3600) and of.sf(361 * 3600) == pytest.approx(np.exp(-1))
    heavy = read_law("lognormal mean=1h std=4h")
    beyond = float(heavy.isf(1e-14))
    assert heavy.given(beyond).mean > 1.1 * beyond and heavy.conditional_mean(inf) == inf
    assert law("Pareto").std == pytest.approx(3600 * 1.299, rel=1e-3)
    assert read_law("pareto min=1h shape=1.5").std == inf and read_law("pareto min=1h shape=1").mean == inf


def test_names():
    assert law("TruncatedNormal").name == "truncnormal" and law("BoundedPareto").name == "boundedpareto"
    assert read_law("truncnormal mean=1h std=1h").low == 0
    assert read_law("normal mean=1h std=1h").low == -inf


def test_a_list_of_times():
    of = EmpiricalLaw.of([3.0, 1.0, 2.0, 2.0])
    assert of.values == (1.0, 2.0, 3.0) and of.weights == (0.25, 0.5, 0.25)
    assert of.sf(np.array([0, 1, 1.5, 2, 3])).tolist() == [1, 0.75, 0.75, 0.25, 0]
    assert of.quantile(np.array([0.1, 0.25, 0.5, 0.75, 0.76, 1])).tolist() == [1, 1, 2, 2, 3, 3]
    assert of.isf(np.array([0, 0.2, 0.25, 0.5, 0.99])).tolist() == [3, 3, 2, 2, 1]
    assert of.mean == 2 and of.conditional_mean(1) == pytest.approx(7 / 3) and of.conditional_mean(3) == 3
    assert of.given(1.0) == EmpiricalLaw.of([2, 2, 3]) and of.until(2) == EmpiricalLaw.of([1, 2, 2])
    assert of.given(0.5) is of and of.pdf(2) == 0
    with pytest.raises(InputError):
        of.given(3)


def test_mixtures():
    a, b = read_law("uniform min=0 max=1s"), read_law("uniform min=2s max=3s")
    of = mixed([(a, 3), (mixed([(b, 1), (a, 1)]), 1)])
    assert isinstance(of, MixtureLaw) and len(of.parts) == 3, "taken apart"
    assert of.sf(np.array([0.5, 1.5, 2.5])) == pytest.approx([0.5625, 0.125, 0.0625])
    assert of.given(1.5) == b and mixed([(a, 0.2)]) is a
    assert of.quantile(0.9375) == pytest.approx(2.5) and of.name == "uniform"


@pytest.mark.parametrize(
    "words, told",
    [
        ("", "law: found ''"),
        (None, "law: found None"),
        ("lognromal mean=1h std=1h", "nearest: lognormal"),
        ("lognormal mean=21.4 std=1h", "law: mean: found '21.4' without a unit"),
        ("lognormal mean=1h", "law: std: is missing"),
        ("lognormal mean=1h std=1W", "law: std"),
        ("lognormal mean=1h std=1h mean=2h", "law: mean: is said twice"),
        ("lognormal mean=1h std=1h shape=2", "found 'shape=2'"),
        ("lognormal mean=1h std=0", "both more than 0"),
        ("lognormal mean=-1h std=1h", "both more than 0"),
        ("lognormal mean=inf std=1h", "law: mean"),
        ("lognormal median=1h", "law: sigma: is missing"),
        ("gamma shape=0 scale=1h", "law: shape"),
        ("gamma shape=x scale=1h", "law: shape"),
        ("weibull mean=1h std=1000000000h", "std"),
        ("lognormal mean=1h std=1h min=2h max=1h", "min less than max"),
        ("uniform min=1h max=1h", "min less than max"),
        ("uniform min=1h max=2h shift=3h max=9h", "max: is said twice"),
        ("uniform min=1h", "law: max: is missing"),
        ("pareto shape=2", "law: min: is missing"),
        ("pareto min=1h", "law: shape: is missing"),
        ("normal mean=1h", "law: std: is missing"),
        ("beta a=2 min=0 max=1h", "law: b: is missing"),
        ("exponential", "law: scale: is missing"),
        ("exponential mean=1h min=10000h", "another cut"),
        ("lognormal 21h 20h", "found '21h'"),
        ("empirical", "empirical 1h"),
        ("empirical 1h*0", "a number, more than 0"),
        ("empirical 3600", "without a unit"),
        ("0.5 * exponential mean=1h + exponential mean=2h", "a weight and a law"),
    ],
)
def test_bad_words_are_one_line(words, told):
    with pytest.raises(InputError) as caught:
        read_law(words)
    assert told in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_a_law_that_is_none():
    for weights in ((), (0.5,), (0.5, 0.0)):
        with pytest.raises(InputError):
            EmpiricalLaw((1.0, 2.0), weights)
    with pytest.raises(InputError):
        EmpiricalLaw((2.0, 1.0), (0.5, 0.5))
    with pytest.raises(InputError):
        MixtureLaw((ContinuousLaw("exponential"),), (0.0,))
