"""Values as descriptions and bytes: the same value again, and nothing is unpickled unless that is allowed."""

import json
import math
from datetime import UTC, date, datetime, time, timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dask_hpc.checkpoint.store.value import Opaque, Unknown, decode, encode, is_opaque


def again(value, may_unpickle=False):
    """As if it had been stored: the head as JSON, the frames as bytes of their own."""
    found = encode(value)
    return decode(
        json.loads(json.dumps(found.head)), [bytes(f) for f in found.frames], may_unpickle=may_unpickle
    )


def same(a, b):
    """Equal, type and all, also where nan is not equal to itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and (
                all(map(same, a.ravel().tolist(), b.ravel().tolist()))
                if a.dtype.kind in "OT"
                else a.tobytes() == b.tobytes()
            )
        )
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    return a == b


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes(allow_imaginary=False).map(lambda when: when.replace(fold=0))
    | st.times().map(lambda when: when.replace(fold=0))
    | st.timedeltas()
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers(), st.text()), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
def test_plain_values(value):
    assert same(again(value), value)


@settings(deadline=None)
@given(
    hnp.arrays(
        hnp.scalar_dtypes() | hnp.unicode_string_dtypes() | hnp.byte_string_dtypes() | hnp.array_dtypes(),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    ),
    st.sampled_from(["as it is", "transposed", "every second", "backwards"]),
)
def test_arrays(array, way):
    if array.ndim and way != "as it is":
        array = {"transposed": array.T, "every second": array[::2], "backwards": array[::-1]}[way]
    found = again(array)
    assert same(found, array) and found.flags.writeable
    assert found.flags.f_contiguous == (array.flags.f_contiguous or array.size < 2 or found.ndim < 2) or (
        found.flags.c_contiguous
    )


@pytest.mark.parametrize(
    "value",
    [
        {1, 2, 3},
        frozenset({"a"}),
        range(2, 9, 3),
        slice(None, 4),
        bytearray(b"abc"),
        10**40,
        -(2**53),
        np.float32(0.1),
        np.datetime64("2026-11-20", "D"),
        np.bool_(True),
        np.array([("a", 1)], [("name", "U3"), ("n", ">i4", (2,))]),
        np.array([["a", None], ["ü", "b"]], object),
        np.array([], object).reshape(0, 3),
        date(2026, 11, 20),
        datetime(2026, 11, 20, 21),
        time(21, 30),
        timedelta(days=-3, microseconds=5),
        (),
        {},
        {(1, "a"): [None, {"b": (1.5, -0.0)}]},
    ],
)
def test_one_of_each(value):
    assert same(again(value), value)


def test_numbers_that_other_readers_of_json_may_not_know_exactly_are_text():
    for number in (2**53 - 1, 1 - 2**53):
        assert encode(number).head == number
    for number in (2**53, -(2**53)):
        assert encode(number).head == {"is": "int", "of": hex(number)}


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy 2")
def test_strings_of_any_length():
    words = np.array(["a", "a longer one"], np.dtypes.StringDType())
    assert same(again(words), words)
    some = np.array(["a", math.nan], np.dtypes.StringDType(na_object=math.nan))
    found = again(some)
    assert found[0] == "a" and math.isnan(found[1])


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": [1, 2], "b": [0.5, math.nan]}),
        pd.DataFrame({"when": pd.date_range("2026", periods=3, freq="D")}, index=[5, 6, 9]),
        pd.DataFrame({"kind": pd.Categorical(["x", "y", "x"])}, index=pd.Index(["a", "b", "c"], name="id")),
        pd.DataFrame({"a": []}),
        pd.DataFrame({"a": [1], "b": ["text"]}),
        pd.DataFrame({0: [1], 1: [2]}),
        pd.DataFrame({"a": ["text", None]}),
        pd.DataFrame(
            {"a": pd.array(["text", None], "string[pyarrow]"), "b": pd.array(["x", "y"], "string[python]")}
        ),
        pd.DataFrame({"a": pd.Series(["text", "more"], dtype=object)}),
        pd.DataFrame({"a": pd.Series(["text", None], dtype=object)}),
        pd.DataFrame({"a": pd.Series(["text", 3], dtype=object)}),
        pd.DataFrame({"a": pd.Series([b"bytes"], dtype=object)}),
        pd.DataFrame({"a": [1]}, index=pd.Index([(1, 2)], tupleize_cols=False)),
        pd.DataFrame({"a": [1, 2]}, index=pd.Index([3, 4], dtype=object)),
        pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", None], dtype=object)),
        pd.DataFrame({"a": [1, 2]}, index=pd.MultiIndex.from_tuples([("x", 1), ("y", 2)])),
    ],
)
def test_tables(table):
    found = encode(table)
    pd.testing.assert_frame_equal(again(table, may_unpickle=is_opaque(found.head)), table, check_freq=True)


@pytest.mark.parametrize("index", [None, ["x", "y"], [["x", "y"], [1, 2]]])
@pytest.mark.parametrize("text", [["text", "more"], ["text", None]])
@pytest.mark.parametrize("kind", [None, "string[pyarrow]", "string[python]"])
def test_some_tables_need_no_pickle(index, text, kind):
    column = text if kind is None else pd.array(text, kind)
    table = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5], "c": column}, index=index)
    found = encode(table)
    assert not is_opaque(found.head) and not is_opaque(encode(table.c).head)
    pd.testing.assert_frame_equal(again(table), table)
    pd.testing.assert_series_equal(again(table.c), table.c)


class Thing:
    """Not plain."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value

    __hash__ = None


@pytest.mark.parametrize(
    "value",
    [
        Thing(3),
        [1, Thing(3)],
        {"a": {"b": Thing(3)}},
        datetime(2026, 1, 1, tzinfo=UTC),
        np.array([None, Thing(1)], object),
        pd.Series([1, 2]).tolist,
    ],
)
def test_what_is_opaque_is_not_unpickled_unless_allowed(value):
    found = encode(value)
    assert is_opaque(found.head)
    with pytest.raises(Opaque):
        decode(found.head, found.frames)
    if not callable(value):
        back = again(value, may_unpickle=True)
        assert back == value if not isinstance(value, np.ndarray) else (back == value).all()


def test_nothing_is_copied_on_the_way_in():
    array = np.arange(1000.0)
    (frame,) = encode(array).frames
    assert np.shares_memory(np.frombuffer(frame, np.uint8), array)


def test_deep_and_recursive_values():
    deep = value = []
    for _ in range(150):
        deep.append([])
        deep = deep[0]
    assert is_opaque(encode(value).head)
    own = []
    own.append(own)
    assert is_opaque(encode(own).head)


@pytest.mark.parametrize(
    "head",
    [
        {"is": "gadget"},
        {},
        {"is": "array", "dtype": "|O", "shape": [1], "order": "C", "frame": 0},
        {"is": "array", "dtype": "<f8", "shape": [10], "order": "C", "frame": 0},
        {"is": "array", "dtype": "<f8", "shape": [1], "order": "C", "frame": 7},
        {"is": "list"},
        {"is": "dict", "keys": [1], "values": []},
        {"is": "timedelta", "of": ["a"]},
        ["a"],
    ],
)
def test_descriptions_that_nobody_wrote(head):
    with pytest.raises((Unknown, ValueError)):
        decode(head, [b"12345678"])
