"""``ask="fit"``: the queue and our own jobs come from the same few questions; and what waits is told."""

import asyncio
import os
import random
from itertools import pairwise
from types import SimpleNamespace
from weakref import WeakValueDictionary

import pytest
from dask_jobqueue import config as jobqueue_config
from dask_jobqueue.slurm import SLURMJob
from simulated_slurm import row
from small_cluster import cluster2

import dask_hpc
from dask_hpc import config
from dask_hpc.cluster.client import asks, batch_jobs
from dask_hpc.cluster.client.adaptive import HPCAdaptive
from dask_hpc.cluster.client.asks import FitAsker
from dask_hpc.cluster.client.batch_jobs import BatchDesk, BatchJobs
from dask_hpc.cluster.units import Facts
from dask_hpc.model.errors import InputError

SITE = """\
scontrol: show node
NodeName=n1 CPUAlloc=4 CPUTot=4 RealMemory=8000 AllocMem=0 State=ALLOCATED
NodeName=n2 CPUAlloc=4 CPUTot=4 RealMemory=8000 AllocMem=0 State=ALLOCATED
scontrol: show partition
PartitionName=debug Default=YES MaxTime=UNLIMITED Nodes=n[1-2] State=UP
scontrol: show reservation
No reservations in the system
"""
STEP = 2  # seconds between looks
PROGRAMS = ("squeue", "scontrol", "sacctmgr", "sinfo")


class Site:
    """Programs of Slurm on PATH, which write down when they were called, and a clock of numbers."""

    def __init__(self, path):
        self._path = path
        self.rows = {}
        self.now, self.is_deaf = 0.0, False
        self.clock = (path / "clock").open("w")
        for name in PROGRAMS:
            program = path / name
            calls, clock = path / "calls", path / "clock"
            program.write_text(
                f'#!/bin/sh\nread now < {clock}\necho "$now {name} $*" >> {calls}\ncat {path}/{name}.out\n'
            )
            program.chmod(0o755)
            self.says(name, "")
        (path / "calls").touch()
        self.says("scontrol", SITE)
        self.tick(50_000.0)

    def says(self, name, text):
        (self._path / f"{name}.out").write_text(text)

    def job(self, job, state, **more):
        self.rows[job] = row(job, state, **more)
        if not self.is_deaf:
            self.says("squeue", "".join(self.rows.values()))

    def tick(self, seconds):
        self.now += seconds
        self.clock.seek(0)
        self.clock.write(f"{self.now}\n")
        self.clock.flush()

    def asked(self, since):
        """When which program was called, and with what."""
        calls = [line.split(" ", 2) for line in (self._path / "calls").read_text().splitlines()]
        return [(float(at), name, words) for at, name, words in calls if float(at) >= since]


@pytest.fixture
def site(tmp_path, monkeypatch):
    found = Site(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(BatchDesk, "_all", WeakValueDictionary())  # whose clock is another one
    monkeypatch.setattr(batch_jobs, "random", random.Random(3).random)
    for module in (batch_jobs, asks):
        monkeypatch.setattr(module, "monotonic", lambda: found.now)
        monkeypatch.setattr(module, "time", lambda: found.now)
    yield found
    found.clock.close()


class AskingCluster:
    """A cluster object of batch jobs that looks every other second; one that asks for what fits, perhaps."""

    def __init__(self, site, name, is_fitting=False):
        job = SLURMJob("tcp://nobody", name, cores=4, memory="1 GB", walltime="00:30:00")
        self.site, self.name, self.connected, self.born = site, name, set(), {}
        self.spec = {"cls": SLURMJob, "options": {}}
        self.object = SimpleNamespace(_dummy_job=job, workers={}, worker_spec={})
        self.jobs = BatchJobs(config.manners())
        self.jobs.submits(job)
        settings = config.ask_settings({"least": "1 min"})
        self.asker = FitAsker(self.object, settings, self.jobs, config.manners()) if is_fitting else None
        #: units that the size wants beside those that are there
        self.missing = 0

    def submit(self, unit, job, state, **more):
        self.born[unit] = self.site.now
        self.object.worker_spec.setdefault(unit, self.spec)
        self.object.workers[unit] = SimpleNamespace(submit_command="sbatch", job_id=job)
        self.site.job(job, state, **more)
        if state == "RUNNING":
            self.connected.add(unit)

    async def look(self):
        """What it does at a look: the number of jobs it submits."""
        ages = {unit: self.site.now - born for unit, born in self.born.items()}
        found = await self.jobs.look(self.object.workers, ages, self.connected)
        if self.asker is None:
            return 0
        units = [HPCAdaptive._unit(name, {}, ages[name], known) for name, known in found.items()]
        facts = Facts("x", 1.0, tuple(units))
        allowed = self.asker.may_submit(facts)
        plan = {"submit": int(min(self.missing, allowed)), "work": 7200.0, "target": 4}
        plan = await self.asker.plan(plan | {"cancel": [], "leave": [], "dead": []}, facts)
        names = [f"{self.name}-{len(self.born) + at}" for at in range(plan["submit"])]
        for name in names:
            self.object.worker_spec[name] = self.spec
        self.asker.dress(names)
        for name in names:
            self.submit(name, f"{900 + len(self.born)}", "PENDING", UserName="me")
            self.missing -= 1
        return len(names)


def test_questions_are_rare_by_default():
    assert (config.manners().poll, config.manners().due) == (120, 10)
    assert (config.manners("30s").poll, config.manners(4).due) == (30, 4)


def test_one_question_at_a_time_for_the_queue_and_all_clusters(site):
    """Every call of every program counts, and each is the only one of its ten seconds, or two minutes."""
    asyncio.run(questions(site))


async def questions(site):
    jobqueue_config.reconfigure()  # distributed's tests clear Dask's configuration
    clusters = [AskingCluster(site, f"c{number}") for number in range(4)]
    for number, cluster in enumerate(clusters):
        cluster.submit("a", f"{10 + number}", "RUNNING", StartTime="1000", TimeLeft="UNLIMITED")
        cluster.submit("b", f"{20 + number}", "PENDING")
    site.job(
        "5", "RUNNING", StartTime="49000", TimeLimit="2:00:00", NodeList="n[1-2]", **{"tres-alloc": "cpu=8"}
    )
    fit = AskingCluster(site, "fit", is_fitting=True)

    async def run(seconds):
        """When it was asked meanwhile, and how many jobs were submitted."""
        since, submitted = site.now, 0
        for _ in range(seconds // STEP):
            for cluster in (*clusters, fit):
                submitted += await cluster.look()
            site.tick(STEP)
        found = site.asked(since)
        return [at for at, *_ in found], [(name, words) for _, name, words in found], submitted

    # own jobs only, as nobody wants to know more
    _, asked, _ = await run(300)
    assert len(asked) <= 4 and all(name == "squeue" and "--me" in words for name, words in asked)
    # somebody wants to submit
    fit.missing = 3
    at, asked, submitted = await run(60)
    assert submitted and min(after - before for before, after in pairwise(at)) >= 10
    assert [name for name, _ in asked][:2] == ["scontrol", "squeue"]
    assert all("--me" not in words for name, words in asked if name == "squeue")
    rows = fit.asker.rows(Facts("x", 1.0, ()))
    assert rows == [] and "job" in fit.asker.news[0][1]
    # at rest, though a unit waits; what hardly changes takes its turn
    await run(300)
    at, asked, _ = await run(3600)
    assert min(after - before for before, after in pairwise(at)) >= 120
    assert 24 <= len(at) <= 31
    count = {name: sum(name == one for one, _ in asked) for name in PROGRAMS}
    assert count["scontrol"] in range(4, 8) and count["sacctmgr"] in (1, 2) and count["squeue"] > 15
    # all the time something is due
    for cluster in clusters:
        cluster.connected.clear()
    at = []
    for _ in range(20):
        fit.missing, fit.asker._is_settled = 3, False
        more, _, _ = await run(10)
        at += more
    assert len(at) >= 15 and min(after - before for before, after in pairwise(at)) >= 10
    # refused: ever more rarely
    site.is_deaf = True
    for name in PROGRAMS:
        site.says(name, "slurm_load_jobs error")
    at = []
    for _ in range(60):
        fit.missing, fit.asker._is_settled = 3, False
        more, _, _ = await run(10)
        at += more
    gaps = [after - before for before, after in pairwise(at)]
    assert gaps[-1] >= 120 and len(at) <= 11
    # nobody asks any more, so nobody is asked
    for cluster in (*clusters, fit):
        cluster.jobs.leave()
        cluster.object.workers.clear()
    fit.missing = 0
    assert (await run(600))[0] == []


# --- what waits, as ``Manager.asks`` has it

ASK = {
    "unit": "w-1", "job": "17", "walltime": 600.0, "partition": "debug", "qos": "", "nodes": 1,
    "asked_ago": 5.0, "starts_in": 100.0, "low": 60.0, "high": None, "why": "a hole",
}  # fmt: skip


@cluster2
async def test_what_waits_is_told(c, s, *workers):
    assert await c.scheduler.hpc_asks() is None, "nobody manages it"
    async with await dask_hpc.manage(c) as manager:
        assert await manager.asks() == []
        await c.scheduler.hpc_asks(asker="one", asks=[ASK, ASK | {"unit": "w-2", "low": None}])
        await c.scheduler.hpc_asks(asker="other", asks=[ASK | {"unit": "w-3"}])
        found = await manager.asks()
        assert [row["unit"] for row in found] == ["w-1", "w-2", "w-3"]
        # time goes by
        assert found[0]["asked_ago"] > 5.0 and found[0]["starts_in"] < 100.0 and found[0]["high"] is None
        assert found[0]["starts_in"] - found[0]["low"] == pytest.approx(40.0)
        assert {key: found[0][key] for key in ("walltime", "why")} == {"walltime": 600.0, "why": "a hole"}
        await c.scheduler.hpc_asks(asker="one", asks=[])
        assert [row["unit"] for row in await manager.asks()] == ["w-3"]
        for number in range(20):  # a program that comes and goes
            await c.scheduler.hpc_asks(asker=f"{number}", asks=[ASK])
        assert len(await manager.asks()) == 8
        for wrong in (
            {"asker": 7, "asks": []},
            {"asker": "", "asks": []},
            {"asker": "one", "asks": "many"},
            {"asker": "one", "asks": [{"unit": "w-1"}]},
            {"asker": "one", "asks": [ASK | {"low": -1.0}]},
            {"asker": "one", "asks": [ASK | {"nodes": 0}]},
        ):
            with pytest.raises(InputError, match="asks"):
                await c.scheduler.hpc_asks(**wrong)
        assert len(await manager.asks()) == 8
