"""Complaints: one printable line whatever they are made of, and quick for monstrous values."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError, is_number, one_line, shown

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=30,
)


@given(st.text(), st.text(), st.text(), st.text())
def test_one_printable_line(where, found, allowed, file):
    error = InputError(where, found, allowed).at("x").in_file(file)
    assert str(error).isprintable()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_parts_in_reading_order():
    error = InputError("depth", "found -1", "0 or more").at("queue").in_file("a.yaml")
    assert str(error) == "a.yaml: queue: depth: found -1; allowed: 0 or more"
    assert (error.file, error.where, error.found, error.allowed) == (
        "a.yaml", "queue: depth", "found -1", "0 or more",
    )  # fmt: skip


@given(anything)
def test_shown(value):
    assert len(shown(value)) <= 60
    assert shown(value).isascii()
    assert one_line(shown(value)).isprintable()


def test_shown_is_quick_for_monsters():
    bomb = []
    for _ in range(100):
        bomb = [bomb] * 9
    assert len(shown(bomb)) <= 60
    assert shown(10**10_000) == "a int too large to show" or "too large" in shown(10**10_000)
    assert len(shown("x" * 10**7)) == 60

    class Hostile:
        def __repr__(self):
            raise RuntimeError("no")

    assert isinstance(shown(Hostile()), str)


def test_is_number():
    assert is_number(1, 0, 2)
    assert not any(is_number(value, 0, 2) for value in (3, "1", None, [], 1j, float("nan"), object()))
