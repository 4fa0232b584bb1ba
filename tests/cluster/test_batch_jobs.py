"""What the batch system says of units, how often it is asked, and that not knowing is not death."""

import asyncio
import os
import sys
import threading
from itertools import pairwise
from math import inf
from weakref import WeakValueDictionary

import pytest
from distributed.utils_test import gen_test
from tornado.process import Subprocess

from dask_hpc.batch import command
from dask_hpc.batch.job_state import UNKNOWN, Heard, JobState
from dask_hpc.cluster.client import batch_jobs
from dask_hpc.cluster.client.batch_jobs import BatchDesk, BatchJobs, Known, of_process
from dask_hpc.planning.polling import Manners

AT_ONCE = Manners(poll=0.1, due=0.1)


class SlurmUnit:
    submit_command = "/opt/slurm/bin/sbatch"

    def __init__(self, job_id):
        self.job_id = job_id


def line(job, state="RUNNING", used="1:00", left="2:00", start="N/A", restarts=0, reason="None"):
    return f"{job}|{state}|{used}|{left}|NONE|{start}|{restarts}||{reason}|"


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Put a program of that name in front of everything; it counts its calls."""

    def put(program):
        path = tmp_path / "squeue"
        path.write_text(f"#!{sys.executable}\nopen({str(tmp_path / 'calls')!r}, 'a').write('x')\n{program}")
        path.chmod(0o755)

    def calls():
        return len((tmp_path / "calls").read_text()) if (tmp_path / "calls").exists() else 0

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    put.calls = calls
    return put


UNITS = {"a": SlurmUnit("7"), "b": SlurmUnit("8")}
LONG_AGO = {"a": 9999.0, "b": 9999.0}


# --- the real program, as a script


@gen_test()
async def test_all_units_in_one_call_and_not_too_often(squeue):
    squeue(f"print({line(7)!r})")
    jobs = BatchJobs(Manners(poll=3600.0, due=3600.0))
    for _ in range(3):
        found = await jobs.look(UNITS, LONG_AGO)
        assert found["a"].job.state == "running"
        assert found["a"].job.running_for >= 60 and found["a"].job.left <= 120
        assert found["b"].job.state == "gone" and found["b"].job.why == "Slurm does not know it any more"
    assert squeue.calls() == 1
    found = await jobs.look({**UNITS, "c": SlurmUnit("9")}, LONG_AGO)
    assert found["c"].job == JobState("queued", "submitted"), "nobody has been asked about it"
    assert squeue.calls() == 1


@gen_test()
async def test_a_program_beside_the_one_that_submits_is_preferred(squeue, tmp_path):
    beside = tmp_path / "bin"
    beside.mkdir()
    squeue("raise SystemExit(1)")
    (tmp_path / "squeue").rename(beside / "squeue")
    squeue(f"print({line(7)!r})")
    unit = SlurmUnit("7")
    assert (await BatchJobs(AT_ONCE).look({"a": unit}, LONG_AGO))["a"].job.state == "running"
    unit.submit_command = f"{beside}/sbatch"
    assert (await BatchJobs(AT_ONCE).look({"a": unit}, LONG_AGO))["a"].job.state == "unknown"


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "import time; time.sleep(600)", "print('hello')"])
@gen_test()
async def test_a_batch_system_that_does_not_answer_kills_nobody(squeue, monkeypatch, program):
    monkeypatch.setattr(command, "PATIENCE", 0.5)
    squeue(program)
    jobs = BatchJobs(AT_ONCE)
    found = await jobs.look(UNITS, LONG_AGO)
    assert {(one.job.state, one.job.why) for one in found.values()} == {("unknown", "Slurm does not answer")}
    found = await jobs.look(UNITS, LONG_AGO, {"a"})
    assert found["a"].job.state == "running", "its worker says so"


@gen_test()
async def test_without_a_batch_system_nothing_is_known(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    found = await BatchJobs(AT_ONCE).look(UNITS, LONG_AGO)
    assert {one.job.state for one in found.values()} == {"unknown"}


# --- a clock of numbers, and a batch system that answers at once


class Queue:
    """What squeue prints, and when it was asked."""

    def __init__(self):
        self.now = 5000.0
        self.rows = {}
        self.asked = []
        self.is_deaf = False

    async def hear(self, words, directory=""):
        self.asked.append(self.now)
        await asyncio.sleep(0)
        return None if self.is_deaf else Heard("".join(f"{row}\n" for row in self.rows.values()))


@pytest.fixture
def queue(monkeypatch):
    found = Queue()
    monkeypatch.setattr(BatchDesk, "_all", WeakValueDictionary())  # whose clock is another one
    monkeypatch.setattr(batch_jobs, "monotonic", lambda: found.now)
    monkeypatch.setattr(batch_jobs, "time", lambda: found.now)
    monkeypatch.setattr(command, "hear", found.hear)
    return found


class Clusters:
    """So many cluster objects of one process, which look every second."""

    def __init__(self, queue, number, manners=None):
        self.queue = queue
        manners = manners or Manners()
        self.jobs = [BatchJobs(manners) for _ in range(number)]
        self.units = [{} for _ in range(number)]
        self.born = {}
        self.connected = set()

    def submit(self, cluster, job):
        self.units[cluster][job] = SlurmUnit(job)
        self.born[job] = self.queue.now

    async def run(self, seconds):
        for _ in range(seconds):
            for jobs, units in zip(self.jobs, self.units, strict=True):
                ages = {job: self.queue.now - self.born[job] for job in units}
                self.found = await jobs.look(units, ages, self.connected & units.keys())
            self.queue.now += 1


@pytest.mark.parametrize("number", [1, 20])
@gen_test()
async def test_at_rest_one_question_in_two_minutes_for_all_clusters(queue, number):
    clusters = Clusters(queue, number)
    for cluster in range(number):
        clusters.submit(cluster, f"{cluster}1")
        clusters.submit(cluster, f"{cluster}2")
        queue.rows[f"{cluster}1"] = line(f"{cluster}1", left="UNLIMITED")
        queue.rows[f"{cluster}2"] = line(f"{cluster}2", "PENDING")
        clusters.connected.add(f"{cluster}1")
    await clusters.run(1800)
    assert 11 <= len(queue.asked) <= 16  # 1800 / (120 to 150), and that they have just come
    gaps = [after - before for before, after in pairwise(queue.asked)]
    assert min(gaps[1:]) >= 120 and gaps[0] >= 10 and len(set(gaps)) > 3
    clusters.units = [{} for _ in range(number)]
    del queue.asked[:]
    await clusters.run(1000)
    assert not queue.asked, "there is no job, so there is no question"


@pytest.mark.parametrize("number", [1, 20])
@gen_test()
async def test_while_something_is_due_one_question_in_ten_seconds_for_all_clusters(queue, number):
    clusters = Clusters(queue, number)
    for cluster in range(number):
        clusters.submit(cluster, str(cluster))
        queue.rows[str(cluster)] = line(cluster, "PENDING", start=f"{queue.now + 600:.0f}")
    await clusters.run(900)
    gaps = [after - before for before, after in pairwise(queue.asked)]
    assert min(gaps) >= 10
    at = [asked - 5000 for asked in queue.asked]
    assert sum(20 < one < 590 for one in at) <= 5 and 8 <= sum(590 <= one <= 720 for one in at) <= 14


@gen_test()
async def test_a_worker_that_connects_spares_questions(queue):
    clusters = Clusters(queue, 1)
    clusters.submit(0, "7")
    await clusters.run(8)
    clusters.connected.add("7")
    await clusters.run(9)
    assert not queue.asked
    assert clusters.found["7"] == Known(JobState("running", "", 8.0), inf)
    queue.rows["7"] = line(7, used="0:12", left="9:48")
    await clusters.run(2)
    assert len(queue.asked) == 1, "until when, only Slurm knows"
    await clusters.run(100)
    assert len(queue.asked) == 1


@gen_test()
async def test_workers_that_vanish_are_asked_about_at_once(queue):
    clusters = Clusters(queue, 1)
    clusters.submit(0, "7")
    clusters.connected.add("7")
    queue.rows["7"] = line(7, left="UNLIMITED")
    await clusters.run(200)
    before = len(queue.asked)
    clusters.connected.clear()
    queue.rows["7"] = line(7, "COMPLETING", left="UNLIMITED")
    vanished = queue.now
    await clusters.run(1)
    assert queue.asked[before:] == [vanished]
    assert clusters.found["7"].job.state == "unknown"
    queue.rows["7"] = line(7, "PENDING", start=f"{queue.now + 120:.0f}", reason="BeginTime")
    await clusters.run(13)  # 10 s, and up to a quarter more
    assert len(queue.asked) == before + 2
    assert clusters.found["7"].job.state == "queued" and clusters.found["7"].job.restarts == 1
    await clusters.run(60)
    assert len(queue.asked) == before + 2, "it is known where it is"


@gen_test()
async def test_old_answers_say_how_old_they_are(queue):
    clusters = Clusters(queue, 1)
    clusters.submit(0, "7")
    queue.rows["7"] = line(7, used="0:00", left="5:00")
    await clusters.run(11)
    assert clusters.found["7"] == Known(JobState("running", "", 0.0, 300.0, restarts=0), 0.0)
    clusters.connected.add("7")
    del queue.rows["7"]
    await clusters.run(5)
    assert clusters.found["7"] == Known(JobState("running", "", 5.0, 295.0, restarts=0), 5.0)


@gen_test()
async def test_a_job_that_is_over_by_an_old_answer_is_there_if_its_worker_is(queue):
    clusters = Clusters(queue, 1)
    clusters.submit(0, "7")
    queue.rows["7"] = line(7, "PREEMPTED")
    await clusters.run(13)
    assert clusters.found["7"].job.state == "gone"
    clusters.connected.add("7")
    await clusters.run(2)
    assert clusters.found["7"].job.state == "running"


@gen_test()
async def test_who_runs_before_it_connects_and_waits_again_was_restarted(queue):
    clusters = Clusters(queue, 1, Manners(poll=1.0, due=1.0))
    clusters.submit(0, "7")
    for state, restarts in (("PENDING", 0), ("RUNNING", 0), ("PENDING", 1)):
        queue.rows["7"] = line(7, state)
        await clusters.run(4)
        assert clusters.found["7"].job.restarts == restarts


@gen_test()
async def test_no_answer_makes_the_unknown_not_the_old(queue):
    clusters = Clusters(queue, 1)
    clusters.submit(0, "7")
    clusters.submit(0, "8")
    queue.rows = {"7": line(7, "PENDING"), "8": line(8, left="5:00")}
    clusters.connected.add("8")
    await clusters.run(20)
    queue.is_deaf = True
    del queue.asked[:]
    await clusters.run(200)
    assert clusters.found["7"].job == JobState("unknown", "Slurm does not answer")
    assert clusters.found["8"].job.state == "running" and clusters.found["8"].job.left < 130
    (jobs,) = clusters.jobs
    assert not jobs.news
    await clusters.run(400)
    assert jobs.news == ["squeue gives no answer: nobody knows what becomes of batch jobs"]
    queue.is_deaf = False
    await clusters.run(200)
    assert clusters.found["7"].job.state == "queued"


@gen_test()
async def test_who_lets_go_is_not_asked_for(queue):
    clusters = Clusters(queue, 2)
    clusters.submit(0, "7")
    await clusters.run(20)
    assert queue.asked
    clusters.jobs[0].leave()
    clusters.units[0] = {}
    del queue.asked[:]
    await clusters.run(300)
    assert not queue.asked


@gen_test()
async def test_the_one_who_wants_to_know_more_often_does_for_all(queue):
    calm, quick = Clusters(queue, 1), Clusters(queue, 1, Manners(poll=20.0, due=5.0))
    calm.submit(0, "7")
    quick.submit(0, "8")
    queue.rows = {"7": line(7, "PENDING"), "8": line(8, "PENDING")}
    for _ in range(200):
        await quick.run(1)
        queue.now -= 1
        await calm.run(1)
    assert 8 <= len(queue.asked) <= 12


def test_clusters_on_other_threads_and_loops_share_a_desk(queue):
    """Nobody is asked twice, and nobody waits for another one's loop."""
    makers = threading.Barrier(8)
    found = []

    async def look():
        jobs = BatchJobs(Manners())
        makers.wait()
        state = "queued"
        while state == "queued":  # another one is asking
            await asyncio.sleep(0.001)
            state = (await jobs.look({"a": SlurmUnit("7")}, LONG_AGO))["a"].job.state
        found.append((jobs, state))

    queue.rows["7"] = line(7)
    threads = [threading.Thread(target=lambda: asyncio.run(look())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(queue.asked) == 1
    assert [state for _, state in found] == ["running"] * 8
    assert len({desk for jobs, _ in found for desk in jobs._desks.values()}) == 1


@gen_test()
async def test_a_question_that_is_given_up_is_asked_again(queue, monkeypatch):
    started = asyncio.Event()

    async def never(words, directory=""):
        started.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(command, "hear", never)
    jobs = BatchJobs(Manners())
    looking = asyncio.ensure_future(jobs.look(UNITS, LONG_AGO))
    await started.wait()
    assert (await BatchJobs(Manners()).look(UNITS, LONG_AGO))["a"].job.state == "queued", "does not wait"
    looking.cancel()
    await asyncio.wait([looking])
    monkeypatch.setattr(command, "hear", queue.hear)
    queue.rows["7"] = line(7)
    queue.now += 20
    assert (await jobs.look(UNITS, LONG_AGO))["a"].job.state == "running"


@gen_test()
async def test_submissions_are_counted_for_all_clusters_of_a_process(queue):
    polite = Manners(per_minute=5)
    one, other = BatchJobs(polite), BatchJobs(polite)
    for jobs in (one, other):
        assert jobs.left() == float("inf") and jobs.allow(9) == 9, "these are no batch jobs"
        jobs.submits(SlurmUnit(None))
    assert (one.allow(3), other.left(), other.allow(3), one.allow(1)) == (3, 2, 2, 0)
    queue.now += 61
    assert one.left() == 5


class CondorUnit(SlurmUnit):
    submit_command = "condor_submit"


class MoabJob(SlurmUnit):
    submit_command = "msub"
    status = type("Status", (), {"name": "running"})


@gen_test()
async def test_what_nobody_can_say_is_told_once(queue):
    jobs = BatchJobs(Manners())
    for _ in range(3):
        found = await jobs.look({"a": CondorUnit("1.0"), "b": MoabJob("2")}, {"a": 1.0})
    assert found["b"] == Known(UNKNOWN, inf)
    silent, unheard = sorted(jobs.news)
    assert silent.startswith("HTCondor does not say when an idle job will start")
    assert unheard == "nobody asks what becomes of the batch jobs of MoabJob"


class OARUnit(SlurmUnit):
    submit_command = "oarsub"


@gen_test()
async def test_a_job_that_goes_on_under_another_id_is_followed(queue, monkeypatch):
    async def hear(words, directory=""):
        return Heard('{"12": {"state": "Waiting", "resubmit_job_id": 5}}')

    monkeypatch.setattr(command, "hear", hear)
    unit = OARUnit("5")
    jobs = BatchJobs(AT_ONCE)
    found = await jobs.look({"a": unit}, LONG_AGO)
    assert (found["a"].job.state, found["a"].job.restarts, unit.job_id) == ("queued", 1, "12")


def test_a_desk_lives_as_long_as_somebody_comes():
    def here():
        return [desk for desk in BatchDesk._all.values() if desk.system.name == "PBS"]

    jobs = BatchJobs(Manners())
    unit = SlurmUnit("7")
    unit.submit_command = "qsub"
    jobs.submits(unit)
    assert len(here()) == 1
    del jobs
    assert not here()


# --- processes


class LocalUnit:
    job_id = "1"

    def __init__(self, *command):
        self.process = Subprocess(command)


@gen_test()
async def test_a_process_of_this_machine_is_asked_itself():
    ended = LocalUnit(sys.executable, "-c", "raise SystemExit(3)")
    lives = LocalUnit(sys.executable, "-c", "import time; time.sleep(60)")
    await asyncio.to_thread(ended.process.proc.wait)
    found = await BatchJobs(Manners()).look({"a": ended, "b": lives}, {"b": 4.0})
    assert found == {
        "a": Known(JobState("gone", "its process ended with code 3")),
        "b": Known(JobState("running", "", 4.0)),
    }
    lives.process.proc.kill()
    await asyncio.to_thread(lives.process.proc.wait)
    assert of_process(lives, 4.0) == JobState("gone", "its process was killed by signal 9")
