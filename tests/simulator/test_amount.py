"""Arguments: values in order of need, circles named, amounts by size."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.simulator.application import Arguments, BySize, Fixed
from dask_hpc.simulator.expression import Expression


def arguments(**found):
    return Arguments({name: Expression.parse(value) for name, value in found.items()}, "nodes")


def test_arguments_use_each_other_in_any_order():
    names = arguments(c="a + b", b="2 * a", a=3, share="c / nodes")
    assert names.bind(Expression.parse("c")) == Fixed(9.0)
    amount = names.bind(Expression.parse("share + 1"))
    assert isinstance(amount, BySize) and amount(3) == amount(3) == 4.0 and amount(9) == 2.0
    again = pickle.loads(pickle.dumps(amount))
    assert again == amount and again(18) == 1.5


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ({"a": "b", "b": "a"}, "a: is defined by itself: a -> b -> a"),
        ({"a": "a + 1"}, "a: is defined by itself: a -> a"),
        ({"x": "a", "a": "b*2", "b": "c", "c": "a"}, "is defined by itself: a -> b -> c -> a"),
        ({"a": "bb", "b": 1}, "a: unknown name 'bb' in 'bb' \\(nearest: b\\)"),
        ({"nodes": 3}, "nodes: is the number of nodes"),
        ({"zero": 0, "a": "1 / zero"}, "a: expression '1 / zero': division by zero with zero=0.0"),
        ({f"a{i}": i for i in range(1001)}, "1,001 arguments"),
    ],
)
def test_complaints(found, complaint):
    with pytest.raises(InputError, match=complaint):
        arguments(**found)


def test_unknown_names_and_sizes_where_there_are_none():
    names = arguments(flops=1, per="flops / nodes")
    with pytest.raises(InputError, match=r"unknown name 'flop' .*nearest: flops.*allowed: flops, nodes, per"):
        names.bind(Expression.parse("flop"))
    for text in ("nodes", "per"):
        with pytest.raises(InputError, match=f"unknown name '{text}'"):
            names.bind(Expression.parse(text), sizes=False)


def test_a_long_chain_is_no_deep_one():
    chain = {f"a{i}": f"a{i + 1} + 1" for i in range(900)} | {"a900": "0"}
    assert arguments(**chain).bind(Expression.parse("a0"))(1) == 900


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef"), max_size=3)))
def test_circles_are_found_exactly_where_there_are_some(needs):
    needs = {name: {n for n in names if n in needs} for name, names in needs.items()}

    def reaches(start, goal, seen=()):
        return any(n == goal or (n not in seen and reaches(n, goal, (*seen, n))) for n in needs[start])

    circle = any(reaches(name, name) for name in needs)
    found = {name: " + ".join(["1", *sorted(names)]) for name, names in needs.items()}
    try:
        arguments(**found)
        assert not circle
    except InputError as error:
        assert circle and "is defined by itself" in str(error)
