"""Quantities: written and read back exactly, and everything else refused in one line."""

import math
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.model.units import (
    UNITS,
    finite,
    parse_duration,
    parse_quantity,
    read_moment,
    show_bounds,
    show_bytes,
    show_duration,
    write_quantity,
)

units = st.sampled_from(sorted(UNITS))


@given(st.floats(allow_nan=False), units)
def test_round_trip(value, unit):
    assert parse_quantity(write_quantity(value, unit), unit) == value


@given(st.integers(-(10**15), 10**15), units)
def test_whole_numbers_are_written_short(value, unit):
    text = write_quantity(float(value), unit)
    assert parse_quantity(text, unit) == value
    assert len(text) <= 20


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("30s", 30), ("30 s", 30), (" 10 min ", 600), ("2h", 7200), ("1.5 d", 129600), ("500ms", 0.5),
        ("1e3", 1000), ("5 M", 300), (".5h", 1800), ("1 week", 604800), ("-2s", -2), (45, 45), (1.5, 1.5),
        ("1:30", 90), ("2:00:00", 7200), ("1-02:00:00", 93600), ("1-02:03:04.5", 93784.5),
        # Slurm: after days come hours, then minutes
        ("1-2", 93600), ("1-02:30", 95400),
        ("inf", math.inf), ("UNLIMITED", math.inf), (".inf", math.inf),
    ],
)  # fmt: skip
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text, unit, value",
    [
        ("4 GiB", "B", 4 * 2**30), ("4GB", "B", 4e9), ("1kib", "B", 1024), ("7", "B", 7),
        ("2.5 kW", "W", 2500), ("3 MW", "W", 3e6), ("3 mW", "W", 3e-3), ("3 mw", "W", 3e-3),
        ("10 GB/s", "B/s", 1e10), ("2MiB/s", "B/s", 2**21), ("100 Gbit/s", "B/s", 12.5e9), ("5", "B/s", 5),
    ],
)  # fmt: skip
def test_bytes_and_watts(text, unit, value):
    assert parse_quantity(text, unit) == value


@pytest.mark.parametrize(
    "value, unit",
    [
        ("", "s"), ("fast", "s"), ("10 parsec", "s"), ("1 GiB", "s"), ("1-", "s"), ("1:2:3:4", "s"),
        (":5", "s"), ("5 W", "s"), ("٣ s", "s"), ("3 \u017f", "s"), ("1..2s", "s"), ("nan", "s"),
        ("5 Min", "W"), ("5 Mfoo", "W"), ("30s", "W"), ("1:30", "W"),
        ("10 GB", "B/s"), ("10 Gb/s", "B/s"), ("10 GB/s", "B"), ("10 /s", "B/s"), ("1 s/s", "s"),
        (True, "s"), (None, "B"), ([], "W"), ({"a": 1}, "s"), (b"30s", "s"), (1j, "s"), (10**400, "s"),
    ],
)  # fmt: skip
def test_bad_quantities(value, unit):
    with pytest.raises(InputError) as caught:
        parse_quantity(value, unit)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.allowed


@given(st.text() | st.from_regex(r"[\d:.\- ]*[a-zA-Z]*", fullmatch=True), units)
def test_any_text_is_a_number_or_a_complaint(text, unit):
    try:
        value = parse_quantity(text, unit)
    except InputError as error:
        assert str(error).isprintable()
    else:
        assert isinstance(value, float)


def test_endless_digits():
    many = "9" * 50_000  # also a matter of time: a pattern that backtracks takes minutes
    for text in (many, f"{many}:00", f"{many}-{many}:00:00", f"0.{many}"):
        assert parse_duration(text) > 0
    with pytest.raises(InputError):
        parse_duration(f"{many} parsec")


@given(st.floats())
def test_shown_durations_are_short(seconds):
    assert show_duration(seconds)
    assert len(show_duration(seconds)) < 15 or abs(seconds) > 1e8


def test_shown_durations():
    assert show_duration(47) == "47 s"
    assert show_duration(210) == "3.5 min"
    assert show_duration(7560) == "2.1 h"
    assert show_duration(4 * 86400) == "4.0 d"
    assert show_duration(math.inf) == "unlimited"
    assert show_duration(math.nan) == "-"


def test_shown_bounds():
    assert show_bounds(1700, 2500, "W") == "1.7 kW to 2.5 kW"
    assert show_bounds(0, 2500, "W") == "at most 2.5 kW"
    assert show_bounds(1700, math.inf, "W") == "at least 1.7 kW"
    assert show_bounds(0, math.inf, "W") == "no bounds"


def test_whole_numbers_of_bytes_are_shown_whatever_their_type():
    assert show_bytes(1_234_567) == show_bytes(1_234_567.0) == "1234567 B"
    assert show_bytes(123_456_789) == show_bytes(123_456_789.0) == "123 MB"


def test_json_has_no_infinity():
    assert finite({"a": [1, math.inf, (math.nan, "x")], "b": 2.5}) == {"a": [1, None, [None, "x"]], "b": 2.5}


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", 100.0), ("in 10 min", 700.0), ("+30 s", 130.0), ("+ 1:30", 190.0), (" In 2 h ", 7300.0),
        ("600", 600.0), (600, 600.0), ("10 min", 600.0), ("-5", -5.0),
    ],
)  # fmt: skip
def test_a_moment_as_people_say_it(text, moment):
    assert read_moment(text, 100.0, None) == moment


@pytest.mark.parametrize(
    ("text", "after"),
    [("11:45", 75 * 60.0), ("10:30", 0.0), ("23:59:30", 48_570.0), ("10:29", 24 * 3600 - 60.0)],
)
def test_a_time_of_day_is_the_next_one(text, after):
    here = datetime(2026, 6, 10, 10, 30)
    now, epoch = 1000.0, here.timestamp() - 1000.0
    assert read_moment(text, now, epoch) == pytest.approx(now + after)


@pytest.mark.parametrize(
    "text", ["", "soon", "in", "in -5 min", "+inf", "25:00", "11:75", None, True, [], "nan"]
)
def test_a_moment_that_is_none(text):
    with pytest.raises(InputError, match="found"):
        read_moment(text, 0.0, 0.0)


def test_no_time_of_day_on_a_clock_that_is_not_the_walls():
    with pytest.raises(InputError, match="not the wall's"):
        read_moment("11:45", 0.0, None)
