"""Declared parameters: read what people write, refuse the rest, write what reads back."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.model.parameter import Parameter, declared
from dask_hpc.model.power import Corridor


@dataclass(frozen=True)
class Sample:
    guard: Annotated[float, Parameter("how long to wait", "s", low=0)] = 60.0
    share: Annotated[float, Parameter("how much", low=0, high=1)] = 0.5
    depth: Annotated[int, Parameter("how many", "jobs", low=1, high=100)] = 10
    cap: Annotated[float, Parameter("at most this", "W", high=5000)] = 1000.0
    free: Annotated[float, Parameter("anything")] = 0.0
    first: Annotated[Literal["small", "large"], Parameter("which first")] = "small"
    eager: Annotated[bool, Parameter("whether to hurry")] = False
    limit: Annotated[float, Parameter("never beyond", "W", low=0, none=math.inf)] = math.inf
    path: Annotated[str, Parameter("a file", none="")] = ""
    bounds: Annotated[Corridor | None, Parameter("over time")] = None


PARAMETERS = {one.name: one for one in declared(Sample)}


def test_declarations():
    assert list(PARAMETERS) == [
        "guard", "share", "depth", "cap", "free", "first", "eager", "limit", "path", "bounds",
    ]  # fmt: skip
    assert {name: one.bounds for name, one in PARAMETERS.items()} == {
        "guard": "0 s or more",
        "share": "0 to 1",
        "depth": "1 to 100",
        "cap": "at most 5 kW",
        "free": "any number",
        "first": "small, large",
        "eager": "true, false",
        "limit": "0 W or more",
        "path": "none, or text",
        "bounds": "none, or a list of {at: TIME, lower: POWER, upper: POWER}",
    }
    assert PARAMETERS["guard"].default == 60
    assert PARAMETERS["first"].type is str
    assert PARAMETERS["guard"].parameter.help == "how long to wait"


@pytest.mark.parametrize(
    "name, written, value",
    [
        ("guard", "2 min", 120.0), ("guard", 5, 5.0), ("guard", "inf", math.inf),
        ("share", 1, 1.0), ("share", "0.25", 0.25), ("depth", "7", 7), ("depth", 7, 7),
        ("cap", "2.5 kW", 2500.0), ("first", "large", "large"), ("free", "-1e3", -1000.0),
        ("limit", "none", math.inf), ("limit", "None", math.inf), ("limit", "2 kW", 2000.0),
        ("path", "none", ""), ("path", "a b", "a b"), ("bounds", "none", None), ("bounds", None, None),
        ("bounds", [{"at": "1 min", "upper": "2 kW"}], Corridor(((60, 0, 2000),))),
        ("bounds", "[{at: 1 min, upper: 2 kW}]", Corridor(((60, 0, 2000),))),
        ("eager", True, True), ("eager", "No", False), ("eager", "TRUE", True),
    ],
)  # fmt: skip
def test_reading(name, written, value):
    found = PARAMETERS[name].read(written)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "name, written",
    [
        ("guard", "-1s"), ("guard", "5 W"), ("guard", math.nan), ("guard", True), ("guard", None),
        ("share", 1.01), ("share", "half"), ("share", True), ("share", "nan"), ("share", [0.5]),
        ("depth", 0), ("depth", 101), ("depth", 7.0), ("depth", "7.0"), ("depth", False), ("depth", 10**400),
        ("depth", "9" * 5000), ("share", 10**400), ("cap", "6 kW"), ("free", {}), ("free", math.nan),
        ("first", "Small"), ("first", 1), ("first", ["small"]), ("eager", 1), ("eager", "maybe"),
        ("eager", None), ("limit", -1), ("path", 5), ("path", "a\nb"), ("path", "x" * 5000), ("path", None),
        ("bounds", 5), ("bounds", []), ("bounds", "soon"), ("bounds", [{"at": "5 W"}]),
    ],
)  # fmt: skip
def test_refusing(name, written):
    with pytest.raises(InputError) as caught:
        PARAMETERS[name].read(written)
    assert str(caught.value).isprintable()
    assert caught.value.allowed


@given(st.sampled_from(["guard", "cap", "free"]), st.floats(0, 5000))
def test_written_values_read_back(name, value):
    one = PARAMETERS[name]
    assert one.read(one.write(value)) == value


@pytest.mark.parametrize(
    "name, value",
    [
        ("limit", math.inf), ("path", ""), ("path", "/etc/corridor.yaml"), ("bounds", None),
        ("bounds", Corridor(((0, 1e3, 2e3), (60, 0, math.inf)))), ("bounds", Corridor.constant(0, math.inf)),
    ],
)  # fmt: skip
def test_what_may_be_none_reads_back(name, value):
    one = PARAMETERS[name]
    assert one.read(one.write(value)) == value
    assert yaml.safe_load(yaml.safe_dump(one.write(value))) == one.write(value)
