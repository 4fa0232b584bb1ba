"""How long to ask for a job whose time is not known, and after which requests to commit."""

from functools import lru_cache
from math import isfinite, sqrt
from typing import Any

import traitlets

from dask_hpc import plan_reservation
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.explorer import Explorer

_FAMILIES = ("lognormal", "gamma", "weibull", "normal", "uniform", "exponential")
#: times at which requests may end, for the plan that is shown and for each of a curve: few, to be quick
_NUMBER, _FEW = 300, 150
#: of the mean: what a commit takes at the ends of the curve, and how many are between
_SHORT, _LONG, _POINTS = 1e-3, 1.0, 10
_MOST = 60  # requests that a front end is sent


class ReservationExplorer(Explorer):
    """Move how long a job takes, what asking, using and committing cost; see which requests to make, and what
    always and never committing would cost instead."""

    _esm = module("reservation_explorer")
    _css = style()

    family = traitlets.Enum(_FAMILIES, "lognormal").tag(sync=True, asks=True)
    families: Any = traitlets.List(list(_FAMILIES), read_only=True).tag(sync=True)
    #: seconds; an exponential law has no standard deviation of its own
    mean = traitlets.Float(21.0 * 3600, min=0).tag(sync=True, asks=True)
    std = traitlets.Float(20.0 * 3600, min=0).tag(sync=True, asks=True)
    checkpoint = traitlets.Float(3600.0, min=0).tag(sync=True, asks=True)
    restart = traitlets.Float(3600.0, min=0).tag(sync=True, asks=True)
    #: cost of a second that is asked for, of one that is used, and of asking, in seconds
    alpha = traitlets.Float(1.0, min=0).tag(sync=True, asks=True)
    beta = traitlets.Float(0.0, min=0).tag(sync=True, asks=True)
    gamma = traitlets.Float(0.0, min=0).tag(sync=True, asks=True)

    def plan(self) -> dict[str, Any]:
        law, cost = self._law(), (self.alpha, self.beta, self.gamma)
        ways = _ways(law, cost, self.checkpoint, self.restart, _NUMBER)
        plan = ways["best"]
        count, commits = len(plan.requests), sum(one.commit for one in plan.requests)
        return {
            "requests": _rows(plan),
            "count": count,
            "over_omniscient": plan.over_omniscient,
            "others": {
                "always commit": _plain(ways["all"].over_omniscient),
                "never commit": _plain(ways["none"].over_omniscient),
            },
            "reason": f"{count} request{'s' * (count > 1)}, of which {commits} end with a commit",
            "curve": _curve(law, cost, self.mean, self.restart),
        }

    def _law(self) -> str:
        mean, std = self.mean, self.std
        if self.family == "uniform":
            half = sqrt(3) * std
            return f"uniform min={max(0.0, mean - half)}s max={mean + half}s"
        if self.family == "exponential":
            return f"exponential mean={mean}s"
        return f"{'truncnormal' if self.family == 'normal' else self.family} mean={mean}s std={std}s"

    def readable(self) -> str:
        first = self.found["requests"][0]["length"]
        return f"{first / 3600:.3g} h first, {self.found['over_omniscient']:.3g} times the cost of knowing"


def _ways(law: str, cost: Any, checkpoint: float, restart: float, number: int) -> dict[str, Any]:
    """The best plan, and those that commit always and never; on so few times one of these may be better by
    the grid's error."""
    methods = {"best": "discrete-ckpt", "all": "all-checkpoint", "none": "no-checkpoint"}
    found = {
        way: plan_reservation(law, checkpoint, restart, cost, method, number=number, compare=False)
        for way, method in methods.items()
    }
    return found | {"best": min(found.values(), key=lambda plan: plan.expected)}


@lru_cache(16)
def _curve(law: str, cost: Any, mean: float, restart: float) -> list[dict[str, float | None]]:
    """What each way costs over knowing in advance, by what a commit takes. Other commits ask for the same."""
    steps = [_SHORT * (_LONG / _SHORT) ** (n / (_POINTS - 1)) for n in range(_POINTS)]
    found: list[dict[str, float | None]] = []
    for checkpoint in (mean * step for step in steps):
        ways = _ways(law, cost, checkpoint, restart, _FEW)
        costs = {way: _plain(plan.over_omniscient) for way, plan in ways.items()}
        found.append({"checkpoint": checkpoint, **costs})
    return found


def _rows(plan: Any) -> list[dict[str, float]]:
    """What each request is spent on, and for how many jobs it is made."""
    rows: list[dict[str, float]] = []
    saved = tried = 0.0
    for request in plan.requests[:_MOST]:
        restart = plan.restart if saved else 0.0
        rows.append(
            {
                "length": request.length,
                "until": request.work_until,
                "restart": restart,
                "again": tried - saved,
                "work": request.work_until - tried,
                "commit": plan.checkpoint if request.commit else 0.0,
                "needed": float(plan.law.sf(tried)) if tried else 1.0,
            }
        )
        tried = request.work_until
        saved = tried if request.commit else saved
    return rows


def _plain(value: float) -> float | None:
    return float(value) if isfinite(value) else None
