"""No byte of a scratch file is lost or wrong, whatever happens to it and to workers: see ``file_storm``.

``DASK_HPC_FILE_STORMS``: how many runs the slow test makes.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import file_storm
import pytest
from hypothesis import Phase, given, settings

PROCESSES = 2
AT_ONCE = 100  # runs of a process: what Dask leaves behind of so many clusters makes it slower and slower


def test_no_byte_is_lost_or_wrong(virtual_cluster):
    """Shrinking what fails takes minutes: the program does it when asked to."""

    @settings(settings.get_profile("same"), max_examples=40, phases=[Phase.generate])
    @given(file_storm.RANDOMS)
    def whatever_happens(random):
        file_storm.storm(random)

    whatever_happens()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_byte_is_lost_or_wrong_in_many_runs(report):
    began, runs = time.monotonic(), int(os.environ.get("DASK_HPC_FILE_STORMS", "2000"))

    def run(seed):
        done = subprocess.run(
            [sys.executable, str(file_storm.__file__), str(seed), str(min(AT_ONCE, runs))],
            env=os.environ | {"PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,  # who ends early has told less
        )
        return json.loads(done.stdout) if done.stdout else {"seed": seed, "problem": done.stderr}

    with ThreadPoolExecutor(PROCESSES) as pool:
        found = list(pool.map(run, range(1, 1 + max(1, runs // AT_ONCE))))
    bad = [one for one in found if one["problem"]]
    told = "\n".join(f"{file_storm.COMMAND} {one['seed']} {AT_ONCE}: {one['problem'][-2000:]}" for one in bad)
    assert not bad, f"{len(bad)} of {len(found)} seeds fail:\n{told}"
    count = {what: sum(one[what] for one in found) for what in ("runs", "deaths", "losses", "moves")}
    assert count["runs"] == runs
    lost, took = f"{count['losses']} files without copies named who died", time.monotonic() - began
    report.add(
        "files", f"{runs} runs on a virtual cluster: {count['moves']} resizes and leavings, "
        f"{count['deaths']} deaths", plain="-", ours=f"no byte lost or wrong; {lost}; {took / 60:.1f} min",
        bound="no byte lost or wrong",
    )  # fmt: skip
