"""Formulas: the same results as Python's own arithmetic, and nothing but complaints for the rest."""

import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.simulator.expression import DEEPEST, FUNCTIONS, LONGEST, Expression


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("flops / num_nodes^alpha", 4.0),
        ("1e3 * num_nodes", 4000.0),
        ("-2^2", -4.0),
        ("2^-1", 0.5),
        ("2**3^2", 512.0),
        ("2 - 3 - 4", -5.0),
        ("8 / 4 / 2", 1.0),
        ("-7 % 3", 2.0),
        ("--3 + +1", 4.0),
        ("min(5, num_nodes, 9) + max(1, 2)", 6.0),
        ("log2(8) + log(1) + log10(100)", 5.0),
        ("sqrt(16) + ceil(1.2) + floor(-1.2) + abs(-3) + exp(0)", 8.0),
        (".5 + 1. + 1E+2", 101.5),
        ("((((2))))", 2.0),
        ("num_nodes == 4", 1.0),
        ("num_nodes != 4", 0.0),
        ("num_nodes <> 4.5", 1.0),
        ("4 < num_nodes", 0.0),
        ("4 <= num_nodes", 1.0),
        ("num_nodes > 3.5", 1.0),
        ("num_nodes >= 4 + 1", 0.0),
        ("3 > 2 > 1", 0.0),
        ("10 * (num_nodes == 4) + 1", 11.0),
        ("num_nodes > 2 ? 7 : 8", 7.0),
        ("num_nodes > 4 ? 7 : 8 + 1", 9.0),
        ("0 ? 1 : num_nodes == 4 ? 2 : 3", 2.0),
        ("1 ? 0 ? 1 : 2 : 3", 2.0),
        ("num_nodes - 4 ? 1 / (num_nodes - 4) : -1", -1.0),
        ("num_nodes < 3 || flops == 8 && alpha > 1", 0.0),
        ("1 || 0 && 0", 1.0),
        ("(1 or 0) and 0", 0.0),
        ("2 and -3", 1.0),
        ("!0 + !num_nodes", 1.0),
        ("-!0", -1.0),
        ("!-1", 0.0),
        ("not(num_nodes == 3) + 1", 2.0),
        ("if(alpha < 1, max(1, 2) ^ 2, 1 / 0)", 4.0),
        ("0 && 1 / 0", 0.0),
    ],
)
def test_results(text, result):
    assert Expression.parse(text)(flops=8, num_nodes=4, alpha=0.5, unused=1) == result


def test_names_numbers_and_units():
    assert Expression.parse("a * min(b, a) + 2").names == {"a", "b"}
    assert Expression.parse(3)() == 3.0 and Expression.parse(2.5).names == frozenset()
    assert (
        Expression.parse(-2).number == -2.0 == Expression.parse(-2)() and Expression.parse("2").number is None
    )
    assert pickle.loads(pickle.dumps(Expression.parse(-0.5)))() == -0.5
    assert Expression.parse("a * b") is Expression.parse("a * b")  # translated once
    assert Expression.parse("n > 2 and 3 kib or n", {"kib": 1024.0})(n=2) == 1.0
    assert Expression.parse("10 GiB / n + 3", {"gib": 2.0**30})(n=2) == 5 * 2**30 + 3


def test_pickled_and_compared():
    one = Expression.parse("2 KiB * n^0.5", {"kib": 1024.0})
    other = pickle.loads(pickle.dumps(one))
    assert other == one and hash(other) == hash(one) and other(n=9) == one(n=9) == 6144.0
    assert one != Expression.parse("2 * n^0.5")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "character 1: it ends here"),
        ("1 +", "character 4: it ends here; allowed: a number, a name or a parenthesis"),
        ("2^^3", "character 3: found '\\^'"),
        ("a b", "character 3: found 'b'; allowed: an operator"),
        ("(1", "character 3: it ends here; allowed: '\\)'"),
        ("1)", "character 2: found '\\)'"),
        ("sqrt(1, 2)", "character 7: found ','"),
        ("min()", "character 5: found '\\)'"),
        ("sqr(1)", "unknown function 'sqr' \\(nearest: sqrt\\)"),
        ("__import__('os')", "unknown function '__import__'"),
        ("a.b", "character 2: found '\\.'; allowed: numbers, names"),
        ("x = 1", "character 3: found '='"),
        ("x === 1", "character 5: found '='"),
        ("1 ? 2", "character 6: it ends here; allowed: ':'"),
        ("1 : 2", "character 3: found ':'; allowed: an operator"),
        ("1 ? : 2", "character 5: found ':'; allowed: a number, a name or a parenthesis"),
        ("a &", "character 3: found '&'"),
        ("a && ", "character 6: it ends here"),
        ("if(1, 2)", "character 8: found '\\)'; allowed: ','"),
        ("if(1, 2, 3, 4)", "character 11: found ','; allowed: '\\)'"),
        ("not 1", "character 5: found '1'"),
        ("is_true(1)", "unknown function 'is_true'"),
        ("real(1)", "unknown function 'real'"),
        ("1?" * 200 + "2" + ":3" * 200, f"at most {DEEPEST} levels"),
        ("1?2:" * 200 + "3", f"at most {DEEPEST} levels"),
        ("1<" * 200 + "2", f"at most {DEEPEST} levels"),
        ("!" * 200 + "2", f"at most {DEEPEST} levels"),
        ("if(1," * 200, f"at most {DEEPEST} levels"),
        ("1e999", "found '1e999'; allowed: a finite number"),
        ("é", "character 1: found '.xe9'"),
        ("\x00", "found '.x00'"),
        ("(" * 200, f"at most {DEEPEST} levels"),
        ("2^" * 200 + "2", f"at most {DEEPEST} levels"),
        ("1+" * LONGEST + "1", f"4,001 characters; allowed: at most {LONGEST:,}"),
        (None, "found None"),
        (True, "found True"),
        (float("nan"), "found nan; allowed: a finite number"),
        (10**400, "found .*; allowed: a finite number"),
    ],
)
def test_what_is_no_formula(text, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        Expression.parse(text)
    assert "\n" not in str(caught.value)


def test_a_unit_that_is_none():
    with pytest.raises(InputError, match="found 'parsecs'; allowed: an operator, or a unit: b, kb"):
        Expression.parse("3 parsecs", {"b": 1.0, "kb": 1e3})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a / b", "'a / b': division by zero with a=1, b=0"),
        ("a % b", "division by zero"),
        ("b ^ -1", "division by zero"),
        ("(-a) ^ 0.5", "no such real number"),
        ("log(b)", "no such real number"),
        ("10 ^ 10 ^ 10", "too large"),
        ("exp(1e9)", "too large"),
        ("1e308 * 10 - 1e308 * 10", "not a finite number"),
        ("ceil(1e308 * 10)", "too large"),
        ("(-a) ^ 0.5 > 1", "no such real number"),
        ("(-a) ^ 0.5 == 1", "no such real number"),
        ("(-a) ^ 0.5 ? 1 : 2", "no such real number"),
        ("!((-a) ^ 0.5)", "no such real number"),
        ("a > 0 ? 1 / b : 2", "division by zero"),
        ("aa", "aa has no value \\(nearest: a\\)"),
    ],
)
def test_what_has_no_result(text, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        Expression.parse(text)(a=1, b=0)
    assert "\n" not in str(caught.value)


def test_long_flat_formulas_are_not_deep():
    assert Expression.parse("n||" * (LONGEST // 4) + "n")(n=0) == 0
    assert Expression.parse("n&&" * (LONGEST // 4) + "n")(n=2) == 1
    assert Expression.parse("+".join(["n"] * (LONGEST // 2)))(n=1) == LONGEST // 2


atoms = st.one_of(
    st.floats(0, 1e6, allow_nan=False).map(lambda x: f"{x!r}"),
    st.integers(0, 1000).map(lambda x: f"{x}.0"),
    st.sampled_from(["a", "b", "num_nodes"]),
)
formulas = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "%", "**", "^"]), inner).map(" ".join),
        inner.map(lambda x: f"({x})"),
        inner.map(lambda x: f"-{x}"),
        st.tuples(st.sampled_from(sorted(FUNCTIONS)), inner).map(lambda p: f"{p[0]}({p[1]})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda p: f"{p[0]}({p[1]}, {p[2]})"),
    ),
    max_leaves=12,
)
_PYTHON = {
    **{name: getattr(math, name) for name in ("exp", "log", "log10", "log2", "sqrt")},
    "ceil": lambda x: float(math.ceil(x)),
    "floor": lambda x: float(math.floor(x)),
    "abs": abs,
    "min": lambda *xs: min(xs),
    "max": lambda *xs: max(xs),
}


@given(formulas, st.floats(-100, 100), st.floats(0, 10), st.integers(1, 1000))
@settings(max_examples=500, deadline=None)
def test_the_same_as_python(text, a, b, nodes):
    values = {"a": a, "b": b, "num_nodes": float(nodes)}
    try:
        wanted = eval(text.replace("^", "**"), {"__builtins__": {}}, {**_PYTHON, **values})
        wanted = wanted if not isinstance(wanted, complex) and math.isfinite(wanted) else None
    except (ArithmeticError, ValueError, TypeError):  # TypeError: the real function of a complex number
        wanted = None
    try:
        found = Expression.parse(text)(**values)
    except InputError:
        found = None
    assert found == wanted


#: a formula, and the same in Python
pairs = st.recursive(
    st.sampled_from(["a", "b", "num_nodes"]).map(lambda name: (name, name))
    | st.integers(0, 9).map(lambda x: (f"{x}", f"{x}.0")),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), inner).map(
            lambda p: (f"({p[0][0]} {p[1]} {p[2][0]})", f"float({p[0][1]} {p[1]} {p[2][1]})")
        ),
        st.tuples(
            inner, st.sampled_from([("&&", "and"), ("||", "or"), ("and",) * 2, ("or",) * 2]), inner
        ).map(lambda p: (f"({p[0][0]} {p[1][0]} {p[2][0]})", f"float(bool({p[0][1]} {p[1][1]} {p[2][1]}))")),
        st.tuples(inner, inner, inner).map(
            lambda p: (f"({p[0][0]} ? {p[1][0]} : {p[2][0]})", f"({p[1][1]} if {p[0][1]} else {p[2][1]})")
        ),
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(
            lambda p: (f"({p[0][0]} {p[1]} {p[2][0]})", f"({p[0][1]} {p[1]} {p[2][1]})")
        ),
        inner.map(lambda p: (f"!{p[0]}", f"float(not {p[1]})")),
    ),
    max_leaves=10,
)


@given(pairs, st.integers(-3, 3), st.integers(0, 3), st.integers(1, 9))
@settings(max_examples=300, deadline=None)
def test_conditions_are_the_same_as_in_python(pair, a, b, nodes):
    values = {"a": float(a), "b": float(b), "num_nodes": float(nodes)}
    try:
        wanted = eval(pair[1], {"__builtins__": {}, "float": float, "bool": bool}, values)
    except ZeroDivisionError:
        wanted = None
    try:
        found = Expression.parse(pair[0])(**values)
    except InputError:
        found = None
    assert found == wanted


@given(st.text(max_size=60) | st.text("0123456789.e+-*/%^() ,abminlog2sqrt_#'\"<>=!&|?:", max_size=40))
@settings(max_examples=1000, deadline=None)
def test_anything_is_a_formula_or_a_complaint(text):
    try:
        expression = Expression.parse(text)
        expression(**dict.fromkeys(expression.names, 2.0))
    except InputError as error:
        assert "\n" not in str(error) and str(error).isprintable()
