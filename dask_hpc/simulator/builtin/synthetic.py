"""Synthetic days as a workload, some of whose jobs may be malleable."""

from dask_hpc.model.errors import InputError, shown
from dask_hpc.simulator.builtin.parameters import checked, scaling
from dask_hpc.simulator.overlay import malleable_overlay
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.synthetic import synthetic_day
from dask_hpc.simulator.workload import Workload


def synthetic(
    *,
    jobs: int = 1000,
    nodes: int = 128,
    load: float = 0.8,
    seed: int = 0,
    malleable: float = 0.0,
    choice: int = 0,
    rule: str = "half-double",
    speedup: float = 1.0,
) -> Workload:
    """Jobs whose sizes, lengths and arrivals look like a site's, busier at noon than at midnight.

    A ``malleable`` share of them, drawn with ``choice``, can change size as ``rule`` says (constraint,
    half-double, shrink-only, grow-only, or two factors such as 0.5:4) and scales with the exponent
    ``speedup``.
    """
    for name, number, high in (("jobs", jobs, 10**7), ("nodes", nodes, 10**7)):
        if type(number) is not int or not 1 <= number <= high:
            raise InputError(name, f"found {shown(number)}", f"a whole number, 1 to {high:,}")
    if type(seed) is not int:
        raise InputError("seed", f"found {shown(seed)}", "a whole number")
    checked("malleable", malleable, 0, 1)
    checked("load", load, 0.001, 100)
    arrivals = list(synthetic_day(jobs, nodes, load=load, seed=seed))
    workload = Workload("synthetic", arrivals, platform=Platform(nodes))
    return malleable_overlay(workload, malleable, choice, rule, scaling(speedup))
