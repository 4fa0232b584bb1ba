"""Three malleable jobs on four nodes from Slurm: the least urgent one makes room, and grows back."""

from collections import Counter
from time import sleep

import dask
import pytest
from dask_on_slurm import dask_cluster
from distributed import Client

import dask_hpc

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

NODES = 4


def work(job, number, log):
    with open(log, "a") as file:
        file.write(f"{job} {number}\n")
    sleep(0.1)
    return job, number


class Work:
    """What is submitted, what must come out, and what was executed."""

    def __init__(self, slurm, client, log):
        self.slurm, self.client, self.log = slurm, client, log
        self.futures = []
        self.wanted = []

    def submit(self, job, count):
        first = sum(name == job for name, _ in self.wanted)
        numbers = range(first, first + count)
        self.wanted += [(job, number) for number in numbers]
        self.futures += self.client.map(work, [job] * count, numbers, log=str(self.log), pure=False)

    def executions(self):
        rows = self.log.read_text().splitlines() if self.log.exists() else []
        return Counter((job, int(number)) for job, number in map(str.split, rows))


def test_the_least_urgent_job_makes_room_and_grows_back(slurm, tmp_path):
    with dask.config.set({"hpc.node": "worker"}), dask_cluster(slurm) as cluster, Client(cluster) as client:
        cluster.scale(jobs=NODES)
        client.wait_for_workers(NODES, timeout=60)
        assert sorted(slurm.jobs().values()) == ["RUNNING"] * NODES
        with dask_hpc.manage(client, policy="urgent-first") as manager:
            everything = Work(slurm, client, tmp_path / "executed")
            run(slurm, manager, everything)
            found = client.gather(everything.futures)
            check(manager.status(), manager.story(), everything, found)
    slurm.wait_until_empty()


def run(slurm, manager, everything):
    """Every step waits for the one before, however slow the machine is."""

    def job(name):
        return next((job for job in manager.status()["jobs"] if job["name"] == name), None)

    def size(name):
        found = job(name)
        return len(found["nodes"]) if found and found["state"] == "running" else 0

    def is_done(name):
        found = job(name)
        return bool(found) and found["state"] == "done"

    def keep_busy(holds):
        def look():
            if not holds():
                # the least urgent one never runs out of work before the others are done
                if job("survey")["unfinished_tasks"] < 200:
                    everything.submit("survey", 100)
                return False
            return True

        return look

    with dask_hpc.job("survey", nodes=NODES, min_nodes=1, max_nodes=NODES, priority=0):
        everything.submit("survey", 400)
        slurm.wait_until(lambda: len(everything.executions()) > 20, "results of the survey")
        assert size("survey") == NODES
        with dask_hpc.job("forecast", nodes=2, min_nodes=2, max_nodes=3, priority=10):
            everything.submit("forecast", 60)
        slurm.wait_until(lambda: size("forecast") >= 2, "the urgent job on two nodes")
        assert 1 <= size("survey") <= 2
        with dask_hpc.job("alarm", nodes=1, min_nodes=1, max_nodes=2, priority=20):
            everything.submit("alarm", 10)
        slurm.wait_until(keep_busy(lambda: is_done("alarm")), "the end of the alarm")
        slurm.wait_until(keep_busy(lambda: is_done("forecast")), "the end of the forecast")
        slurm.wait_until(keep_busy(lambda: size("survey") == NODES), "the survey on all nodes again")
    slurm.wait_until(lambda: is_done("survey"), "the end of the survey")


def check(status, story, everything, found):
    names = {job["id"]: job["name"] for job in status["jobs"]}
    told = [
        (names[row["job"]], row["decision"], len(row["nodes"]))
        for row in story
        if row["decision"] in ("start", "shrink", "grow")
    ]
    for row in story:
        print(f"{row['time']:7.2f}  {row['decision']:<12} {names.get(row['job'], ''):<9} {row['reason']}")
    assert found == everything.wanted
    assert everything.executions() == Counter(everything.wanted)
    survey = [(decision, size) for name, decision, size in told if name == "survey"]
    assert survey[0] == ("start", NODES)
    assert survey[1][0] == "shrink"
    assert [size for decision, size in survey if decision == "grow"][-1] == NODES
    assert told.index(("survey", *survey[1])) < told.index(("forecast", "start", 2))
    assert {job["name"]: (job["state"], job["kind"]) for job in status["jobs"]} == dict.fromkeys(
        ("survey", "forecast", "alarm"), ("done", "malleable")
    )
    assert not [row for row in story if row["decision"] in ("error", "lost")]
