"""Size constraints: which node counts a job can use.

Seed 001, section 4.2, names pof2, even, odd and ncube; square and any are ours. Sources leave open
whether "largest" counts from the idle nodes or from the new total; here every size is a total.
"""

from collections.abc import Callable
from math import isqrt
from typing import Literal, get_args

Constraint = Literal["any", "even", "odd", "pof2", "cube", "square"]
CONSTRAINTS: tuple[Constraint, ...] = get_args(Constraint)


def _cube_root(n: int) -> int:
    root = round(n ** (1 / 3))
    while root**3 > n:
        root -= 1
    while (root + 1) ** 3 <= n:
        root += 1
    return root


_AT_MOST: dict[Constraint, Callable[[int], int]] = {
    "any": lambda n: n,
    "even": lambda n: n - n % 2,
    "odd": lambda n: n - 1 + n % 2,
    "pof2": lambda n: 1 << (n.bit_length() - 1),
    "cube": lambda n: _cube_root(n) ** 3,
    "square": lambda n: isqrt(n) ** 2,
}


def largest_legal(constraint: Constraint, low: int, high: int) -> int | None:
    """The largest legal size in ``[low, high]``, or None if there is none."""
    if high < 1:
        return None
    size = _AT_MOST[constraint](high)
    return size if size >= max(low, 1) else None


def smallest_legal(constraint: Constraint, low: int, high: int) -> int | None:
    """The smallest legal size in ``[low, high]``, or None if there is none."""
    low = max(low, 1)
    below = _AT_MOST[constraint](low - 1) if low > 1 else 0
    match constraint:
        case "any":
            size = low
        case "even":
            size = low + low % 2
        case "odd":
            size = low + 1 - low % 2
        case "pof2":
            size = max(2 * below, 1)
        case "cube":
            size = (_cube_root(below) + 1) ** 3
        case "square":
            size = (isqrt(below) + 1) ** 2
    return size if size <= high else None


def next_legal_down(constraint: Constraint, size: int, low: int) -> int | None:
    """The next legal size below ``size`` that is still at least ``low``, or None."""
    return largest_legal(constraint, low, size - 1)


def is_legal(constraint: Constraint, size: int) -> bool:
    """Whether ``size`` itself satisfies the constraint."""
    return size >= 1 and _AT_MOST[constraint](size) == size
