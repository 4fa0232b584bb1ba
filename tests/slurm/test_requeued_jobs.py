"""Slurm puts batch jobs back into its queue, or holds them: they come back under their names."""

from contextlib import contextmanager

import pytest
from dask_on_slurm import dask_cluster
from distributed import Client

import dask_hpc

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

RESULTS = 10
LOOKS = 6


def effect(number, log):
    with open(log, "a") as file:
        file.write(f"{number}\n")
    return number


class TwoUnits:
    """Two batch jobs, each on a node of its own, with results on both; and what Slurm has of them."""

    def __init__(self, slurm, name, cluster, client, manager, log):
        self.slurm, self.name, self.cluster, self.client = slurm, name, cluster, client
        self.manager, self.log = manager, log
        self.most = 0
        self.futures = client.map(effect, range(RESULTS), log=str(log), pure=False)
        client.gather(self.futures)

    def there(self):
        """Ids of its jobs that wait or run; the most at one time is remembered."""
        jobs = self.slurm.jobs(name=self.name)
        found = {job for job, state in jobs.items() if state in ("PENDING", "RUNNING")}
        self.most = max(self.most, len(found))
        return found

    def wait(self, holds, what, timeout=60):
        def looked():
            self.there()
            return holds()

        return self.slurm.wait_until(looked, what, timeout)

    def is_asked(self):
        """Whether Slurm has said until when both run: then it is at rest."""
        watches = self.cluster._adaptive._jobs._jobs.values()
        return all(job.connected is not None and job.answered > job.connected for job in watches)

    def told(self, kind):
        return [row["reason"] for row in self.manager.story() if row["decision"] == kind]

    def names(self):
        return {worker["name"] for worker in self.cluster.scheduler_info["workers"].values()}

    def check(self, jobs):
        """Nothing is lost, nothing ran twice, nobody died, and no job is new."""
        assert self.client.gather(self.futures) == list(range(RESULTS))
        assert len(self.log.read_text().splitlines()) == RESULTS
        story = self.manager.story()
        for row in story:
            print(f"{row['time']:6.1f} {row['decision']:<14} {row['reason']}")
        assert not {"error", "lost", "unit-dead"}.intersection(row["decision"] for row in story)
        assert self.there() == set(self.slurm.jobs(name=self.name, states="all")) == jobs and self.most == 2


@contextmanager
def two_units(slurm, name, log, **more):
    with (
        dask_cluster(slurm, job_name=name) as cluster,
        Client(cluster, set_as_default=False) as client,
        dask_hpc.malleable(cluster) as manager,
    ):
        cluster.adapt(minimum_jobs=2, maximum_jobs=2, interval="500ms", **more)
        slurm.wait_until(lambda: len(client.nthreads()) == 2, "two workers")
        yield TwoUnits(slurm, name, cluster, client, manager, log)


def by_requeue(slurm, job):
    slurm.run("scontrol", "requeue", job)
    slurm.wait_until(lambda: slurm.jobs().get(job) == "PENDING", "the queue")


def by_requeue_and_hold(slurm, job):
    slurm.run("scontrol", "requeuehold", job)
    slurm.wait_until(lambda: slurm.jobs().get(job) == "PENDING", "the queue")


def by_preemption(slurm, job):
    """One of more priority has its place for a while; nobody asks about the grace time."""
    node = slurm.ask(job, "NodeList")
    urgent = ("sbatch", "--parsable", "-p", "urgent", "-w", node, "-c", 3, "-o", "/dev/null")
    other = slurm.run(*urgent, "--wrap", "exec sleep 600").strip()
    slurm.wait_until(lambda: slurm.jobs().get(job) == "PENDING", "the queue", 90)
    slurm.run("scancel", other)


def comes_back(slurm, name, log, deeds, **more):
    """Units that Slurm puts back wait, are not replaced, and run again under their ids and names."""
    with two_units(slurm, name, log, expected_wait="10 min", **more) as units:
        jobs, names = units.there(), units.names()
        assert len(jobs) == len(names) == 2
        units.wait(units.is_asked, "a first answer")
        for job, deed in zip(sorted(jobs), deeds, strict=False):
            deed(slurm, job)
            units.wait(lambda: len(units.client.nthreads()) == 1, "one worker less")
            if deed is by_requeue_and_hold:
                units.wait(lambda: units.told("warning"), "a word about the hold")
                assert "is held (pending: job requeued in held state)" in units.told("warning")[0]
                slurm.run("scontrol", "release", job)
            for _ in range(LOOKS):  # enough to give it up
                units.cluster.sync(units.cluster._adaptive.adapt)
            # Slurm would let it wait for two minutes.
            slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
            units.wait(lambda: len(units.client.nthreads()) == 2, "it comes back")
            assert units.names() == names, units.told("unit-dead")
        units.check(jobs)


def test_a_preempted_unit_comes_back_if_nobody_asked_during_its_grace_time(slurm, tmp_path, report):
    comes_back(slurm, "preempted", tmp_path / "log", [by_preemption], poll=60)
    report.add("S4", "a job is preempted and comes back under its id", plain="", ours="yes", bound="yes")


def test_units_come_back_that_were_requeued_and_held(slurm, tmp_path, report):
    comes_back(slurm, "requeued", tmp_path / "log", [by_requeue, by_requeue_and_hold], poll=1)
    report.add("S4", "one is requeued, one held as well: come back", plain="", ours="2 of 2", bound="2 of 2")
