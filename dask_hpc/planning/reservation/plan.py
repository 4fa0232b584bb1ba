"""The plan: which requests to make, one after the other, until the job has ended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.units import show_duration
from dask_hpc.planning.reservation.cost import Cost
from dask_hpc.planning.reservation.law import ContinuousLaw, Law, read_law
from dask_hpc.planning.reservation.methods import BEST, EXACT, NUMBER, Answer, Question, choose
from dask_hpc.planning.reservation.sequence import Setting, steps

_SHOWN = 8  # requests of a plan in words
#: requests that are made less often than this are not listed
_RARE = 1e-12
#: jobs that are not planned for are spoken of if they are more
_UNPLANNED = 1e-9
#: a job that took longer than all that is known: what is left of it, by a law without a scale
_UNKNOWN = 3.0


@dataclass(frozen=True, slots=True)
class Request:
    """One reservation. ``work_until`` is how much of the job is done at its end, all that was done before
    included; with ``commit`` its last seconds are for a checkpoint."""

    length: float
    work_until: float
    commit: bool = False
    #: bytes to ask for; None: as always
    memory: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationPlan:
    """Requests to make, one after the other, until the job has ended."""

    requests: tuple[Request, ...]
    #: of the job's whole time, given all that is known
    law: Law
    cost: Cost
    #: seconds of a commit and of a restart; inf: nothing can be kept
    checkpoint: float
    restart: float
    #: mean cost of all that is requested from now on
    expected: float
    #: the same over what somebody pays who knows how long the job takes
    over_omniscient: float
    #: mean cost of other ways
    others: Mapping[str, float] = field(default_factory=dict)
    method: str = BEST
    reason: str = ""
    #: what to be wary of
    warnings: tuple[str, ...] = ()
    #: seconds of work that a checkpoint holds already
    saved: float = 0.0
    max_walltime: float = inf
    #: times that were looked at
    number: int = NUMBER
    #: runs that the law is from
    runs: tuple[float, ...] = ()

    def after(
        self,
        saved: float = 0.0,
        tried: float | None = None,
        *,
        checkpoint: float | None = None,
        restart: float | None = None,
    ) -> "ReservationPlan":
        """The plan from now on, given that a checkpoint holds ``saved`` seconds of the job's work and that it
        needs more than ``tried`` (more than is saved, if nothing else is said). What a commit and a restart
        take may be known better now."""
        tried = saved if tried is None else max(saved, tried)
        for name, value in (("saved", saved), ("tried", tried)):
            insist(0 <= value < inf, name, value, "seconds, 0 or more")
        checkpoint = self.checkpoint if checkpoint is None else checkpoint
        restart = self.restart if restart is None else restart
        insist(saved == 0 or isfinite(restart), "saved", saved, "0, as nothing can be restarted")
        setting = Setting(self.cost, checkpoint, restart, saved, self.max_walltime)
        law, why = self.law, f"needs more than {show_duration(tried)}"
        if tried > 0:
            try:
                law = self.law.given(tried)
            except InputError:
                law = ContinuousLaw("pareto", (_UNKNOWN,), tried)
                why = f"takes longer than {self.law.name} allows: all that is known is that it {why}"
        plan = chosen(Question(law, setting, self.runs, self.number), self.method, why, compare=False)
        return plan.asking(self._memory)

    def asking(self, memory: Callable[[float, float], float | None]) -> "ReservationPlan":
        """The same plan with the memory that each request needs, from the work that is safe when it begins
        until that at its end."""
        kept, found = self.saved, []
        for one in self.requests:
            found.append(replace(one, memory=memory(kept, one.work_until)))
            kept = one.work_until if one.commit else kept
        return replace(self, requests=tuple(found))

    def _memory(self, since: float, until: float) -> float | None:
        """The most that requests of this plan ask for which do some of this work; of all, if none does."""
        begin, found = self.saved, []
        for one in self.requests:
            if one.work_until > since and begin < until:
                found.append(one.memory)
            begin = one.work_until if one.commit else begin
        known = [one for one in found or (one.memory for one in self.requests) if one is not None]
        return max(known, default=None)

    def __str__(self) -> str:
        lines = ["  ask for   work by then   commit   needed by"]
        before = self.saved
        for one in self.requests[:_SHOWN]:
            cells = (show_duration(one.length), show_duration(one.work_until), "yes" if one.commit else "no")
            needed = float(self.law.sf(before)) if before else 1.0
            lines.append("{:>9} {:>14} {:>8}".format(*cells) + f"{needed:>12.1%}")
            before = one.work_until
        more = len(self.requests) - _SHOWN
        told = [f"  and {more} more"] if more > 0 else []
        costs = f"mean cost {show_duration(self.expected)}, {self.over_omniscient:.2f} times an omniscient's"
        return "\n".join([*lines, *told, *filter(None, [costs, self.reason]), *self.warnings])

    def as_plain(self) -> dict[str, Any]:
        """As JSON has it; ``of`` reads it back."""
        return {
            "requests": [
                {
                    "length": one.length,
                    "work_until": one.work_until,
                    "commit": one.commit,
                    "memory": one.memory,
                }
                for one in self.requests
            ],
            "law": str(self.law),
            "cost": [self.cost.alpha, self.cost.beta, self.cost.gamma],
            "checkpoint": _or_none(self.checkpoint),
            "restart": _or_none(self.restart),
            "expected": self.expected,
            "over_omniscient": self.over_omniscient,
            "others": {name: _or_none(value) for name, value in self.others.items()},
            "method": self.method,
            "reason": self.reason,
            "warnings": list(self.warnings),
            "saved": self.saved,
            "max_walltime": _or_none(self.max_walltime),
            "number": self.number,
            "runs": list(self.runs),
        }

    @classmethod
    def of(cls, plain: Any) -> "ReservationPlan":
        """From what ``as_plain`` gave."""
        try:
            given = {**plain}
            given["requests"] = tuple(Request(**one) for one in given["requests"])
            given["law"], given["cost"] = read_law(given["law"]), Cost(*given["cost"])
            for name in ("checkpoint", "restart", "max_walltime"):
                given[name] = inf if given[name] is None else float(given[name])
            given["others"] = {name: inf if one is None else one for name, one in given["others"].items()}
            given["warnings"], given["runs"] = tuple(given["warnings"]), tuple(given["runs"])
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("plan", f"found {shown(plain)}", "what plan reservation --json writes") from None


def _or_none(value: float) -> float | None:
    return value if isfinite(value) else None


@np.errstate(over="ignore")  # laws without an end reach far
def chosen(
    question: Question,
    method: str = BEST,
    why: str = "",
    memory: float | None = None,
    *,
    compare: bool = True,
) -> ReservationPlan:
    """The plan that answers a question; ``why`` is what led to it."""
    asked = question.within_reach()
    answer = choose(asked, method, compare=compare)
    law, setting = question.law, question.setting
    left = np.asarray(asked.law.sf(np.array([one.work for one in answer.milestones])))
    number = 1 + int(np.count_nonzero(left[:-1] > _RARE))
    rows = zip(answer.milestones[:number], steps(answer.milestones, setting), strict=False)
    omniscient = setting.cost.omniscient(asked.law.mean - setting.saved)
    beyond = float(law.sf(asked.law.high))
    left_out = f"what takes longer than {show_duration(asked.law.high)} ({beyond:.1g}) is not planned yet"
    reasons = [why, left_out if beyond > _UNPLANNED else "", _compared(answer, setting, method)]
    return ReservationPlan(
        requests=tuple(
            Request(min(step.length, setting.longest), one.work, one.commit, memory) for one, step in rows
        ),
        law=law,
        cost=setting.cost,
        checkpoint=setting.checkpoint,
        restart=setting.restart,
        expected=answer.expected,
        over_omniscient=answer.expected / omniscient,
        others=answer.others,
        method=method,
        reason="; ".join(filter(None, reasons)),
        saved=setting.saved,
        max_walltime=setting.longest,
        number=question.number,
        runs=question.runs,
    )


def _compared(answer: Answer, setting: Setting, method: str) -> str:
    """How a plan compares, in words."""
    by = f"by {answer.by}" if method == BEST and answer.by != EXACT else ""
    commits = any(one.commit for one in answer.milestones)
    pure = "no-checkpoint" if commits else "all-checkpoint"
    words = []
    if commits and pure in answer.others:
        words.append(f"{_more(answer.others[pure], answer.expected)} without commits")
    elif setting.can_commit and pure in answer.others:
        words.append(
            f"no commit pays, and {_more(answer.others[pure], answer.expected)} with one in each request"
        )
    elif not setting.can_commit:
        words.append("nothing can be kept from one request to the next")
    return ", ".join(filter(None, [by, *words]))


def _more(other: float, this: float) -> str:
    return "it cannot be done" if not isfinite(other) else f"{other / this - 1:.0%} more would be paid"
