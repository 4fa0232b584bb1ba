"""Reads are told from compute tasks by mark, name and measurements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.lanes.reads import ENOUGH, MeasuredCost, file_share, file_system, reads, rule_of, writes


@pytest.mark.parametrize(
    "name",
    [
        "open_dataset", "open_dataset-getitem", "getitem-open_dataset-mean_chunk", "read-parquet",
        "read_parquet", "read-parquet-sum", "blockwise-read-csv-add", "from-zarr", "from_zarr-astype",
        "readparquetpyarrowfsspec", "read-block-from-file-decode", "imread", "open-mfdataset-concatenate",
    ],
)  # fmt: skip
def test_known_readers_also_fused(name):
    assert reads(name, False)


@pytest.mark.parametrize(
    "name",
    [
        "read_mask", "spread", "thread", "read", "readjust", "ready", "reader", "from-array", "mean_chunk",
        "spread-csv", "open", "reopen_dataset", "unread-parquetry", "dreadcsv", "sum-read_model", "inc", "",
        "read-sum", "bread-csv", "threaded-read", "download",
    ],
)  # fmt: skip
def test_a_read_like_name_is_no_read(name):
    assert not reads(name, False)
    assert reads(name, True)  # but Dask's mark is


@pytest.mark.parametrize(
    "name",
    ["store-map", "add-store-map", "write_csv", "to-textfiles", "to-npy-stack", "toparquetdata", "store",
     "readparquetfsspec-add-toparquetdata", "write_json_partition", "to_sql"],
)  # fmt: skip
def test_known_writers_also_fused(name):
    assert writes(name)


@pytest.mark.parametrize(
    "name", ["write", "rewrite_csv", "restore", "restore-map", "to", "stored", "inc", ""]
)
def test_a_write_like_name_is_no_write(name):
    assert not writes(name)


@pytest.mark.parametrize(
    ("name", "is_producer", "measured", "expected"),
    [
        ("inc", False, MeasuredCost(0, 0, 0), 0.0),
        ("inc", True, MeasuredCost(0, 0, 0), 1.0),
        ("store-map", False, MeasuredCost(ENOUGH - 1, 1, 1), 1.0),
        ("store-map", False, MeasuredCost(ENOUGH, 1, 3), 0.75),
        ("store-map", False, MeasuredCost(ENOUGH, 0, 0), 1.0),
        ("read_csv", False, MeasuredCost(ENOUGH, 1, 1), 0.5),
        ("read_csv", False, MeasuredCost(ENOUGH, 9, 1), 0.1),
        ("sum", True, MeasuredCost(ENOUGH, 9, 1), 0.1),
        ("inc", False, MeasuredCost(ENOUGH, 1, 9), 0.0),  # nobody knows what for it waits
    ],
)
def test_the_share_of_its_time_that_a_task_reads_or_writes(name, is_producer, measured, expected):
    assert file_share(name, is_producer, measured) == expected


@pytest.mark.parametrize(
    ("name", "is_producer", "measured", "expected"),
    [
        ("inc", False, MeasuredCost(ENOUGH, 1, 9), True),
        ("inc", False, MeasuredCost(ENOUGH - 1, 1, 9), False),
        ("open_dataset", False, MeasuredCost(ENOUGH, 9, 1), False),
        ("open_dataset", False, MeasuredCost(ENOUGH - 1, 9, 1), True),
        ("mean_chunk", True, MeasuredCost(ENOUGH, 9, 1), False),
        ("mean_chunk", True, MeasuredCost(ENOUGH, 6, 4), True),
        ("mean_chunk", False, MeasuredCost(ENOUGH, 6, 4), False),
        ("mean_chunk", True, MeasuredCost(ENOUGH, 0, 0), True),
        ("mean_chunk", False, MeasuredCost(ENOUGH, 0, 0), False),
        ("mean_chunk", True, None, True),
    ],
)
def test_measurements_override_from_twenty_tasks_on(name, is_producer, measured, expected):
    assert reads(name, is_producer, measured) is expected


names = st.sampled_from(["open_dataset", "inc", "read-parquet", "read_mask", "mean_chunk-getitem", ""])
seconds = st.floats(0, 1e6)


@given(names, st.booleans(), st.integers(0, ENOUGH - 1), seconds, seconds)
def test_few_measurements_say_nothing(name, is_producer, tasks, computing, waiting):
    assert reads(name, is_producer, MeasuredCost(tasks, computing, waiting)) == reads(name, is_producer)


@given(names, st.booleans(), st.integers(ENOUGH, 10**6), seconds, seconds, seconds)
def test_more_waiting_never_makes_it_compute(name, is_producer, tasks, computing, waiting, more):
    if reads(name, is_producer, MeasuredCost(tasks, computing, waiting)):
        enough = computing + waiting > 0 or more == 0
        assert reads(name, is_producer, MeasuredCost(tasks, computing, waiting + more)) or not enough


@given(names, st.booleans())
def test_the_mark_is_kept_by_fusion(name, is_producer):
    for fused in (f"{name}-getitem-add", f"getitem-{name}"):
        assert reads(fused, is_producer) >= reads(name, is_producer)


@pytest.mark.parametrize(
    "path, rule",
    [
        ("/scratch/me/x.zarr", "/scratch/me"),  # of two folders that it lies in, the inner one
        ("/scratch/you", "/scratch"),
        ("/scratch", "/scratch"),
        ("/scratchy/x", "/"),
        ("s3://bucket/x", "s3://bucket"),
        ("s3://other/x", "default"),
        ("", "default"),
    ],
)
def test_the_innermost_folder_counts(path, rule):
    rules = ["/scratch", "/scratch/me", "/", "s3://bucket"]
    assert rule_of(path, rules) == rule_of(path, rules[::-1]) == rule


def test_a_file_system_is_the_first_folder_or_a_host():
    assert file_system("/scratch/me/x") == "/scratch" and file_system("s3://bucket/x/y") == "s3://bucket"
