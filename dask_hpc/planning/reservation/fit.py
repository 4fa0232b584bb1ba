"""A law from past runs: those that were done, and those that were cut off, which would have taken longer.

Candidates are fitted by maximum likelihood, cut runs included, and compared by AIC. Few runs say little of a
tail, so what is fitted to them is widened, and what cannot be said is said.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.units import counted, show_duration
from dask_hpc.planning.reservation.law import ContinuousLaw, EmpiricalLaw, Law, of_mean_and_std, read_time

_LONGEST = 1e12
_FEW = 5  # runs: with fewer the spread is not believed
_LEAST_SPREAD = 0.15  # of the mean
_MANY = 50  # runs: from here on they may stand for themselves
_SHIFTED = 2.0  # AIC that a begin of its own must gain
_ALIKE = 1e-3  # spread, as a share of the mean, of runs that take the same time
_MORE = 0.1  # than the one time that is known


@dataclass(frozen=True, slots=True)
class FittedLaw:
    """A law, the runs that it is from, and what to know of it."""

    law: Law
    reason: str
    warnings: tuple[str, ...] = ()
    #: seconds, oldest first
    done: tuple[float, ...] = ()
    cut: tuple[float, ...] = ()


def read_runs(found: Iterable[Any], where: str = "runs") -> tuple[list[float], list[float]]:
    """Seconds of runs that were done and of those that were cut off, from numbers and texts: ``3600``,
    ``"1h"``, and ``">1h"`` for a run that was cut off then."""
    done: list[float] = []
    cut: list[float] = []
    for number, one in enumerate(found, 1):
        is_cut = isinstance(one, str) and one.strip().startswith(">")
        value = one.strip().removeprefix(">").strip() if isinstance(one, str) else one
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            seconds = read_time(value, f"{where}: {number}")
        if not (is_number(seconds, 0, _LONGEST) and seconds > 0):
            raise InputError(f"{where}: {number}", f"found {shown(one)}", "seconds, more than 0")
        (cut if is_cut else done).append(seconds)
    return done, cut


def fit_law(done: Sequence[float], cut: Sequence[float] = ()) -> FittedLaw:
    """The law of runs: ``done`` took so many seconds, ``cut`` would have taken more."""
    ended, longer = read_runs(done)[0], read_runs(cut)[0]
    if not ended:
        runs = f"found {counted(len(longer), 'run')}, all cut off" if longer else "found none"
        raise InputError("runs", runs, "at least one run that was done")
    runs = counted(len(ended), "run") + (f" and {len(longer)} that were cut off" if longer else "")
    mean, std = float(np.mean(ended)), float(np.std(ended))
    if std <= _ALIKE * mean and not any(one > max(ended) for one in longer):
        law: Law = EmpiricalLaw.of([max(ended) * (1 + _MORE)])
        known = f"all of {runs} took" if len(ended) > 1 else f"{runs} took"
        return FittedLaw(
            law, f"{known} {show_duration(max(ended))}", _warned(ended), tuple(ended), tuple(longer)
        )
    if len(ended) < _FEW:
        law = _of_few(ended, longer)
        reason = f"lognormal, from {runs}"
    else:
        law, reason = _best(ended, longer)
        reason = f"{reason}, from {runs}"
    return FittedLaw(law, reason, _warned(ended), tuple(ended), tuple(longer))


def _warned(done: Sequence[float]) -> tuple[str, ...]:
    if len(done) >= _FEW:
        return ()
    return (f"{counted(len(done), 'run')} that were done say little of how long others take",)


def _of_few(done: Sequence[float], cut: Sequence[float]) -> Law:
    """Lognormal, with a spread that few runs cannot show to be smaller."""
    seconds = [*done, *(max(one * (1 + _MORE), max(done)) for one in cut)]
    mean = float(np.mean(seconds))
    std = max(float(np.std(seconds, ddof=1)) if len(seconds) > 1 else 0.0, _LEAST_SPREAD * mean)
    return ContinuousLaw("lognormal", *of_mean_and_std("lognormal", mean, std))


def _best(done: Sequence[float], cut: Sequence[float]) -> tuple[Law, str]:
    sigma = float(np.std(np.log(done)))
    return ContinuousLaw("lognormal", (sigma,), float(np.exp(np.mean(np.log(done))))), "lognormal"
