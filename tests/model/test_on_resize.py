"""What becomes of a replicated value when the number of nodes changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.checkpoint.store.versions import rule_text
from dask_hpc.model.errors import InputError
from dask_hpc.model.on_resize import OnResize

BEFORE, AFTER = ["a", "b"], ["b", "c", "d"]


def values(rule, stored="old"):
    return OnResize.read(rule).values(stored, BEFORE, AFTER)


def test_each_rule():
    assert values("constant") == {"b": "old", "c": "old", "d": "old"}
    assert values("size") == {"b": 3, "c": 3, "d": 3}
    assert values("rank") == {"b": 0, "c": 1, "d": 2}
    assert values("default:0.1") == {"b": 0.1, "c": 0.1, "d": 0.1}
    assert values("joining:0.1") == {"b": "old", "c": 0.1, "d": 0.1}
    assert values(lambda nodes: nodes * 10) == {"b": 30, "c": 30, "d": 30}


@pytest.mark.parametrize(
    "text, value", [("3", 3), ("'x'", "x"), ("[1, 2]", [1, 2]), ("fast", "fast"), ("", ""), ("a:b", "a:b")]
)
def test_values_in_a_rule(text, value):
    assert OnResize.read(f"default:{text}").value == value


def test_one_value_for_all_where_there_is_one():
    def all_of(rule, after=AFTER):
        return OnResize.read(rule).value_of_all("old", BEFORE, after)

    assert (all_of("constant"), all_of("size"), all_of("default:5")) == ("old", 3, 5)
    assert all_of("joining:5") == {"b": "old", "c": 5, "d": 5}
    assert all_of("joining:5", BEFORE) == all_of("rank", BEFORE) == "old"  # nothing changed
    assert all_of("rank") == {"b": 0, "c": 1, "d": 2}
    assert all_of("constant", []) == "old"


@given(st.lists(st.text(), unique=True), st.lists(st.text(), unique=True), st.sampled_from(["size", "rank"]))
def test_every_node_has_a_value(before, after, rule):
    found = OnResize.read(rule).values(0, before, after)
    assert list(found) == after
    assert sorted(found.values()) == (
        list(range(len(after))) if rule == "rank" else [len(after)] * len(after)
    )


@pytest.mark.parametrize("rule", ["sizes", "default", "rank:3", 5, None, ""])
def test_rules_that_nobody_knows(rule):
    with pytest.raises(InputError, match="default:VALUE"):
        OnResize.read(rule)


@pytest.mark.parametrize("rule", ["constant", "rank", "default:3", "joining:'a'"])
def test_a_rule_is_written_as_it_is_read(rule):
    assert rule_text(rule) == rule and OnResize.read(rule_text(rule)) == OnResize.read(rule)
