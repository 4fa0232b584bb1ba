"""Real workloads of futures, delayed calls, bags and actors: what people write who have no big array."""

import numpy as np
from workload_kit import workload


def table(seed, length):
    """Some numbers that many tasks look at."""
    return np.random.default_rng(seed).random(length)


def read_both(number, one, other):
    """A small task: about a tenth of a millisecond."""
    return float(one[number % len(one)] + (one * other).sum())


@workload(
    "small tasks that depend on a few shared ones: not root tasks, so all are handed out at once",
    tiny={"tasks": 300}, small={"tasks": 3_000}, full={"tasks": 15_000},
)  # fmt: skip
def shared_map(client, tasks, tables=8, length=1_000):
    """A map of tasks that each look at two of a few tables; their results are kept until all is added up."""
    shared = client.map(table, range(tables), length=length)
    one = [shared[i % tables] for i in range(tasks)]
    other = [shared[(3 * i + 1) % tables] for i in range(tasks)]
    found = client.map(read_both, range(tasks), one, other)
    parts = client.map(sum, [found[i : i + 100] for i in range(0, tasks, 100)])
    return client.submit(sum, parts).result()
