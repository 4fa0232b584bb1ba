"""S4: Slurm ends a batch job, by scancel or at its walltime, and ten results are on its worker."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
from dask_on_slurm import dask_cluster
from distributed import Client

import dask_hpc

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

RESULTS = 10
SIZE = 1_000_000  # bytes of each


def effect(number, log):
    with open(log, "a") as file:
        file.write(f"{number}\n")
    return bytes(SIZE)


def scancel(slurm, job):
    """All processes of the job get SIGTERM."""
    slurm.run("scancel", job)


def scancel_as_with_cgroups(slurm, job):
    """Only the job's first process gets SIGTERM."""
    slurm.run("scancel", "--batch", "--signal=TERM", job)


def walltime(slurm, job):
    """Slurm looks for jobs whose time is over every 30 s."""
    slurm.end_soon(job)


def recomputed(slurm, name, log, end, nanny):
    """How many of ten results on a worker whose job ends had to be computed again."""
    with (
        dask_cluster(slurm, cores=1, job_name=name, nanny=nanny) as cluster,
        Client(cluster, set_as_default=False) as client,
        dask_hpc.malleable(cluster) if name == "ours" else nullcontext() as manager,
    ):
        cluster.scale(jobs=1)
        client.wait_for_workers(1, timeout=60)
        (job,) = slurm.jobs(name=name)
        futures = client.map(effect, range(RESULTS), log=str(log), pure=False)
        client.gather(futures)
        cluster.scale(jobs=2)
        client.wait_for_workers(2, timeout=60)
        end(slurm, job)
        slurm.wait_until(lambda: job not in slurm.jobs(), "the end of the job", timeout=90)
        assert client.gather(futures) == [bytes(SIZE)] * RESULTS
        if manager:
            story = manager.story()
            for row in story:
                print(f"{row['time']:6.1f} {row['decision']:<14} {row['reason']}")
            assert not [row for row in story if row["decision"] in ("error", "lost")]
    return len(log.read_text().splitlines()) - RESULTS


@pytest.mark.parametrize(
    "end, nanny",
    [
        (scancel, True),
        (scancel, False),
        (scancel_as_with_cgroups, True),
        (scancel_as_with_cgroups, False),
        (walltime, True),
    ],
)
def test_results_survive_the_end_of_their_job(slurm, tmp_path, report, end, nanny):
    with ThreadPoolExecutor(2) as pool:
        plain, ours = pool.map(
            lambda name: recomputed(slurm, name, tmp_path / name, end, nanny), ["plain", "ours"]
        )
    how = f"{end.__name__.replace('_', ' ')}, {'nanny' if nanny else 'no nanny'}"
    report.add("S4", f"of {RESULTS} results computed again: {how}", plain=plain, ours=ours, bound=0)
    assert plain == RESULTS
    assert ours == 0
