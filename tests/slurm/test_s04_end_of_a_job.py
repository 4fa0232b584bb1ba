"""S4: Slurm ends a batch job, by scancel, at its walltime or for another one, and ten results are on it."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from time import sleep

import pytest
from dask_on_slurm import dask_cluster
from distributed import Client

import dask_hpc

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

RESULTS = 10
SIZE = 1_000_000  # bytes of each
BUSY = 150  # tasks that run while a job is preempted


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


def busy(number, log):
    with open(log, "a") as file:
        file.write(f"{number}\n")
    sleep(0.2)
    return number


def preempt(slurm, job):
    """A job of more priority wants the whole node. What runs there has ten seconds, then it waits anew."""
    node = slurm.ask(job, "NodeList")
    urgent = ("sbatch", "--parsable", "-p", "urgent", "-w", node, "-c", 3, "-o", "/dev/null")
    return slurm.run(*urgent, "--wrap", "exec sleep 600").strip()


def preempted(slurm, name, log):
    """How many of ten results on a job that is preempted, and of the tasks that run meanwhile, had to be
    computed again; and how many jobs were submitted until, for ours, the size is as before."""
    with (
        dask_cluster(slurm, job_name=name) as cluster,
        Client(cluster, set_as_default=False) as client,
        dask_hpc.malleable(cluster) if name.startswith("ours") else nullcontext() as manager,
    ):

        def size(jobs):
            if manager:
                cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs, interval="500ms", poll=1.0)
            else:
                cluster.scale(jobs=jobs)
            slurm.wait_until(lambda: len(client.nthreads()) == jobs, "its workers")

        size(1)
        (job,) = slurm.jobs(name=name)
        futures = client.map(effect, range(RESULTS), log=str(log), pure=False)
        client.gather(futures)
        size(2)
        running = client.map(busy, range(BUSY), log=str(log), pure=False)
        other = preempt(slurm, job)
        slurm.wait_until(lambda: slurm.jobs().get(other) == "RUNNING", "the job of more priority", timeout=90)
        assert client.gather(futures) == [bytes(SIZE)] * RESULTS
        assert client.gather(running) == list(range(BUSY))
        executions = len(log.read_text().splitlines())
        if manager:
            slurm.run("scancel", other)
            slurm.wait_until(
                lambda: len(slurm.jobs(name=name, states="RUNNING").keys() - {job}) == 2, "one in its place"
            )
            slurm.wait_until(lambda: len(client.nthreads()) == 2, "its worker")
            story = manager.story()
            for row in story:
                print(f"{row['time']:6.1f} {row['decision']:<14} {row['reason']}")
            kinds = [row["decision"] for row in story]
            assert not {"error", "lost"}.intersection(kinds)
            # in its grace time, of which nobody tells it: not when Slurm kills it
            assert kinds.count("unit-leaves") == 1 and "farewell" not in kinds
    return executions - RESULTS - BUSY, len(slurm.jobs(name=name, states="all"))


def test_results_survive_a_preemption_and_the_job_is_asked_for_again(slurm, tmp_path, report):
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(
            lambda name: preempted(slurm, name, tmp_path / name), ["plain-preempted", "ours-preempted"]
        )
        (plain, _), (ours, submitted) = found
    what = f"of {RESULTS} results and {BUSY} tasks computed again: preemption"
    report.add("S4", what, plain=plain, ours=ours, bound=0)
    assert plain >= RESULTS
    assert ours == 0
    assert submitted == 3
