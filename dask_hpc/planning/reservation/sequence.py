"""A sequence of requests, and what it costs on average: the one judge of all plans (seed 004, 3.1 and 3.2).

Each request goes on until so much of the job's work is done (a milestone), and may end with a commit. What is
done after the last commit is lost when a request ends. The two basic policies are swapped in the document
(its section 9.3.2); here "never commit" means that every request begins anew.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from dask_hpc.planning.reservation.cost import Cost
from dask_hpc.planning.reservation.law import Law


class Milestone(NamedTuple):
    """Seconds of the job's work, from its very beginning, that a request reaches, and whether it commits."""

    work: float
    commit: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """What a sequence is chosen for, besides the law. ``checkpoint`` is inf where nothing can be kept."""

    cost: Cost
    checkpoint: float = inf
    restart: float = inf
    #: work that a checkpoint holds now: every request begins with a restart then
    saved: float = 0.0
    #: no request may be longer
    longest: float = inf

    @property
    def most(self) -> float:
        """Of the length of a request: what is a little longer is so by rounding."""
        return self.longest * (1 + _ROUNDING)

    @property
    def can_commit(self) -> bool:
        return isfinite(self.checkpoint) and isfinite(self.restart)

    @property
    def first_restart(self) -> float:
        """Of a request before any commit of this sequence."""
        return self.restart if self.saved > 0 else 0.0

    @property
    def stride(self) -> float:
        """Most work that a request can add which begins with a restart and ends with a commit."""
        return self.longest - self.checkpoint - self.restart if self.can_commit else -inf


class Step(NamedTuple):
    """One request: how it is spent if the job does not end in it."""

    restart: float
    work: float
    commit: float

    @property
    def length(self) -> float:
        return self.restart + self.work + self.commit


#: of a law without an end, what may be left after a sequence that is said to cover it
_ENDED = 1e-9
_ROUNDING = 1e-9


def steps(milestones: Iterable[Milestone], setting: Setting) -> list[Step]:
    """What each request is spent on."""
    found = []
    kept, restart = setting.saved, setting.first_restart
    for work, commit in milestones:
        found.append(Step(restart, work - kept, setting.checkpoint if commit else 0.0))
        if commit:
            kept, restart = work, setting.restart
    return found


def expected_cost(milestones: Sequence[Milestone], law: Law, setting: Setting) -> float:
    """The mean cost of a sequence (seed 004, formula 10.1): of each request, given that it is made. Inf if
    the sequence ends before every job has, or a request is too long."""
    if not milestones or law.sf(milestones[-1].work) > _ENDED:
        return inf
    cost, found = setting.cost, steps(milestones, setting)
    if max(one.length for one in found) > setting.most:
        return inf
    total = cost.beta * (law.mean - setting.saved)
    # a request is made if the job has not ended by the milestone before it
    made = [1.0, *np.atleast_1d(law.sf(np.array([one.work for one in milestones[:-1]]))).tolist()]
    in_vain = 0.0  # time used in the request before it that brought nothing
    for this, milestone, probability in zip(found, milestones, made, strict=True):
        total += (cost.request(this.length) + cost.beta * (this.restart + in_vain)) * probability
        in_vain = this.commit if milestone.commit else this.work
    return total
