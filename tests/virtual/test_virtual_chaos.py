"""Chaos by seed: whatever happens, every answer is right, nothing runs twice without need, nothing is left.

``DASK_HPC_SEEDS`` (``FIRST:LAST``) runs other seeds; ``DASK_HPC_MANY_SEEDS``: how many the slow test runs.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import chaos
import pytest

PROCESSES = 2
MOST = 100  # seeds of a process: what Dask leaves behind of so many clusters makes it slower and slower


def run_seeds(first, last):
    """What came of these seeds, in processes of their own: strings hash alike there."""
    each = min(MOST, -(-(last - first) // PROCESSES))
    bounds = [*range(first, last, each), last]

    def run(low, high):
        done = subprocess.run(
            [sys.executable, str(chaos.__file__), f"{low}:{high}"],
            env=os.environ | {"PYTHONHASHSEED": "0"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,  # who ends early has told less
        )
        return done.stdout.splitlines()

    with ThreadPoolExecutor(PROCESSES) as pool:
        return [json.loads(line) for lines in pool.map(run, bounds, bounds[1:]) for line in lines]


def check(found, count):
    """A failure says how to see it again."""
    bad = [one for one in found if one["problems"]]
    told = "".join(f"\n{chaos.COMMAND} {one['seed']}" for one in bad)
    words = "\n".join(problem for one in bad[:3] for problem in one["problems"])
    assert not bad, f"{len(bad)} of {len(found)} seeds fail:{told}\n{words}"
    assert len(found) == count, "a process ended early"
    assert len({one["digest"] for one in found}) == count


def test_chaos():
    first, _, last = os.environ.get("DASK_HPC_SEEDS", "0:10").partition(":")
    check(run_seeds(int(first), int(last)), int(last) - int(first))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_chaos_of_many_seeds(report):
    began, seeds = time.monotonic(), int(os.environ.get("DASK_HPC_MANY_SEEDS", "2000"))
    found = run_seeds(1000, 1000 + seeds)
    check(found, seeds)
    report.add(
        "chaos", f"{len(found)} seeds on a virtual cluster, {sum(one['tasks'] for one in found)} tasks",
        plain="-", ours=f"all right; {sum(one['seconds'] for one in found) / 3600:.1f} virtual hours in "
        f"{(time.monotonic() - began) / 60:.1f} min", bound="right, no hang, no leftovers",
    )  # fmt: skip
