"""Bands in which a figure of ours counts as reproduced: from how a source states its value."""

from math import inf

Band = tuple[float, float]


def rounded(value: float, unit: float = 1.0) -> Band:
    """A printed figure: whatever rounds to it, ``unit`` being the worth of its last digit."""
    return value - unit / 2, value + unit / 2


def exactly(value: float) -> Band:
    """A count, or a time in an example that gives every input."""
    return value, value


def around(value: float, by: float) -> Band:
    """``by`` either way."""
    return value - by, value + by


def at_least(value: float) -> Band:
    """A lower bound."""
    return value, inf


def at_most(value: float) -> Band:
    """An upper bound."""
    return -inf, value
