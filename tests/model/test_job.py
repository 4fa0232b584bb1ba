"""Jobs: sensible defaults, and every bad field refused in one line that names job and field."""

import math
import pickle
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.model.job import KINDS, Job, worth
from dask_hpc.model.speedup import Amdahl


def test_defaults():
    job = Job(id="a", nodes=4)
    assert (job.kind, job.min_nodes, job.max_nodes) == ("rigid", 4, 4)
    assert job.walltime == math.inf
    assert not job.resizable


@pytest.mark.parametrize("kind", KINDS)
def test_only_malleable_and_evolving_jobs_resize(kind):
    assert Job(id="a", nodes=4, kind=kind).resizable == (kind in ("malleable", "evolving"))


def test_a_range():
    job = Job(id="a", nodes=4, kind="malleable", min_nodes=3, max_nodes=20, constraint="pof2")
    assert (job.min_nodes, job.nodes, job.max_nodes) == (3, 4, 20)
    assert Job(id="a", nodes=4, kind="moldable", max_nodes=8).min_nodes == 4
    assert Job(id="a", nodes=4, kind="moldable", min_nodes=2).max_nodes == 4


def test_pickles():
    job = Job(id="a", nodes=4, speedup=Amdahl(0.1), deadline=60.0)
    assert pickle.loads(pickle.dumps(job)) == job


BAD = {
    "id": [5, None, ""],
    "nodes": [0, -1, 2.0, "4", None, True, math.nan],
    "kind": ["elastic", None, 5, ["rigid"]],
    "min_nodes": [-1, 5, 2.5, "2", math.nan],
    "max_nodes": [-1, 3, 8.5, "9"],
    "constraint": ["prime", None, 7],
    "walltime": [0, -5, math.nan, "1h", None, [], 1j],
    "submitted": [math.nan, math.inf, "now", None, 10**400],
    "priority": [math.nan, "high", None],
    "power": [-1, math.nan, math.inf, "1 apple", (2, 1), (1, 2, 3)],
    "value": [math.nan, "much"],
    "deadline": [math.nan, "soon"],
    "recorded": [0, -1.0, math.nan, "1h"],
    "user": [None, 7],
    "speedup": ["linear", 2.0, Amdahl],
}


@pytest.mark.parametrize("field, value", [(field, value) for field in BAD for value in BAD[field]])
def test_bad_fields(field, value):
    fields = {"id": "j7", "nodes": 4, "kind": "malleable"} | {field: value}
    with pytest.raises(InputError) as caught:
        Job(**fields)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert field in message
    assert caught.value.allowed
    if field != "id":
        assert "j7" in message


def test_bad_combinations():
    with pytest.raises(InputError, match="a rigid job has one size, found 2 to 8"):
        Job(id="a", nodes=4, min_nodes=2, max_nodes=8)
    with pytest.raises(InputError, match="allowed: a size that is pof2"):
        Job(id="a", nodes=6, constraint="pof2")


scraps = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers())
)


@given(st.dictionaries(st.sampled_from(sorted(BAD)), scraps))
def test_any_fields_make_a_job_or_a_complaint(fields):
    try:
        job = Job(**({"id": "a", "nodes": 1} | fields))
    except InputError as error:
        assert str(error).isprintable()
    else:
        assert 1 <= job.min_nodes <= job.nodes <= job.max_nodes


def test_what_a_job_is_worth_falls_from_its_soft_deadline_on():
    job = Job(id="a", nodes=1, value=10.0, submitted=0.0, soft_deadline=15.0, deadline=25.0)
    assert [worth(job, end) for end in (1.0, 15.0, 20.0, 25.0, 25.1)] == pytest.approx([10, 10, 7, 4, 0])
    assert worth(replace(job, soft_deadline=None), 25.0) == 10.0
    assert worth(replace(job, deadline=None), 1e9) == 10.0
    assert worth(replace(job, value=None), 1.0) == 0.0
    assert worth(replace(job, soft_deadline=25.0), 25.0) == 10.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"deadline": 5.0}, "deadline: found 5.0; allowed: later than its submission at 5 s"),
        ({"soft_deadline": 4.0}, "soft_deadline: found 4.0; allowed: later than its submission at 5 s"),
        (
            {"deadline": 9.0, "soft_deadline": 10.0},
            "soft_deadline: found 10.0; allowed: no later than its deadline at 9 s",
        ),
        ({"value": -1.0}, "value: found -1.0; allowed: 0 or more, or nothing"),
    ],
)
def test_deadlines_that_cannot_be(fields, message):
    with pytest.raises(InputError, match=re.escape(message)):
        Job(id="a", nodes=1, submitted=5.0, **fields)


def test_recorded_on_another_size():
    job = Job(id="a", nodes=4, kind="malleable", min_nodes=1, max_nodes=8, walltime=1000.0)
    assert job.recorded_on(8) == 500.0  # as its walltime allows
    job = replace(job, recorded=400.0)
    assert job.recorded_on(4) == 400.0 and job.recorded_on(8) == 200.0
    assert replace(job, speedup=Amdahl(1.0)).recorded_on(8) == 400.0
