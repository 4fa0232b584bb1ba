"""Real workloads on arrays, labelled or not: reductions, layouts, stencils, linear algebra, stores."""

import dask.array as da
from workload_kit import computed, workload


@workload(
    "root tasks of less than a millisecond: how fast they are let through",
    tiny={"columns": 150}, small={"columns": 1_000}, full={"columns": 6_000},
)  # fmt: skip
def thin_sum(client, columns, rows=1_000):
    """The sum of an array that is made fast and has thin chunks."""
    return float(computed(client, da.ones((rows, columns), chunks=(rows, 1)).sum()))
