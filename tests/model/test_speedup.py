"""Speed-up models: one on one node, rising where they must, complaints about tables."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.model.speedup import (
    Amdahl,
    Interpolated,
    IoDemand,
    Linear,
    PhasedSpeedup,
    PowerLaw,
    Speedup,
    Tabulated,
)
from dask_hpc.simulator.readers.yaml_workload import from_runtimes

steps = st.lists(st.tuples(st.integers(1, 50), st.floats(0.0, 10.0)), max_size=8)


def rising_table(found):
    points = [(1, 1.0)]
    for size, factor in found:
        points.append((points[-1][0] + size, points[-1][1] + factor))
    return tuple(points)


def in_phases(found):
    total = sum(weight for weight, _ in found)
    return PhasedSpeedup(tuple((weight / total, law) for weight, law in found))


simple = (
    st.just(Linear())
    | st.floats(0, 1).map(Amdahl)
    | st.floats(0, 1.5).map(PowerLaw)
    | steps.map(rising_table).map(Tabulated)
    | steps.map(rising_table).map(Interpolated)
)
rising = simple | st.lists(st.tuples(st.integers(1, 9), simple), min_size=1, max_size=4).map(in_phases)


@given(rising)
def test_one_node_is_the_unit(model):
    assert model.factor(1) == 1
    assert model.efficiency(1) == 1
    assert model.mtct(1) == 0


@given(rising, st.integers(1, 5000), st.integers(1, 5000))
def test_more_nodes_are_never_slower(model, one, other):
    few, many = sorted((one, other))
    assert model.factor(few) <= model.factor(many) * (1 + 1e-12)


@given(rising, st.integers(1, 5000))
def test_mtct_is_what_a_perfect_run_would_not_take(model, nodes):
    """From the definition: (time - perfect time) / perfect time, never negative."""
    work = 1000.0
    perfect = work / nodes
    beyond = (work / model.factor(nodes) - perfect) / perfect
    assert model.mtct(nodes) == pytest.approx(max(0.0, beyond), abs=1e-9)


def test_known_values():
    assert Amdahl(0.5).factor(2) == pytest.approx(4 / 3)
    assert Amdahl(1.0).factor(1000) == 1
    assert PowerLaw(0.5).factor(16) == 4
    assert PowerLaw(1.2).mtct(8) == 0, "super-linear counts as no communication"
    table = ((1, 1.0), (4, 3.0), (8, 4.0))
    assert [Tabulated(table).factor(n) for n in (1, 3, 4, 7, 8, 99)] == [1, 1, 3, 3, 4, 4]
    assert [Interpolated(table).factor(n) for n in (1, 2, 4, 6, 8, 99)] == pytest.approx(
        [1, 5 / 3, 3, 3.5, 4, 4]
    )
    assert from_runtimes({4: 30.0, 1: 90.0}) == Interpolated(((1, 1.0), (4, 3.0)))


def test_a_model_must_say_its_factor():
    with pytest.raises(NotImplementedError):
        Speedup().factor(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Amdahl(-0.1),
        lambda: Amdahl(math.nan),
        lambda: Amdahl("half"),
        lambda: PowerLaw(2),
        lambda: PowerLaw(None),
        lambda: Tabulated(()),
        lambda: Tabulated(((2, 1.0),)),
        lambda: Tabulated(((1, 2.0),)),
        lambda: Tabulated(((1, 1.0), (1, 2.0))),
        lambda: Tabulated(((1, 1.0), (2, 0.0))),
        lambda: Tabulated(((1, 1.0), (2, math.nan))),
        lambda: Tabulated(((1, 1.0), (2, math.inf))),
        lambda: Interpolated((1, 2)),
        lambda: Interpolated(5),
        lambda: from_runtimes({2: 5.0}),
        lambda: from_runtimes({1: 5.0, 2: 0.0}),
        lambda: from_runtimes({1: math.nan, 2: 1.0}),
    ],
)
def test_bad_models(make):
    with pytest.raises(InputError) as caught:
        make()
    assert len(str(caught.value).splitlines()) == 1


def test_phases_together():
    """Half of the work at an efficiency of 1, half at 1 / 2: 1 / 8 + 1 / 4 of the time on one node."""
    model = PhasedSpeedup(((0.5, Linear()), (0.5, PowerLaw(0.5))))
    assert model.factor(4) == pytest.approx(8 / 3)
    assert model.mtct(4) == pytest.approx((0 + 1) / 2), "the mean of the phases, by share"
    tenths = PhasedSpeedup(tuple((0.1, Linear()) for _ in range(10)))
    assert tenths.factor(1) == 1, "what rounding leaves of a sum of shares does not show"
    thirds = PhasedSpeedup(tuple((1 / 3, Linear()) for _ in range(3)))
    assert [end for end, _ in thirds.ends] == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]


@pytest.mark.parametrize(
    "phases",
    [
        (),
        ((0.5, Linear()),),
        ((0.5, Linear()), (0.6, Linear())),
        ((0.0, Linear()), (1.0, Linear())),
        ((1.0, 0.9),),
        ((1.0,),),
        7,
        (("1", Linear()),),
    ],
)
def test_phases_that_are_none(phases):
    with pytest.raises(InputError, match="phases: found"):
        PhasedSpeedup(phases)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_that_was_seen_is_the_intensity_on_whatever_nodes(share):
    demand = IoDemand.of_share(share)
    assert all(demand.intensity(nodes) == pytest.approx(share) for nodes in (1, 3, 500))


@pytest.mark.parametrize("field", ["compute", "data", "speed", "link", "file_system"])
def test_what_is_no_demand_of_io(field):
    fine = {"compute": 1.0, "data": 2.0, "speed": 3.0, "link": 4.0, "file_system": 5.0}
    may_be_zero = field in ("compute", "data")
    assert getattr(IoDemand(**fine | {field: 0.0 if may_be_zero else math.inf}), field) in (0.0, math.inf)
    for value in (-1.0, float("nan"), "3", None, math.inf if may_be_zero else 0.0):
        with pytest.raises(InputError, match=f"io_intensity.{field}: found"):
            IoDemand(**fine | {field: value})
