"""What tasks of each kind needed, remembered between programs."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from dask_hpc.data_file import LIMIT
from dask_hpc.history.kinds import KindHistory, PastKind
from dask_hpc.model.errors import InputError


@pytest.fixture
def history(tmp_path):
    return KindHistory.of(str(tmp_path / "runs.json"))


def test_beside_the_history_of_runs(tmp_path):
    assert KindHistory.of(str(tmp_path / "runs.json")).path == tmp_path / "runs.kinds.json"
    assert KindHistory.of(None) is None


def test_written_and_read(history):
    assert history.read() == {}
    history.add({"a": PastKind(5.0, 1.0), "x" * 501: PastKind(1.0, 1.0), "x" * 500: PastKind(2.0, 1.0)})
    assert history.read() == {"a": PastKind(5.0, 1.0), "x" * 500: PastKind(2.0, 1.0)}
    history.add({"a": PastKind(3.0, 2.0), "b": PastKind(4.0, 2.0)})
    found = history.read()
    assert found["a"] == PastKind(3.0, 2.0) and found["b"].peak == 4.0 and len(found) == 3


def test_the_newest_are_kept(history):
    history.add({f"old{i}": PastKind(1.0, float(i)) for i in range(700)})
    history.add({f"new{i}": PastKind(1.0, 1000.0 + i) for i in range(700)})
    found = history.read()
    assert len(found) == 1000 and "old399" not in found and "old400" in found and "new0" in found


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "5", "null", '{"format": "other", "kinds": {}}', '{"kinds": {}}',
        '{"format": "dask-hpc kinds of tasks 1"}',
        '{"format": "dask-hpc kinds of tasks 1", "kinds": []}',
        '{"format": "dask-hpc kinds of tasks 1", "kinds": {"a": 5}}',
        '{"format": "dask-hpc kinds of tasks 1", "kinds": {"a": {"peak": 1}}}',
        '{"format": "dask-hpc kinds of tasks 1", "kinds": {"a": {"peak": -1, "when": 0}}}',
        '{"format": "dask-hpc kinds of tasks 1", "kinds": {"a": {"peak": NaN, "when": 0}}}',
        '{"format": "dask-hpc kinds of tasks 1", "kinds": {"a": {"peak": "1", "when": 0}}}',
        '{"format": "dask-hpc kinds of tasks 1", "kinds": {"a": {"peak": 1, "when": 0, "more": 1}}}',
        " " * (LIMIT + 1), "\x00", "[" * 100_000,
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_said_in_a_line_and_replaced(history, text):
    history.path.write_text(text)
    with pytest.raises(InputError) as caught:
        history.read()
    words = str(caught.value)
    assert str(history.path) in words and "\n" not in words and len(words) < 1000
    assert history.path.read_text() == text  # reading breaks nothing
    history.add({"a": PastKind(1.0, 1.0)})
    assert history.read() == {"a": PastKind(1.0, 1.0)}


def test_nothing_is_half_written(history, monkeypatch):
    history.add({"a": PastKind(1.0, 1.0)})
    before = history.path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError("the disk is full")))
    with pytest.raises(OSError, match="full"):
        history.add({"b": PastKind(1.0, 1.0)})
    assert history.path.read_bytes() == before
    assert {path.name for path in history.path.parent.iterdir()} == {"runs.kinds.json", "runs.kinds.lock"}


def test_two_write_at_once(history):
    def add(number):
        KindHistory(history.path).add({f"k{number}": PastKind(float(number), float(number))})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert history.read() == {f"k{number}": PastKind(float(number), float(number)) for number in range(40)}
    assert json.loads(history.path.read_text())["format"] == "dask-hpc kinds of tasks 1"


def test_what_is_no_kind():
    for peak, when in ((-1, 0), (float("inf"), 0), (1, -1), ("1", 0)):
        with pytest.raises(ValueError, match="no kind"):
            PastKind(peak, when)
