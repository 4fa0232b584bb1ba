"""Edges miss the share they promise, in the long run, whatever happens."""

import numpy as np
import pytest

from dask_hpc.planning.forecast import Edge


def missed(series, sign, miss=0.05, memory=200):
    """The share of a series of errors beyond the edge, each judged by the errors before it."""
    edge, beyond = Edge(sign, 1, miss), []
    for place in range(memory, len(series)):
        offset = edge.offsets(series[place - memory : place, None])
        beyond.append(sign * series[place] > sign * offset[0])
        edge.learn(np.array(beyond[-1:]), np.array([True]))
    return np.mean(beyond)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["even", "skewed", "louder", "drifting"])
def test_the_promised_share_is_missed(sign, seed, kind):
    errors = np.random.default_rng(seed).normal(0, 1, 1500)
    if kind == "skewed":
        errors = np.exp(errors)
    elif kind == "louder":
        errors[700:] *= 4
    elif kind == "drifting":
        errors += sign * np.arange(1500) / 300
    assert 0.03 <= missed(errors, sign) <= 0.07


def test_with_few_errors_the_largest_counts():
    edge = Edge(1, 2, 0.05)
    errors = np.array([[1.0, np.nan], [3.0, 5.0], [2.0, np.nan]])
    assert edge.offsets(errors).tolist() == [3.0, 5.0]
    assert np.isnan(edge.offsets(np.full((3, 2), np.nan))).all()


def test_what_is_not_known_teaches_nothing():
    edge = Edge(1, 1, 0.05)
    errors = np.arange(100.0)[:, None]
    before = edge.offsets(errors)
    for _ in range(50):
        edge.learn(np.array([True]), np.array([False]))
    assert edge.offsets(errors) == before
    for _ in range(5):
        edge.learn(np.array([True]), np.array([True]))
    assert edge.offsets(errors) > before
