"""Batch jobs of a working Dask cluster are preempted and requeued at random moments, on a real Slurm.

``python requeued_on_slurm.py --events 30 --seed 0`` starts a Slurm of four nodes, as the tests do
(``tests/slurm/small_slurm.py``: it takes root and Debian's packages), and three units on it, which compute
all the time. Half of the events are ``scontrol requeue``, half a job of more priority that has a unit's node
for a while. Each hits a unit while two others are there: where nobody is left to take its results, they are
lost with it. What Slurm has put back may start again at once, not after its two minutes. An event takes some
ten seconds.

It ends with results that were lost, tasks that ran twice, and the most units at one time, of three.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2] / "tests" / "slurm")]

UNITS, NODES = 3, 4
TASK = 0.5  # seconds
AHEAD = 12  # tasks that are submitted and not done


def effect(number, log):
    """A task that is noticed if it runs twice."""
    with open(log, "a") as file:
        file.write(f"{number}\n")
    time.sleep(TASK)
    return number


class Units:
    """Our batch jobs as Slurm has them: those that wait or run, and the most of them at one time."""

    def __init__(self, slurm, name):
        self._slurm, self._name = slurm, name
        self.most = 0

    def by_state(self, state):
        """Their ids."""
        jobs = self._slurm.jobs(name=self._name)
        there = [job for job, now in jobs.items() if now in ("PENDING", "RUNNING")]
        self.most = max(self.most, len(there))
        return [job for job in there if jobs[job] == state]

    def requeue(self, job):
        """As an admin does."""
        self._slurm.run("scontrol", "requeue", job)
        self._start_again(job)

    def preempt(self, job):
        """Somebody of more priority needs its node, for as long as it takes to have it."""
        node = self._slurm.ask(job, "NodeList")
        what = ("sbatch", "--parsable", "-p", "urgent", "-w", node, "-c", 3, "-o", "/dev/null")
        other = self._slurm.run(*what, "--wrap", "exec sleep 600").strip()
        self._start_again(job)
        self._slurm.run("scancel", other)

    def _start_again(self, job):
        """If it is not taken back, as a new one would start sooner."""
        jobs = {}

        def is_put_back():
            self.by_state("RUNNING")
            jobs.update(self._slurm.jobs())
            return jobs.pop(job, "gone") in ("PENDING", "gone")

        self._slurm.wait_until(is_put_back, f"job {job} in the queue", 90)
        if job in self.by_state("PENDING"):
            self._slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")


def run(events, seed):
    """What came of it, in words."""
    from dask_on_slurm import dask_cluster
    from distributed import Client
    from small_slurm import SmallSlurm

    import dask_hpc

    dice, is_over, futures = random.Random(seed), threading.Event(), []
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as directory,
        SmallSlurm(Path(directory), NODES) as slurm,
    ):
        os.environ |= {name: slurm.environment[name] for name in ("PATH", "SLURM_CONF")}
        log = Path(directory) / "ran"
        with (
            dask_cluster(slurm, job_name="me") as cluster,
            Client(cluster) as client,
            dask_hpc.malleable(cluster) as manager,
        ):
            cluster.adapt(minimum_jobs=UNITS, maximum_jobs=UNITS, interval="500ms", expected_wait="10 min")
            client.wait_for_workers(UNITS, timeout=90)
            units = Units(slurm, "me")

            def all_there():
                return len(units.by_state("RUNNING")) == len(client.nthreads()) == UNITS

            def work():
                while not is_over.wait(TASK / 5):
                    while sum(not future.done() for future in futures) < AHEAD:
                        futures.append(client.submit(effect, len(futures), str(log), pure=False))

            working = threading.Thread(target=work)
            working.start()
            try:
                for number in range(events):
                    time.sleep(dice.uniform(0, 5))
                    slurm.wait_until(all_there, "all units", 120)
                    deed = dice.choice([units.requeue, units.preempt])
                    deed(dice.choice(sorted(units.by_state("RUNNING"))))
                    print(f"{number + 1} of {events}: {deed.__name__}", file=sys.stderr)
                slurm.wait_until(all_there, "all units", 120)
            finally:
                is_over.set()
                working.join()
            results = client.gather(futures, errors="skip")
            lost = sum(row["decision"] == "lost" for row in manager.story())
            lost += len(futures) - len(set(results))
        twice = sum(count - 1 for count in Counter(log.read_text().split()).values())
    return len(futures), lost, twice, units.most


def main():
    """One run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    tasks, lost, twice, most = run(given.events, given.seed)
    print(f"{given.events} preemptions and requeues of {UNITS} units that ran {tasks} tasks:")
    print(f"{lost} results lost, {twice} tasks ran twice, at most {most} units")


if __name__ == "__main__":
    main()
