"""Twenty jobs of two kinds in a power corridor that moves twice (seed 000, 9.2.4; digest 3.3.3)."""

import random
from functools import lru_cache

from dask_hpc.model.corridor import Corridor
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import Job
from dask_hpc.model.power import PowerRange
from dask_hpc.model.speedup import Linear, Speedup
from dask_hpc.simulator.builtin.parameters import checked, scaling
from dask_hpc.simulator.metering import Metering
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.workload import Arrival, Workload

_NODES = 14
_IDLE, _POWERS = 71.0, {"pi": 170.0, "heat": 250.0}
_EACH = 10  # jobs of either kind
_BOUNDS = ((1700.0, 2500.0), (1000.0, 1700.0), (2500.0, 3500.0))
_MAKESPAN = 13.75 * 60  # under static backfilling

#: kind, nodes to start with, length over the mean
_Rows = tuple[tuple[str, int, float], ...]


def power_batch(
    *,
    seed: int = 0,
    speedup: float = 0.5,
    spread: float = 0.5,
    second: float = 550.0,
    third: float = 800.0,
    tick: float = 10.0,
) -> Workload:
    """Ten Pi and ten heat jobs on 14 nodes, with a corridor that moves twice (seed 000, 9.2.4).

    The source gives the kinds, 170 and 250 W of a node, 71 W of an idle one, 1 to 4 nodes to start with and
    1 to 14 as the range, one submission every 2 s, the bounds, and that backfilling needs 13.75 minutes;
    order and start sizes are drawn. Lengths, which it does not give, are drawn from ``1 +- spread`` times
    a mean, the one with which backfilling needs those minutes. ``speedup`` is the exponent of a power law.
    The corridor moves at ``second`` and ``third`` seconds. The scheduler's passes, of which nothing is said,
    come once a ``tick``; the corridor is read anew at once.
    """
    if type(seed) is not int:
        raise InputError("seed", f"found {shown(seed)}", "a whole number")
    checked("spread", spread, 0, 0.99)
    draw = random.Random(seed)
    kinds = [kind for kind in _POWERS for _ in range(_EACH)]
    draw.shuffle(kinds)
    rows = tuple((kind, draw.randint(1, 4), draw.uniform(1 - spread, 1 + spread)) for kind in kinds)
    if not 0 < second < third:
        raise InputError("second", f"found {shown(second)} and third={shown(third)}", "0 < second < third")
    steps = tuple((at, *bounds) for at, bounds in zip((0.0, second, third), _BOUNDS, strict=True))
    platform = Platform(
        _NODES,
        idle_power=_IDLE,
        active_power=max(_POWERS.values()),
        tick=checked("tick", tick, 0.1, 1e6),
        only_ticks=True,
        metering=Metering(corridor=Corridor(steps)),
    )
    return Workload(
        "power-batch", _arrivals(rows, _mean_length(rows, tick), scaling(speedup)), platform=platform
    )


def _arrivals(rows: _Rows, mean: float, law: Speedup) -> list[Arrival]:
    arrivals = []
    for number, (kind, nodes, length) in enumerate(rows):
        job = Job(
            id=f"{kind}-{number + 1}",
            nodes=nodes,
            kind="malleable",
            min_nodes=1,
            max_nodes=_NODES,
            walltime=mean * length,
            submitted=2.0 * number,
            power=PowerRange(_POWERS[kind], _POWERS[kind]),
            user=kind,
            speedup=law,
        )
        arrivals.append(Arrival(job, mean * length, law))
    return arrivals


@lru_cache(maxsize=256)
def _mean_length(rows: _Rows, tick: float) -> float:
    """With which backfilling needs as long as the source says, as nearly as there is one: the makespan jumps
    where jobs come to start in another order. A coarse search, then finer ones beside the best."""
    # The simulator reads workloads, so it cannot be imported above this one.
    from dask_hpc.policy import Policy
    from dask_hpc.simulator.engine import Machine
    from dask_hpc.simulator.record import Record

    backfill, platform = Policy.load("easy-backfill"), Platform(_NODES, tick=tick, only_ticks=True)

    def miss(mean: float) -> float:
        Machine(platform, backfill, record := Record(), story=0).run(_arrivals(rows, mean, Linear()))
        return abs(max(record.end) - min(record.submit) - _MAKESPAN)

    best, step = _MAKESPAN / 4, _MAKESPAN / 4 / 50
    for _ in range(5):
        best = min((best + step * k for k in range(-20, 21)), key=miss)
        step /= 12
    return best
