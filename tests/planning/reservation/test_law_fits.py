"""Laws from past runs: what is found, what cut-off runs add, and what few runs cannot say."""

import numpy as np
import pytest
from by_hand import H, law
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dask_hpc.model.errors import InputError
from dask_hpc.planning.reservation.fit import _Sample, fit_law, read_runs
from dask_hpc.planning.reservation.law import FAMILIES, ContinuousLaw, EmpiricalLaw, MixtureLaw, read_law


def drawn(words, number, seed=1):
    of = read_law(words)
    return of, of.quantile(np.random.default_rng(seed).random(number))


@pytest.mark.parametrize(
    "words",
    [
        "exponential mean=2h",
        "weibull shape=0.7 scale=1h",
        "gamma shape=3 scale=1h",
        "lognormal mean=21h std=12h",
        "truncnormal mean=8h std=2h",
        "uniform min=1h max=20h",
        "pareto min=1.5h shape=3",
        "lognormal mean=1h std=30min shift=5h",
    ],
)
def test_a_law_is_found_again(words):
    of, runs = drawn(words, 300)
    found = fit_law(runs)
    times = of.quantile(np.linspace(0.02, 0.98, 30))
    assert found.law.sf(times) == pytest.approx(of.sf(times), abs=0.08)
    assert found.law.mean == pytest.approx(of.mean, rel=0.12)
    assert not found.warnings and "from 300 runs" in found.reason and found.done == tuple(runs)
    assert read_law(str(found.law)) == found.law


@pytest.mark.parametrize(
    "words", ["gamma shape=3 scale=1h", "lognormal mean=3h std=2h", "truncnormal mean=3h std=1h"]
)
def test_runs_that_were_cut_off_count(words):
    """A third of them were cut off by a walltime: who leaves them out believes in shorter jobs."""
    of, runs = drawn(words, 400)
    limit = float(of.quantile(0.67))
    done, cut = runs[runs <= limit], np.full(int((runs > limit).sum()), limit)
    found = fit_law(done, cut)
    assert found.law.mean == pytest.approx(of.mean, rel=0.12)
    assert fit_law(done).law.mean < 0.85 * of.mean
    assert f"and {len(cut)} that were cut off" in found.reason and found.cut == tuple(cut)


@pytest.mark.parametrize("family, shape", [("gamma", 2.5), ("weibull", 0.8), ("lognormal", 0.6)])
def test_the_most_likely_law_is_that_of_scipy(family, shape):
    """Which takes a hundred times as long with runs that were cut off."""
    runs = ContinuousLaw(family, (shape,), 100.0).quantile(np.random.default_rng(4).random(60))
    cut = np.minimum(runs, 120.0)
    data = stats.CensoredData.right_censored(cut, runs > 120)
    known = getattr(stats, FAMILIES[family].scipy).fit(data, floc=0)
    sample = _Sample(cut[runs <= 120], cut[runs > 120])
    found = sample._fitted(family, 0.0).law
    assert (*found.shapes, found.scale) == pytest.approx((known[0], known[2]), rel=2e-3)


def test_what_cannot_be_told_apart_is_kept():
    """Forty runs of a gamma law may be of a Weibull one as well."""
    _, runs = drawn("gamma shape=2 scale=0.5h", 40)
    found = fit_law(runs).law
    assert isinstance(found, MixtureLaw) and {"gamma", "weibull"} <= {part.name for part in found.parts}
    assert sum(found.weights) == pytest.approx(1) and min(found.weights) > 0.02


def test_the_end_of_a_uniform_law_is_not_known():
    _, runs = drawn("uniform min=1h max=20h", 40)
    found = fit_law(runs).law
    longest = runs.max()
    assert found.sf(longest) == pytest.approx(1 / 41, abs=0.02) and found.sf(1.3 * longest) < 1e-2


def test_few_runs():
    found = fit_law([3600.0, 3700.0])
    assert found.law.name == "lognormal" and found.law.std == pytest.approx(0.15 * found.law.mean)
    assert "too few" in found.warnings[0]
    wide = fit_law([3600.0, 7200.0, 36000.0])
    assert wide.law.std == pytest.approx(np.std([3600, 7200, 36000], ddof=1))
    cut = fit_law([3600.0], [7200.0])
    assert cut.law.mean > 3600 * 1.5, "it took longer than two hours"
    assert fit_law([3600.0] * 2 + [7200.0] * 3).warnings == ()
    more = fit_law(np.linspace(1, 2, 6) * H, [2 * H] * 7)
    assert "more runs were cut off (7) than ended (6)" in more.warnings[0]


def test_one_value():
    for runs in ([3600.0, 3600.5, 3601.0], [3600.0], [3600.0] * 10):
        found = fit_law(runs)
        assert found.law == EmpiricalLaw.of([max(runs) * 1.1]) and "took" in found.reason
    assert fit_law([3600.0] * 3, [1800.0]).law == found.law, "it was cut off before that"
    longer = fit_law([3600.0] * 6, [7200.0])
    assert longer.law.sf(7200) > 0, "one took longer"


def test_many_runs_that_no_law_describes_stand_for_themselves():
    short, long = drawn("truncnormal mean=1h std=5min", 60)[1], drawn("truncnormal mean=10h std=10min", 40)[1]
    runs = np.concatenate([short, long])
    found = fit_law(runs).law
    assert "empirical" in found.name
    assert found.sf(5 * H) == pytest.approx(0.4, abs=0.02)
    assert found.sf(runs.max()) == pytest.approx(1 / 101), "the next may be longer than all"
    few = fit_law(np.concatenate([short[:20], long[:15]])).law
    assert "empirical" not in few.name
    # of runs that were cut off at 5 h nobody knows how much longer they were
    cut = fit_law(np.concatenate([short, long[:20]]), [5 * H] * 20).law
    assert cut.sf(4 * H) == pytest.approx(0.4, abs=0.02)


def test_nothing_to_fit():
    with pytest.raises(InputError, match="runs: found none"):
        fit_law([])
    with pytest.raises(InputError, match="found 2 runs, all cut off"):
        fit_law([], [1.0, 2.0])


@pytest.mark.parametrize("wrong", [0, -5, float("nan"), float("inf"), "soon", None, "1 W", ">", True])
def test_bad_runs_are_one_line(wrong):
    with pytest.raises(InputError) as caught:
        read_runs([3600, wrong])
    assert "runs: 2" in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_runs_as_people_write_them():
    assert read_runs([60, "3600", "1h", ">2h", "> 7200"]) == ([60.0, 3600.0, 3600.0], [7200.0, 7200.0])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(1.0, 1e6), min_size=1, max_size=30),
    st.lists(st.floats(1.0, 1e6), max_size=5),
)
def test_whatever_the_runs_there_is_a_law(done, cut):
    found = fit_law(done, cut)
    times = np.geomspace(0.5, 1e8, 50)
    tails = found.law.sf(times)
    assert np.all((tails >= 0) & (tails <= 1)) and np.all(np.diff(tails) <= 1e-12)
    assert 0 < found.law.mean <= 10 * max(*done, *cut, 0) * len([*done, *cut]) and found.law.low >= 0
    assert found.law.sf(min(done) * 0.5) > 0


def test_of_laws_that_are_known_the_mean_is_not_missed_by_much():
    assert fit_law(law("Exponential").quantile((np.arange(40) + 0.5) / 40)).law.mean == pytest.approx(
        H, rel=0.05
    )
