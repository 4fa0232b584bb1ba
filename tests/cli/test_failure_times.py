"""Times of failures, from files of seconds, dates and tables."""

import pytest

from dask_hpc.cli.failure_times import read_failure_times
from dask_hpc.model.errors import InputError


def test_files_of_seconds_dates_and_tables():
    assert read_failure_times("# log\n10\n\n 20.5 # disk\n3e1\n") == [10, 20.5, 30]
    dates = read_failure_times("2026-03-01T00:00:00\n2026-03-01 01:00:00+01:00\n2026-03-02\n")
    assert dates[0] == dates[1] == dates[2] - 86400
    assert read_failure_times('node,Start,end\nn1,5,6\n"n,2",7,8\n') == [5, 7]
    assert read_failure_times("time\n5\n") == [5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5\nsoon\n", "line 2: found 'soon'"),
        ("5\nnan\n", "line 2: found 'nan'"),
        ("5\n2026-03-01\n", "line 2: found '2026-03-01'; allowed: all seconds"),
        ("5,6\n", "line 1: a table without a heading"),
        ("a,time\n1,2\n3\n", "line 3: has 1 columns"),
        ("5\n1_0\n", "line 2"),
    ],
)
def test_bad_files(text, words):
    with pytest.raises(InputError, match=words):
        read_failure_times(text)
