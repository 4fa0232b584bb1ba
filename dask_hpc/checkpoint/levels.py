"""The levels to which a program commits, as a person says them.

``process`` is what ``partner`` becomes on a cluster of one node, and the same to us: copies are on another
node if there is one. What is on ``disk`` are the copies of partners, which survive their processes.
"""

from collections.abc import Iterable
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import parse_quantity

PARTNER, DISK, STORE = LEVELS = ("partner", "disk", "store")
_SAME = {"process": PARTNER}


def read_levels(found: Any, has_store: bool) -> tuple[str, ...]:
    """The cheapest first. Without a store its level is left out."""
    allowed = f"one or several of {', '.join(LEVELS)}; disk with partner"
    words = [found] if isinstance(found, str) else found
    if not isinstance(words, Iterable):
        raise InputError("levels", f"found {shown(found)}", allowed)
    chosen = {_SAME.get(one, one) if isinstance(one, str) else one for one in words}
    if not chosen or not chosen <= set(LEVELS) or (DISK in chosen and PARTNER not in chosen):
        raise InputError("levels", f"found {shown(found)}", allowed)
    levels = tuple(one for one in LEVELS if one in chosen and (one != STORE or has_store))
    if not levels:
        raise InputError("levels", f"found {shown(found)}, and no store", "a store, or other levels")
    return levels


def read_seconds(where: str, found: Any, allowed: str) -> float:
    """More than none and less than 30 years."""
    try:
        seconds = parse_quantity(found, "s")
    except InputError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise InputError(where, f"found {shown(found)}", allowed)
    return seconds
