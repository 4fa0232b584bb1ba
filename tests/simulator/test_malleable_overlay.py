"""Malleability over a rigid trace."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import CONSTRAINTS, Amdahl, is_legal
from dask_hpc.simulator.workload import RULES, Arrival, Workload, malleable_overlay

sizes = st.lists(st.integers(1, 40), min_size=1, max_size=40)


def trace(nodes, machine=32):
    arrivals = [Arrival(Job(id=str(i), nodes=n, walltime=100.0), 50.0) for i, n in enumerate(nodes)]
    return Workload("trace", arrivals, machine)


def chosen(workload):
    return {arrival.job.id for arrival in workload if arrival.job.kind == "malleable"}


@given(sizes, st.floats(0, 1), st.floats(0, 1), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_shares_are_exact_nested_and_repeatable(nodes, one, other, seed):
    low, high = sorted((one, other))
    few, many = (malleable_overlay(trace(nodes), share, seed) for share in (low, high))
    assert chosen(few) <= chosen(many)
    assert len(chosen(few)) == round(low * len(nodes))
    assert few == malleable_overlay(trace(nodes), low, seed)


@given(
    sizes,
    st.sampled_from([*RULES, "0.25:3", (0.5, 1.5)]),
    st.sampled_from([None, *CONSTRAINTS]),
)
@settings(max_examples=200, deadline=None)
def test_ranges_are_legal_and_hold_the_start_size(nodes, rule, constraint):
    before = trace(nodes)
    after = malleable_overlay(before, 1.0, rule=rule, constraint=constraint)
    for old, new in zip(before, after, strict=True):
        job = new.job
        assert job.min_nodes <= job.nodes == old.job.nodes <= job.max_nodes
        assert all(is_legal(job.constraint, n) for n in (job.min_nodes, job.nodes, job.max_nodes))
        assert job.max_nodes <= max(32, job.nodes)
        assert (job.walltime, new.runtime, job.submitted) == (100.0, 50.0, 0.0)


def test_rules_and_speedup():
    workload = malleable_overlay(trace([5]), 1.0, rule="half-double", speedup=Amdahl(0.1))
    (arrival,) = workload
    assert (arrival.job.min_nodes, arrival.job.max_nodes) == (3, 10)
    assert arrival.speedup == arrival.job.speedup == Amdahl(0.1)
    (arrival,) = malleable_overlay(trace([5]), 1.0, rule=lambda job, machine: (2, machine // 4))
    assert (arrival.job.min_nodes, arrival.job.max_nodes) == (2, 8)


def test_other_kinds_are_left_alone_and_count_for_nothing():
    moldable = Arrival(Job(id="m", nodes=2, kind="moldable", max_nodes=4), 1.0)
    workload = Workload("w", [moldable, *trace([1, 2])], 4)
    after = malleable_overlay(workload, 0.5)
    assert len(chosen(after)) == 1 and next(iter(after)) == moldable


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"share": 1.5}, "share: found 1.5; allowed: 0 to 1"),
        ({"share": float("nan")}, "share: found nan"),
        ({"seed": 1.5}, "seed: found 1.5"),
        ({"rule": "half-duble"}, "rule: found 'half-duble' \\(nearest: half-double\\)"),
        ({"rule": "2:4"}, "rule: found \\(2.0, 4.0\\)"),
        ({"rule": "0..5:4"}, "rule: found '0..5:4'"),
        ({"rule": 3}, "rule: found 3"),
        ({"constraint": "prime"}, "constraint: found 'prime'"),
    ],
)
def test_complaints(values, complaint):
    with pytest.raises(InputError, match=complaint):
        malleable_overlay(trace([1]), **values)


def test_a_machine_of_unknown_size():
    unknown = Workload("w", list(trace([1])))
    with pytest.raises(InputError, match="w does not say how many nodes"):
        malleable_overlay(unknown)
    assert chosen(malleable_overlay(unknown, 1.0, nodes=8)) == {"0"}


def test_can_be_sent_elsewhere():
    after = malleable_overlay(trace([3, 4]), 1.0)
    assert pickle.loads(pickle.dumps(after)) == after
