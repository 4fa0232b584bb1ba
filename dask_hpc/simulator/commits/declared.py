"""What a job says of its checkpoints.

``checkpoint: {bytes: 4 GB, every: auto, levels: [partner, store], asynchronous: true}`` in a workload. A
commit to a level includes those before it in the list. As every failure of the simulator is that of a node,
only levels that survive one are known: ``partner``, a copy of each node's part on the next node of the
machine, and ``store``, the shared file system. An interval that is given commits to all levels each time;
``auto`` plans how often to commit to each, as ``dask-hpc plan interval`` does.
"""

from dataclasses import dataclass
from math import inf
from typing import Any, Literal, get_args

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import parse_duration, parse_quantity

LevelName = Literal["partner", "store"]
_LEVELS: tuple[LevelName, ...] = get_args(LevelName)
Rule = Literal["auto", "young", "daly"]
_RULES: tuple[Rule, ...] = get_args(Rule)
_KEYS = ("bytes", "every", "levels", "asynchronous")
_EVERY = f"a time more than 0 s, {', '.join(_RULES)}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``nbytes`` of the whole job, ``every`` so many seconds of work, or by a rule. If it is not
    ``asynchronous`` the job stands still meanwhile."""

    nbytes: float
    every: float | Rule = "auto"
    levels: tuple[LevelName, ...] = ("store",)
    asynchronous: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.nbytes < inf:
            raise InputError("bytes", f"found {shown(self.nbytes)}", "0 B or more")
        known = self.every in _RULES if isinstance(self.every, str) else self.every > 0
        if not known:
            raise InputError("every", f"found {shown(self.every)}", _EVERY)
        if list(self.levels) not in ([one for one in _LEVELS if one in some] for some in _CHOICES):
            raise InputError(
                "levels", f"found {shown(list(self.levels))}", "partner, store, or both in this order"
            )


_CHOICES = ({"partner"}, {"store"}, {"partner", "store"})


def read_checkpoint(found: Any) -> Checkpoint:
    """From a mapping; complaints name the key."""
    check_keys(found, _KEYS, "")
    if "bytes" not in found:
        raise InputError("bytes", "is missing", ", ".join(_KEYS))
    values: dict[str, Any] = {}
    try:
        values["nbytes"] = parse_quantity(found["bytes"], "B")
    except InputError as error:
        raise error.at("bytes") from None
    if "every" in found:
        values["every"] = _every(found["every"])
    if "levels" in found:
        levels = found["levels"]
        if not isinstance(levels, list) or not all(isinstance(level, str) for level in levels):
            raise InputError("levels", f"found {shown(levels)}", "a list of partner, store")
        values["levels"] = tuple(levels)
    if "asynchronous" in found:
        if not isinstance(found["asynchronous"], bool):
            raise InputError("asynchronous", f"found {shown(found['asynchronous'])}", "true, false")
        values["asynchronous"] = found["asynchronous"]
    return Checkpoint(**values)


def _every(value: Any) -> float | str:
    if value in _RULES:
        return str(value)
    try:
        return parse_duration(value)
    except InputError:
        raise InputError("every", f"found {shown(value)}", _EVERY) from None
