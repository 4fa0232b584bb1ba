"""Our own small workload form."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.simulator import load_workload
from dask_hpc.simulator.readers import yaml_workload


def read(tmp_path, text):
    path = tmp_path / "w.yaml"
    path.write_text(text)
    return load_workload(path)


def test_human_units_and_defaults(tmp_path):
    workload = read(
        tmp_path,
        "nodes: 4\njobs:\n- {nodes: 2, runtime: 10 min}\n"
        "- {id: b, submit: 1 h, nodes: 1, runtime: 3, walltime: '0:10:00'}\n",
    )
    first, second = workload
    assert (first.job.id, first.job.submitted, first.runtime) == ("1", 0.0, 600.0)
    assert first.job.walltime == float("inf")
    assert (second.job.id, second.job.submitted, second.job.walltime) == ("b", 3600.0, 600.0)
    assert workload.nodes == 4


def test_the_example_is_one(tmp_path):
    """The docstring's, without the machine in short, which it has in full."""
    example = yaml_workload.__doc__.split("\n\n")[1].partition("\n")[2]
    workload = read(tmp_path, example)
    assert [arrival.job.id for arrival in workload] == list("abftrvcdge")
    assert workload.platform.metering.forecast == "online"
    assert len(workload.platform.topology.nodes) >= workload.nodes == 500
    by_name = {arrival.job.id: arrival for arrival in workload}
    assert by_name["b"].speedup == by_name["b"].job.speedup
    assert by_name["f"].job.speedup is None and len(by_name["f"].speedup.phases) == 2
    assert by_name["g"].swing.season == 600
    assert by_name["v"].overstays and by_name["v"].job.messages == 0.2
    assert by_name["t"].job.traffic == 2e9 and by_name["v"].job.traffic is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("jobs: []", "w.yaml: jobs: found \\[\\]; allowed: a list of jobs"),
        ("job: []", "w.yaml: job: unknown key \\(nearest: jobs\\)"),
        ("jobs: [{nodes: 2}]", "jobs\\[0\\]: runtime: is missing"),
        ("jobs: [{runtime: 2}]", "jobs\\[0\\]: nodes: is missing"),
        ("jobs: [{nodes: 2, runtime: 5 parsecs}]", "jobs\\[0\\]: runtime: found the unit 'parsecs'"),
        ("jobs: [{nodes: 2, runtime: -1}]", "jobs\\[0\\]: job '1': runtime: found -1.0"),
        ("jobs: [{nodes: two, runtime: 1}]", "jobs\\[0\\]: job '1': nodes: found 'two'"),
        ("jobs: [{nodes: 1, runtime: 1, walltime: 0}]", "walltime: found 0.0; allowed: more than 0 s"),
        ("jobs: [{nodes: 1, runtime: 1, submit: -3}]", "submit: found -3; allowed: 0 s or more"),
        ("jobs: [{nodes: 1, runtime: 1, wall: 3}]", "jobs\\[0\\]: wall: unknown key \\(nearest: walltime\\)"),
        ("jobs: [{id: a, nodes: 1, runtime: 1}, {id: a, nodes: 1, runtime: 1}]",
         "jobs\\[1\\]: id: 'a' is there twice"),
        ("jobs: [3]", "jobs\\[0\\]: found 3; allowed: a mapping"),
        ("nodes: 0\njobs: [{nodes: 1, runtime: 1}]", "nodes: found 0"),
        ("jobs: [", "not YAML"),
    ],
)  # fmt: skip
def test_complaints_name_the_file_and_the_key(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value) and "w.yaml" in str(caught.value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["id", "submit", "nodes", "runtime", "walltime", "priority", "user", "power"])
jobs = st.lists(st.dictionaries(keys, plain | st.integers(1, 9), max_size=6), max_size=3)


@pytest.mark.slow
@given(st.fixed_dictionaries({"jobs": jobs | plain}, optional={"nodes": plain}))
@settings(max_examples=300, deadline=None)
def test_any_structure_gives_a_workload_or_a_complaint(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("yaml") / "w.yaml"
    path.write_text(yaml.safe_dump(found))
    try:
        load_workload(path)
    except InputError as error:
        assert "\n" not in str(error)
