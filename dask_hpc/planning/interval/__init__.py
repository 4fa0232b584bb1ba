"""When to commit to which level: for least time or energy, and what that takes on average.

``levels`` has the nouns, ``exact`` what a run takes, ``spread`` how much that varies, ``hierarchical`` the
document's own model, ``single`` formulas for one level, ``best`` the search, ``models`` what others would
plan, ``failures`` what past failures say and would have wanted, and ``plan`` all of it in human units.
"""

from dask_hpc.planning.interval.best import best_pattern
from dask_hpc.planning.interval.exact import (
    BENOIT,
    DI,
    EXACT,
    MOODY,
    TIME,
    Parts,
    Rules,
    Weights,
    cost,
    efficiency,
    energy_weights,
    parts,
    period_time,
    run_time,
)
from dask_hpc.planning.interval.failures import (
    FailureFit,
    FailureLaw,
    Replayed,
    best_interval,
    fit_failures,
    kept,
)
from dask_hpc.planning.interval.hierarchical import hierarchical_efficiency
from dask_hpc.planning.interval.levels import (
    ENDLESS,
    Level,
    Pattern,
    failure_rate,
    failures_before,
    mean_failure,
)
from dask_hpc.planning.interval.models import ModelPlan, model_plans
from dask_hpc.planning.interval.plan import IntervalPlan, Way, plan_interval, read_level, read_power
from dask_hpc.planning.interval.single import daly, daly_first_order, young
from dask_hpc.planning.interval.spread import deviation

__all__ = [
    "BENOIT",
    "DI",
    "ENDLESS",
    "EXACT",
    "MOODY",
    "TIME",
    "FailureFit",
    "FailureLaw",
    "IntervalPlan",
    "Level",
    "ModelPlan",
    "Parts",
    "Pattern",
    "Replayed",
    "Rules",
    "Way",
    "Weights",
    "best_interval",
    "best_pattern",
    "cost",
    "daly",
    "daly_first_order",
    "deviation",
    "efficiency",
    "energy_weights",
    "failure_rate",
    "failures_before",
    "fit_failures",
    "hierarchical_efficiency",
    "kept",
    "mean_failure",
    "model_plans",
    "parts",
    "period_time",
    "plan_interval",
    "read_level",
    "read_power",
    "run_time",
    "young",
]
