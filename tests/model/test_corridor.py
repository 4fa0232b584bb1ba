"""The corridor: steps over time, the first also before its time."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.model.power import Corridor


def test_constant():
    assert Corridor.constant(10, 20).at(-5) == (10, 20)
    assert Corridor.constant().at(1e9) == (0, math.inf)


def test_steps():
    corridor = Corridor([(0, 0, 100), (60, 10, 50)])
    assert corridor.steps == ((0, 0, 100), (60, 10, 50))
    assert [corridor.at(t) for t in (-1, 0, 59.9, 60, 1e6)] == [
        (0, 100), (0, 100), (0, 100), (10, 50), (10, 50),
    ]  # fmt: skip


@given(st.lists(st.floats(-1e6, 1e6), unique=True, min_size=1), st.floats(-2e6, 2e6))
def test_against_a_plain_search(times, when):
    steps = [(time, 0.0, float(number)) for number, time in enumerate(sorted(times))]
    past = [step for step in steps if step[0] <= when] or steps[:1]
    assert Corridor(tuple(steps)).at(when) == past[-1][1:]


@pytest.mark.parametrize(
    "steps",
    [
        (),
        5,
        ((0, 1),),
        ((0, 5, 4),),
        ((0, -1, 4),),
        ((0, math.nan, 4),),
        ((0, 1, math.nan),),
        ((math.nan, 1, 4),),
        ((math.inf, 1, 4),),
        (("now", 1, 4),),
        ((5, 0, 1), (5, 0, 2)),
        ((5, 0, 1), (4, 0, 2)),
    ],
)
def test_bad_corridors(steps):
    with pytest.raises(InputError, match="corridor") as caught:
        Corridor(steps)
    assert len(str(caught.value).splitlines()) == 1


bounds = st.tuples(st.floats(0, 1e9), st.floats(0, 1e9) | st.just(math.inf)).map(sorted)
corridors = st.dictionaries(st.floats(-1e6, 1e6), bounds, min_size=1).map(
    lambda found: Corridor(tuple((time, *found[time]) for time in sorted(found)))
)


@given(corridors)
def test_what_is_written_is_read_back(corridor):
    assert Corridor.read(corridor.written()) == corridor
    assert Corridor.parse(json.dumps(corridor.written(), indent="\t")) == corridor


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("{lower: 1.7 kW, upper: 2500}", ((0, 1700, 2500),)),
        (b"upper: 2.5 kW", ((0, 0, 2500),)),
        ("lower: 5\nupper: none", ((0, 5, math.inf),)),
        ("lower: null\nupper: inf", ((0, 0, math.inf),)),
        ('{"lower": 1e3, "upper": 2E3}', ((0, 1000, 2000),)),
        (
            "- {at: 0, upper: 1 kW}\n- {at: 10 min, lower: 1, upper: 2 kW}",
            ((0, 0, 1000), (600, 1, 2000)),
        ),
    ],
)
def test_as_people_write_it(text, steps):
    assert Corridor.parse(text).steps == steps


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found None"),
        ("{}", "found {}"),
        ("[]", r"found \[\]"),
        ("1 kW", "found '1 kW'"),
        ("{lower: 1 kW, uper: 2 kW}", r"uper: unknown key \(nearest: upper\)"),
        ("{lower: 3 kW, upper: 2 kW}", "0 <= lower <= upper"),
        ("{lower: -1, upper: 2 kW}", "0 <= lower <= upper"),
        ("{lower: .nan}", "0 <= lower <= upper"),
        ("{lower: 3 hours}", "lower: found the unit 'hours'"),
        ("[1, 2]", "step 1: found 1"),
        ("[{lower: 1}]", "step 1: found"),
        ("[{at: 5}]", "step 1: found"),
        ("[{at: 5, upper: 1}, {at: soon, upper: 1}]", "step 2: at: found 'soon'"),
        ("[{at: 5, upper: 1}, {at: 5, upper: 2}]", "rising times"),
        ("{lower: 1", "not YAML"),
        (b"\xff", "not text"),
        (b"#" * 1_000_001, "more than 1,000,000 bytes"),
    ],
)
def test_what_is_no_corridor(text, words):
    with pytest.raises(InputError, match=words) as caught:
        Corridor.parse(text)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.slow
@given(st.binary() | st.text() | st.recursive(st.none() | st.text() | st.floats() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["at", "lower", "upper", "x"]), inner),
).map(json.dumps))  # fmt: skip
def test_any_text_is_a_corridor_or_refused(text):
    try:
        corridor = Corridor.parse(text)
    except InputError:
        return
    assert Corridor.read(corridor.written()) == corridor


def test_times_may_be_read_otherwise():
    corridor = Corridor.parse("[{at: noon, upper: 1}]", {"noon": 12.0}.__getitem__)
    assert corridor.steps == ((12, 0, 1),)


def test_a_person_reads_its_first_steps():
    corridor = Corridor(tuple((60.0 * i, 1000.0 + i, 2000.0) for i in range(4)))
    first = "1 kW to 2 kW, from 60.0 s on 1 kW to 2 kW"
    assert Corridor(corridor.steps[:2]).in_words() == first
    assert corridor.in_words() == f"{first}, from 120.0 s on 1 kW to 2 kW and 1 more steps"


def test_a_change_that_is_taken_out():
    corridor = Corridor([(0, 0, 100), (60, 10, 50), (90, 0, 70)])
    assert corridor.without(60).steps == ((0, 0, 100), (90, 0, 70))
    assert corridor.without(60.0004).without(90) == Corridor.constant(0, 100)
    for at in (0, 30, 61):
        with pytest.raises(InputError, match="allowed: 1 min"):
            corridor.without(at)
