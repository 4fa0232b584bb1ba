"""What workers tell of power is checked, and divided where each worker is a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.power.worker.plugin import Heartbeat, of_each

TOLD = {
    "host": "h", "pid": 1, "sequence": 3, "age": 0.5, "watts": 200.0, "uncertainty": 20.0,
    "source": "measured", "idle": 100.0, "use": 0.5, "share": 0.25, "meters": ["rapl psys"], "problem": "",
    "cap": [150.0, 300.0], "capped": None,
}  # fmt: skip


def test_what_is_told_is_read():
    assert Heartbeat.read(TOLD)._asdict() == TOLD
    assert Heartbeat.read(TOLD | {"cap": (150.0, 300.0), "meters": ("rapl psys",)})._asdict() == TOLD
    assert Heartbeat.read(TOLD | {"meters": ()}).meters == []
    assert Heartbeat.read(TOLD | {"more": 1})._asdict() == TOLD


@pytest.mark.parametrize(
    "name, bad",
    [
        ("host", ""), ("host", 3), ("pid", "x"), ("sequence", 0), ("sequence", True), ("age", -1),
        ("watts", float("nan")), ("watts", -1), ("watts", 1e9), ("watts", True), ("watts", None),
        ("uncertainty", float("inf")), ("source", "guessed"), ("source", []), ("idle", "100"), ("use", 1.5),
        ("share", -0.1), ("meters", "rapl"), ("meters", [1]), ("problem", "two\nlines"), ("problem", None),
        ("cap", [1]), ("cap", [1, -1]), ("cap", 3), ("capped", -1),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(name, bad):
    with pytest.raises(InputError, match=f"hpc_power: {name}: found"):
        Heartbeat.read(TOLD | {name: bad})
    if name in ("cap", "capped"):
        return
    missing = {key: value for key, value in TOLD.items() if key != name}
    with pytest.raises(InputError, match=name):
        Heartbeat.read(missing)


def test_it_is_a_dict():
    for bad in (None, 3, [TOLD], "x"):
        with pytest.raises(InputError, match="a dict"):
            Heartbeat.read(bad)


def test_workers_of_one_host_share_by_their_work():
    told = {"a": Heartbeat.read(TOLD | {"share": 0.6}), "b": Heartbeat.read(TOLD | {"share": 0.1})}
    assert of_each(told) == {"a": (110.0, pytest.approx(11.0)), "b": (60.0, pytest.approx(6.0))}


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
    st.floats(0, 1e5),
    st.floats(0, 1e5),
)
def test_no_more_is_given_than_there_is(weights, watts, idle):
    total = max(1.0, sum(weights))
    told = {
        str(i): Heartbeat.read(TOLD | {"share": weight / total, "watts": watts, "idle": idle})
        for i, weight in enumerate(weights)
    }
    parts = [part for part, _ in of_each(told).values()]
    assert min(idle, watts) - 1e-6 <= sum(parts) <= watts + 1e-6
    assert min(parts) >= 0
