"""The Standard Workload Format as it is found in the wild."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.simulator import load_workload, simulate

HEADER = "; Version: 2.2\n; Computer: made up\n; MaxNodes: 64\n; MaxProcs: 128\n;\n"


def line(number=1, submit=0, run=100, used=4, requested=-1, limit=-1, user=3):
    return f"{number} {submit} -1 {run} {used} -1 -1 {requested} {limit} -1 1 {user} 1 -1 1 -1 -1 -1\n"


def read(tmp_path, text, name="w.swf", **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_workload(path, **options)


def test_fields_and_header(tmp_path):
    workload = read(tmp_path, HEADER + line(7, 5, 100, 4, 8, 300))
    (one,) = workload
    assert (one.job.id, one.job.submitted, one.job.nodes, one.job.walltime) == ("7", 5.0, 8, 300.0)
    assert (one.runtime, one.job.user, workload.nodes) == (100.0, "3", 128)


def test_requested_or_used_processors(tmp_path):
    text = line(1, used=4, requested=8) + line(2, used=4, requested=-1) + line(3, used=-1, requested=8)
    assert [a.job.nodes for a in read(tmp_path, text)] == [8, 4, 8]
    assert [a.job.nodes for a in read(tmp_path, text, processors="used")] == [4, 4, 8]


def test_processors_per_node_round_up(tmp_path):
    workload = read(tmp_path, HEADER + line(requested=5), per_node=4)
    assert workload.arrivals[0].job.nodes == 2 and workload.nodes == 32


def test_missing_walltime_is_the_run_time(tmp_path):
    assert read(tmp_path, line(run=100)).arrivals[0].job.walltime == 100.0


def test_jobs_that_cannot_be_replayed_are_counted(tmp_path):
    workload = read(tmp_path, line(1) + line(2, run=-1) + line(3, used=0) + line(4, run=0))
    assert [a.job.id for a in workload] == ["1", "4"]
    assert workload.notes == ("2 jobs left out: no processors or no run time",)


def test_more_processors_than_any_machine_has_are_named(tmp_path):
    workload = read(tmp_path, line(1) + line(2, requested="1e30") + line(3, run=-1))
    assert [a.job.id for a in workload] == ["1"]
    assert workload.notes == (
        "1 job left out: 2,147,483,648 processors or more",
        "1 job left out: no processors or no run time",
    )
    assert read(tmp_path, line(1, requested=2**31 - 1)).arrivals[0].job.nodes == 2**31 - 1


def test_fields_after_the_eighteenth_are_not_looked_at(tmp_path):
    (one,) = read(tmp_path, line(7).rstrip() + " 3.5 gpu -1\n")
    assert one.job.id == "7"


def test_unsorted_files_are_sorted(tmp_path):
    workload = read(tmp_path, line(1, submit=50) + line(2, submit=10) + line(3, submit=50))
    assert [a.job.id for a in workload] == ["2", "1", "3"]


def test_gzip_and_blank_lines_and_comments(tmp_path):
    text = (HEADER + line(1) + "\n   \n; a remark\n" + line(2)).encode()
    workload = read(tmp_path, gzip.compress(text), "w.swf.gz")
    assert len(workload) == 2
    assert simulate(workload).metrics["completed"] == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEADER + line(1) + "1 2 3\n", r"w.swf, line 7: 3 fields; allowed: 18 numbers, -1 for unknown"),
        (line(1).replace("100", "1o0"), r"w.swf, line 1: found '1o0'"),
        (line(submit=-5), r"line 1: field 2 \(submit time\): found -5; allowed: 0 or more"),
        (line(run="nan"), r"line 1: found a number that is not finite"),
        (line(used="inf"), r"line 1: found a number that is not finite"),
        (line(1) + line(1), r"line 2: job 1 is there twice"),
    ],
)
def test_bad_lines_are_named_by_number(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint):
        read(tmp_path, text)


def test_truncated_gzip(tmp_path):
    whole = gzip.compress(b"".join(line(i).encode() for i in range(1000)))
    with pytest.raises(InputError, match="not a complete gzip file"):
        read(tmp_path, whole[:-20], "w.swf.gz")
    with pytest.raises(InputError, match="not a complete gzip file"):
        read(tmp_path, b"no gzip at all", "w.swf.gz")


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match=r"none.swf: cannot be read: No such file"):
        load_workload(tmp_path / "none.swf")
    (tmp_path / "folder.swf").mkdir()
    with pytest.raises(InputError, match=r"cannot be read"):
        load_workload(tmp_path / "folder.swf")
    with pytest.raises(InputError, match=r"unknown kind of workload file; allowed: .swf, .swf.gz, .yaml"):
        load_workload(tmp_path / "w.txt")


@given(st.one_of(st.binary(max_size=300), st.text("0123456789 -.;\n:aeinf", max_size=300).map(str.encode)))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_a_workload_or_a_complaint(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("swf") / "w.swf"
    path.write_bytes(data)
    try:
        load_workload(path)
    except InputError as error:
        assert "\n" not in str(error)
