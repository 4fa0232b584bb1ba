"""Bad arguments of ``job()`` and ``manage()`` are ``InputError``, one line, before anything happens."""

import pytest
from distributed.utils_test import gen_cluster
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_hpc
from dask_hpc import InputError
from dask_hpc.cluster.request import make_request, read_request
from dask_hpc.model.job import Job

BAD = [
    ({"name": ""}, "job name"),
    ({"name": "  "}, "job name"),
    ({"name": None}, "job name"),
    ({"name": "a\nb"}, "job name"),
    ({"name": "x" * 101}, "job name"),
    ({"name": b"x"}, "job name"),
    ({"nodes": 0}, "nodes"),
    ({"nodes": -1}, "nodes"),
    ({"nodes": 1.5}, "nodes"),
    ({"nodes": True}, "nodes"),
    ({"nodes": "2"}, "nodes"),
    ({"nodes": 2**70}, "nodes"),
    ({"min_nodes": 0}, "min_nodes"),
    ({"nodes": 2, "min_nodes": 3}, "min_nodes"),
    ({"nodes": 4, "max_nodes": 3}, "max_nodes"),
    ({"nodes": 3, "constraint": "pof2"}, "nodes"),
    ({"constraint": "round"}, "constraint"),
    ({"constraint": ["any"]}, "constraint"),
    ({"kind": "elastic"}, "kind"),
    ({"kind": 3}, "kind"),
    ({"kind": "rigid", "nodes": 2, "max_nodes": 3}, "kind"),
    ({"walltime": "10 parsecs"}, "walltime"),
    ({"walltime": "soon"}, "walltime"),
    ({"walltime": 0}, "walltime"),
    ({"walltime": -5}, "walltime"),
    ({"walltime": float("nan")}, "walltime"),
    ({"walltime": []}, "walltime"),
    ({"priority": "high"}, "priority"),
    ({"priority": float("nan")}, "priority"),
    ({"priority": 10**400}, "priority"),
    ({"priority": True}, "priority"),
    ({"power": "3 apples"}, "power"),
    ({"power": -3}, "power"),
    ({"user": 7}, "user"),
]


@pytest.mark.parametrize(("fields", "where"), BAD, ids=lambda v: str(v)[:40] if isinstance(v, dict) else "")
def test_bad_job(fields, where):
    with pytest.raises(InputError) as caught:
        dask_hpc.job(**({"name": "x"} | fields))
    message = str(caught.value)
    assert where in message and message.isprintable() and len(message) < 300


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.binary(max_size=5),
    st.lists(st.integers(), max_size=2), st.just(object), st.complex_numbers(),
)  # fmt: skip
fields = st.fixed_dictionaries(
    {"nodes": st.integers(-1, 20) | anything},
    optional={
        "min_nodes": st.integers(-1, 20) | anything,
        "max_nodes": st.integers(-1, 20) | anything,
        "walltime": anything | st.sampled_from(["10 min", "1-02:00:00", "inf", 30]),
        "kind": anything | st.sampled_from(["rigid", "moldable", "malleable", "evolving"]),
        "constraint": anything | st.sampled_from(["any", "even", "pof2", "cube"]),
        "priority": anything,
        "power": anything | st.just("250 W"),
        "user": anything,
    },
)


@settings(max_examples=300, deadline=None)
@given(anything | st.just("name"), fields)
def test_a_job_is_right_or_an_input_error(name, found):
    try:
        request = make_request(name, **found)
    except InputError as error:
        assert str(error).isprintable() and len(str(error).splitlines()) == 1
        return
    read_name, job = read_request({"id": f"{name}-1", **request}, submitted=3.0)
    assert read_name == name and isinstance(job, Job) and job.submitted == 3.0
    assert job.min_nodes <= job.nodes <= job.max_nodes


@settings(max_examples=200, deadline=None)
@given(anything | st.dictionaries(st.text(max_size=5) | st.sampled_from(["id", "name", "nodes"]), anything))
def test_a_foreign_request_is_right_or_an_input_error(request):
    try:
        read_request(request, 0.0)
    except InputError as error:
        assert len(str(error).splitlines()) == 1


def test_kind_follows_the_range():
    assert make_request("x", nodes=2)["kind"] == "rigid"
    assert make_request("x", nodes=2, min_nodes=2, max_nodes=2)["kind"] == "rigid"
    assert make_request("x", nodes=2, min_nodes=1)["kind"] == "malleable"
    assert make_request("x", nodes=2, max_nodes=4)["kind"] == "malleable"
    assert make_request("x", nodes=2, max_nodes=4, kind="moldable")["kind"] == "moldable"
    assert make_request("x", nodes=2, walltime="10 min")["walltime"] == 600
    assert "walltime" not in make_request("x", nodes=2, walltime="inf")


@pytest.mark.parametrize("bad", [None, 3, "tcp://1.2.3.4:5", object(), dask_hpc])
def test_manage_wants_a_client_or_cluster(bad):
    with pytest.raises(InputError, match="a Dask client or cluster"):
        dask_hpc.manage(bad)


@gen_cluster(client=True, nthreads=[])
async def test_bad_policy_changes_nothing(c, s):
    for bad in ("no-such-policy", "no/such/file.yaml", 3, b"fcfs", ["fcfs"], {"queue": "fcfs"}):
        with pytest.raises(InputError) as caught:
            await dask_hpc.manage(c, bad)
        assert len(str(caught.value).splitlines()) == 1
    assert "dask-hpc" not in s.plugins and not any(name.startswith("hpc_") for name in s.handlers)
