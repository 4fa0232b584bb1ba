"""Whether a task may still start on a worker that will end."""

from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil

_SAMPLES = 50  # durations remembered of one kind, the newest
_KINDS = 1000  # kinds remembered, those used last
_QUANTILE = 0.9


class Durations:
    """How long tasks of each kind run: an upper quantile of the newest."""

    def __init__(self) -> None:
        self._samples: OrderedDict[str, tuple[deque[float], list[float]]] = OrderedDict()

    def add(self, kind: str, seconds: float) -> None:
        """A task of that kind has run so long."""
        newest, in_order = self._samples.setdefault(kind, (deque(), []))
        self._samples.move_to_end(kind)
        if len(newest) == _SAMPLES:
            in_order.remove(newest.popleft())
        newest.append(seconds)
        insort(in_order, seconds)
        if len(self._samples) > _KINDS:
            self._samples.popitem(last=False)

    def upper(self, kind: str) -> float | None:
        """What nine of ten tasks of that kind do not exceed; None if none has run."""
        found = self._samples.get(kind)
        if found is None:
            return None
        return found[1][ceil(_QUANTILE * len(found[1])) - 1]


@dataclass(frozen=True, slots=True)
class WalltimeVerdict:
    """What holds for a worker that ends. ``misfits`` are the kinds that may not start there any more;
    ``again`` is in how many seconds the first of the others will be one, if none is yet."""

    misfits: tuple[str, ...]
    again: float | None


def may_start(
    left: float,
    reserve: float,
    seconds: Mapping[str, float | None],
    tried: Iterable[str],
    first_free: float = 0.0,
) -> WalltimeVerdict:
    """Which kinds of tasks may still start on a worker that has ``left`` seconds.

    A task may start if it ends ``reserve`` seconds before the worker does. It runs as long as its kind
    (``seconds`` has all kinds that wait), and starts when a thread is free, in ``first_free`` seconds. A kind
    of which nothing is known (None) may start on a worker once, however little time is left: somebody has
    to try.
    """
    known_tried = set(tried)
    misfits = []
    margins = []
    for kind, runs in seconds.items():
        if runs is None:
            if kind in known_tried:
                misfits.append(kind)
            continue
        margin = left - reserve - first_free - runs
        if margin < 0:
            misfits.append(kind)
        else:
            margins.append(margin)
    return WalltimeVerdict(tuple(misfits), min(margins) if margins and not misfits else None)
