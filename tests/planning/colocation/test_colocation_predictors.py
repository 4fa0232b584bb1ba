"""Features, two predictors, and how far they are off."""

import subprocess
import sys
from math import isnan, sqrt

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from dask_hpc.model.errors import InputError
from dask_hpc.model.interference import CacheCounters, ClassAverages, TaskKind
from dask_hpc.planning.colocation import network
from dask_hpc.planning.colocation.features import FEATURES, SETS, columns_of, features, richest_set
from dask_hpc.planning.colocation.linear import LinearPredictor
from dask_hpc.planning.colocation.metrics import divided, mpe, nrmse
from dask_hpc.planning.colocation.network import NetworkPredictor

CG = TaskKind("cg", 250.0, CacheCounters(16, 40, 1000))
EP = TaskKind("ep", 180.0, CacheCounters(0, 5, 1000))


def test_eight_features():
    found = dict(zip(FEATURES, features(CG, [EP, CG, CG]), strict=True))
    assert found == {
        "seconds alone": 250.0,
        "tasks beside": 3.0,
        "intensity beside": pytest.approx(0.032),
        "intensity": 0.016,
        "miss ratio beside": pytest.approx(0.8),
        "access rate beside": pytest.approx(0.085),
        "miss ratio": 0.4,
        "access rate": 0.04,
    }
    assert features(EP, [])[:6] == (180.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_the_richest_set_that_is_known():
    said, unknown = TaskKind("x", 1.0, said_class="II"), TaskKind("y", 1.0)
    rows = {
        "F": [features(CG, [EP]), features(CG, [])],
        "D": [features(CG, [EP]), features(CG, [said])],
        "C": [features(unknown, [said])],
        "B": [features(CG, [unknown])],
    }
    for name, found in rows.items():
        assert richest_set(np.array(found)) == name
        assert columns_of(found, name).shape == (len(found), SETS[name])
    assert isnan(features(said, [EP])[-1]) and features(said, [EP])[3] == pytest.approx(1.275e-3)
    averages = ClassAverages.of([TaskKind("z", 9.0, CacheCounters(1, 4, 1000))])
    assert richest_set(np.array([features(said, [said], averages)])) == "F"
    with pytest.raises(InputError, match="set: found 'G'"):
        columns_of(rows["F"], "G")
    with pytest.raises(InputError, match="seconds alone"):
        richest_set(np.array([[np.nan] * 8]))


def drawn(count, seed=0, width=4):
    rng = np.random.default_rng(seed)
    return rng.normal(5, (1e-6, 1, 1e3, 10)[:width], (count, width))


def test_a_plane_is_found_exactly():
    rows = drawn(40)
    values = rows @ [3e6, -2, 0.5, 1] + 7
    learned = LinearPredictor.fit(rows, values)
    assert learned.predict(drawn(5, 1)) == pytest.approx(drawn(5, 1) @ [3e6, -2, 0.5, 1] + 7)
    assert learned.predict(rows.mean(axis=0)) == pytest.approx([values.mean()]), "set A of the mean"


def test_least_squares():
    rows, rng = drawn(60), np.random.default_rng(3)
    values = rows[:, 1] ** 2 + rng.normal(size=60)
    found = LinearPredictor.fit(rows, values).predict(rows)
    theirs = np.column_stack([rows, np.ones(60)])
    best = theirs @ np.linalg.lstsq(theirs / [1e-6, 1, 1e3, 10, 1], values, rcond=None)[0].__truediv__(
        [1e-6, 1, 1e3, 10, 1]
    )
    assert found == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("learner", ["linear", "network"])
def test_columns_that_never_change_say_nothing(learner):
    rows = np.column_stack([drawn(30), np.full(30, 0.1), np.zeros(30)])
    values = rows[:, 1] * 2 + 1

    def fit(columns):
        if learner == "linear":
            return LinearPredictor.fit(columns, values)
        return NetworkPredictor.fit(columns, values, np.random.default_rng(0))

    with_them = fit(rows).predict(rows + np.array([0, 0, 0, 0, 5, -5]))
    assert np.isfinite(with_them).all() and with_them == pytest.approx(values, rel=0.02)
    same = fit(rows[:1].repeat(30, axis=0)).predict(rows)
    assert same == pytest.approx(np.full(30, values.mean()), rel=0.2)


def test_the_gradient_is_that_of_the_loss():
    x, y = drawn(20, width=3), drawn(20, 2, width=1)[:, 0]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    weights = network._start(3, np.random.default_rng(1))
    weights += 0.1 * np.random.default_rng(2).normal(size=len(weights))
    assert len(weights) == 3 * 12 + 12 + 12 + 1
    ones = network._with_ones(x)
    by_steps = approx_fprime(weights, lambda w: network._loss(w, ones, y)[0], 1e-7)
    loss, gradient = network._loss(weights, ones, y)
    assert gradient == pytest.approx(by_steps, abs=1e-5)
    into, bias, out, last = np.split(weights, [36, 48, 60])
    made = np.tanh(x @ into.reshape(3, 12) + bias) @ out + last
    assert loss == pytest.approx(((made - y) ** 2).mean() / 2 + 5e-5 * ((into**2).sum() + (out**2).sum()))


def test_a_network_learns_a_product_and_a_plane_does_not():
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 1, (400, 3))
    values = 100 * (1 + rows[:, 0] * rows[:, 1])
    seen, unseen = rows[:300], rows[300:]
    learned = NetworkPredictor.fit(seen, values[:300], np.random.default_rng(1))
    assert mpe(learned.predict(unseen), values[300:]) < 0.5
    assert mpe(LinearPredictor.fit(seen, values[:300]).predict(unseen), values[300:]) > 2
    again = NetworkPredictor.fit(seen, values[:300], np.random.default_rng(1))
    assert (again.predict(unseen) == learned.predict(unseen)).all(), "the same draws, the same network"
    other = NetworkPredictor.fit(seen, values[:300], np.random.default_rng(2))
    assert (other.predict(unseen) != learned.predict(unseen)).any()
    assert learned.predict(unseen[0]).shape == (1,)


def test_the_best_start_is_followed(monkeypatch):
    """The first of five starts is that of one; where nothing is done but to choose, five are never worse."""
    rows = np.random.default_rng(5).uniform(-1, 1, (80, 2))
    values = np.sin(4 * rows[:, 0]) * rows[:, 1]
    monkeypatch.setattr(network, "_FIRST", 8)
    monkeypatch.setattr(network, "_LAST", 0)

    def loss_of(starts, seed):
        monkeypatch.setattr(network, "_STARTS", starts)
        learned = NetworkPredictor.fit(rows, values, np.random.default_rng(seed))
        x, y = learned.inputs.apply(rows), learned.output.apply(values[:, None])[:, 0]
        return network._loss(learned.weights, network._with_ones(x), y)[0]

    one, five = (np.array([loss_of(starts, seed) for seed in range(8)]) for starts in (1, 5))
    assert (five <= one).all() and (five < one).sum() >= 4


def test_no_scipy_until_a_network_learns():
    program = (
        "import sys; from dask_hpc.planning.colocation import completion, features, linear, metrics, mix, "
        "network, table, consolidate; print('scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("fit", [LinearPredictor.fit, lambda *data: NetworkPredictor.fit(*data, None)])
@pytest.mark.parametrize(
    "rows, values, words",
    [
        ([[1.0]], [1.0, 2.0], "1 rows and 2 values"),
        (np.zeros((0, 2)), [], "0 rows"),
        ([[1.0], [np.nan]], [1.0, 2.0], "nan or inf"),
        ([[1.0], [2.0]], [1.0, np.inf], "nan or inf"),
        ([[1.0], [2.0]], [[1.0], [2.0]], "one value for each row"),
    ],
)
def test_what_nothing_can_be_learned_from(fit, rows, values, words):
    with pytest.raises(InputError, match=words):
        fit(rows, values)


def test_errors_by_hand():
    predicted, actual = [11.0, 18.0, 30.0], [10.0, 20.0, 30.0]
    assert mpe(predicted, actual) == pytest.approx(100 * (0.1 + 0.1 + 0) / 3)
    assert nrmse(predicted, actual) == pytest.approx(sqrt((1 + 4 + 0) / 3) / 20)
    for wrong in (
        lambda: mpe([1], [0]),
        lambda: nrmse([1, 2], [3, 3]),
        lambda: mpe([1], [1, 2]),
        lambda: mpe([], []),
    ):
        with pytest.raises(InputError):
            wrong()


def test_both_parts_of_a_division_have_something():
    for count in (2, 3, 10, 100):
        for share in (0.0, 0.3, 1.0):
            order = np.random.default_rng(count).permutation(count)
            learned, held_out = divided(order, share)
            most = min(max(1, round(share * count)), count - 1)
            assert held_out.tolist() == order[:most].tolist() and learned.tolist() == order[most:].tolist()
    with pytest.raises(InputError, match="rows: found 1"):
        divided(np.arange(1))
    with pytest.raises(InputError, match="held_out"):
        divided(np.arange(4), 1.5)
