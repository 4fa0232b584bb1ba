"""Text is read by a parser in C where there is one, and says and holds the same as without it."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.model import safe_yaml
from dask_hpc.model.safe_yaml import read_yaml
from dask_hpc.policy import ready_made

LIMIT = 20_000_000
WRONG = {
    "a: [1, 2": "line 1: not YAML: expected ',' or ']', but got '<stream end>'",
    "a\n  b: c: d": "line 2: not YAML: mapping values are not allowed here",
    "a: 1\nb: {c: 2,\n  c: 3}": "line 3: 'c' is said twice",
    "a: &x 1\nb: *x": "line 2: found the alias '*x'; allowed: no aliases; write it out",
    "a: !!python/object:os.system {}": "line 1: not YAML: could not determine a constructor for the tag",
    "x: 2020-13-45": "not YAML: month must be in 1..12",
    "x: !!int ''": "not YAML: string index out of range",
    "x: \0": "not YAML: 'unacceptable character #x0000",
    "x: \ud800": "not YAML: '",  # the one cannot encode it, the other does not accept it
    "\ta: b": "line 1: not YAML: found character '\\t' that cannot start any token",
}


@pytest.fixture(params=["in C", "without"] if yaml.__with_libyaml__ else ["without"])
def either_parser(request, monkeypatch):
    monkeypatch.setattr(yaml, "__with_libyaml__", request.param == "in C")


@pytest.mark.usefixtures("either_parser")
@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong(text):
    with pytest.raises(InputError) as found:
        read_yaml(text, LIMIT)
    assert str(found.value).startswith(WRONG[text])


@pytest.mark.usefixtures("either_parser")
@pytest.mark.parametrize("opened", ["[", "- ", "{a: ", "? ", "[{a: "])
def test_what_is_nested_deeply_crashes_nothing(opened):
    with pytest.raises(InputError, match="nested too deeply"):
        read_yaml(opened * 100_000, LIMIT)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@given(plain, st.booleans(), st.booleans())
def test_whatever_is_written_reads_the_same(found, in_a_line, as_it_is):
    text = yaml.safe_dump(found, default_flow_style=in_a_line, allow_unicode=as_it_is)
    assert repr(safe_yaml._load(text)) == repr(yaml.load(text, safe_yaml._Loader))


@pytest.mark.parametrize("path", ready_made().values(), ids=list(ready_made()))
def test_policies_read_the_same(path):
    text = path.read_text(encoding="utf-8")
    assert safe_yaml._load(text) == yaml.load(text, safe_yaml._Loader)


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML is without its parser in C")
def test_the_parser_in_c_is_used(monkeypatch):
    monkeypatch.delattr(safe_yaml, "_Loader")
    assert read_yaml("a: [1, 2]", LIMIT) == {"a": [1, 2]}
    with pytest.raises(InputError, match="line 2: 'a' is said twice"):
        read_yaml("a: 1\na: 2", LIMIT)
