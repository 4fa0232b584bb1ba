"""``AllocationCluster`` inside of Slurm jobs: its units are steps, nodes change hands, nothing is left."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

SETTINGS = """
import os, subprocess, sys, time
import dask_hpc
from distributed import Client

def produce(number):
    return bytes([number]) * 1000

def until(holds, what):
    limit = time.monotonic() + 60
    while not (found := holds()):
        assert time.monotonic() < limit, what
        time.sleep(0.1)
    return found

def count(dask_scheduler):
    return len(dask_scheduler.workers)

def hosts(client):
    return sorted(client.run(lambda: os.environ["SLURMD_NODENAME"]).values())

def steps():
    answer = subprocess.run(["squeue", "-h", "-s", "-j", os.environ["SLURM_JOB_ID"], "-o", "%i %j %N"],
                            capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in answer.splitlines()]
    return {node: step for step, name, node in rows if name == "dask-hpc"}

OPTIONS = dict(interface="lo", nanny=False, worker_extra_args=["--no-dashboard"],
               scheduler_options={"dashboard_address": ":0"})
"""
WHOLE = (
    SETTINGS
    + """
if __name__ == "__main__":
    with dask_hpc.AllocationCluster(1, **OPTIONS) as cluster, Client(cluster) as client:
        assert [node.name for node in cluster.allocation.nodes] == ["n1", "n2", "n3"], cluster.allocation
        assert {node.cores for node in cluster.allocation.nodes} == {3}
        assert 0 < cluster.allocation.end - time.time() <= 600, cluster.allocation.end
        client.wait_for_workers(1, timeout=60)
        with dask_hpc.malleable(cluster) as manager:
            print("one", hosts(client), flush=True)
            cluster.scale(3)
            client.wait_for_workers(3, timeout=60)
            print("three", hosts(client), sorted(set(client.nthreads().values())), flush=True)
            unit = next(iter(cluster.workers.values())).state_now()
            assert unit.state == "running" and 0 < unit.left <= 600, unit
            results = client.map(produce, range(30))
            client.gather(results)
            lent = cluster.lend(1)
            print("lent", lent, hosts(client), sorted(steps()), flush=True)
            model = ["sh", "-c", "echo beside $SLURMD_NODENAME $SLURM_NTASKS"]
            with cluster.beside(model, tasks_per_node=2) as model:
                pass
            print("code", model.process.returncode, flush=True)
            with cluster.beside(["srun", "--ntasks=1", "sh", "-c", "echo srun $SLURMD_NODENAME"]):
                pass
            with cluster.beside(["srun", "--overlap", "sh", "-c", "exit 9"]) as model:
                pass
            print("code", model.process.returncode, flush=True)
            assert cluster.take_back(1) == lent
            client.wait_for_workers(3, timeout=60)
            print("back", hosts(client), flush=True)
            assert client.gather(results) == [produce(number) for number in range(30)]
            events = [event for _, event in client.get_events("all")]
            print("lost", sum(len(event.get("lost-computed-tasks", ())) for event in events), flush=True)
            step = steps()["n2"]
            subprocess.run(["scancel", "--signal=KILL", step], check=True)
            until(lambda: (found := steps()).get("n2") not in (None, step), "another step")
            client.wait_for_workers(3, timeout=60)
            until(lambda: hosts(client) == ["n1", "n2", "n3"], "all three again")
            print("killed", hosts(client), flush=True)
    until(lambda: not steps(), "no step is left")  # Slurm takes a moment to clear them up
    print("steps", steps(), flush=True)
"""
)


@pytest.fixture
def submit(slurm, tmp_path):
    """Run a Python program as a batch job. Gives its id, and what it says when it is over."""

    def run(program, *options, nodes=3):
        (tmp_path / "program.py").write_text(program)
        script = tmp_path / "job.sh"
        imports = os.pathsep.join(path for path in sys.path if path)
        script.write_text(
            f"#!/bin/sh\nexport PYTHONPATH={imports}\nexec {sys.executable} {tmp_path}/program.py\n"
        )
        job = slurm.run(
            "sbatch", "--parsable", f"--nodes={nodes}", "--ntasks-per-node=1", "--cpus-per-task=3",
            "--mem=900", "--time=10", f"--output={tmp_path}/said", *options, script,
        ).strip()  # fmt: skip
        return job, lambda: (tmp_path / "said").read_text()

    return run


def test_grows_shrinks_lends_and_takes_back(slurm, submit):
    job, said = submit(WHOLE)
    slurm.wait_until(lambda: job not in slurm.jobs(), "its end", 240)
    text = said()
    assert slurm.ask(job, "JobState") == "COMPLETED", text
    lines = [line for line in text.splitlines() if re.match(r"[a-z]+ ", line) and "distributed" not in line]
    print("\n".join(lines))
    assert "one ['n1']" in lines and "three ['n1', 'n2', 'n3'] [3]" in lines
    lent = next(line for line in lines if line.startswith("lent"))[7:9]  # not n1, where the script runs
    rest = ["n1", "n3" if lent == "n2" else "n2"]
    assert lent in ("n2", "n3") and f"lent ['{lent}'] {rest} {rest}" in lines
    assert lines.count(f"beside {lent} 2") == 2 and f"srun {lent}" in lines
    assert [line for line in lines if line.startswith("code")] == ["code 0", "code 9"]
    assert "back ['n1', 'n2', 'n3']" in lines and "lost 0" in lines
    assert "killed ['n1', 'n2', 'n3']" in lines and "steps {}" in lines
    assert slurm.processes(f"SLURM_JOB_ID={job}") == []


LIVES_ON = (
    SETTINGS
    + """
if __name__ == "__main__":
    cluster = dask_hpc.AllocationCluster(keep=1, **OPTIONS)
    client = Client(cluster)
    client.wait_for_workers(1, timeout=60)
    program = cluster.beside(["sh", "-c", "echo begun; exec sleep 300"], stdout=subprocess.PIPE, text=True)
    assert program.process.stdout.readline() == "begun\\n"
    assert len(steps()) == 1
    print("ready", flush=True)
    time.sleep(300)
"""
)


def test_a_script_that_is_killed_before_its_allocation_ends_leaves_no_step(slurm, tmp_path):
    """As in a shell that ``salloc`` has started. Other ends are tried without Slurm."""
    told = subprocess.run(
        ["salloc", "--no-shell", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=3", "--mem=900"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    job = re.search(r"allocation (\d+)", told.stderr)[1]
    nodes = slurm.ask(job, "NodeList")
    (tmp_path / "program.py").write_text(LIVES_ON)
    given = {"ID": job, "NODELIST": nodes, "NUM_NODES": "2", "CPUS_PER_NODE": "3(x2)"}
    environment = {**os.environ, **{f"SLURM_JOB_{name}": value for name, value in given.items()}}
    environment |= {"SLURM_MEM_PER_NODE": "900", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(tmp_path / "program.py")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            assert len(slurm.run("squeue", "-h", "-s", "-j", job).splitlines()) >= 2
            process.kill()
            process.wait(60)
        finally:
            process.kill()
    slurm.wait_until(lambda: not slurm.run("squeue", "-h", "-s", "-j", job, "-o", "%i").strip(), "no step")
    slurm.wait_until(lambda: not slurm.processes(f"SLURM_JOB_ID={job}"), "no process")
    assert slurm.jobs()[job] == "RUNNING", "the allocation is there"


CHANGES = (
    SETTINGS
    + """
if __name__ == "__main__":
    with dask_hpc.AllocationCluster(1, keep=0, **OPTIONS) as cluster, Client(cluster) as client:
        client.wait_for_workers(1, timeout=60)
        cluster.lend(0)
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        print("ready", hosts(client), flush=True)
        until(lambda: dict((n, u) for n, u, _ in cluster.nodes())["n2"] == "not used", "a node that is lost")
        print("lost", cluster.nodes()[1], flush=True)
        until(lambda: len(cluster.workers) == 2, "a unit in its place")
        client.wait_for_workers(2, timeout=60)
        print("again", hosts(client), flush=True)
        with dask_hpc.malleable(cluster):
            told = cluster.expand(1, walltime="5 min", options=["--partition=debug"])
            print("told", told, flush=True)
            client.wait_for_workers(3, timeout=90)
            print("more", hosts(client), len(cluster.worker_spec), flush=True)
            results = client.map(produce, range(30))
            client.gather(results)
            cluster.scale(1)
            until(lambda: client.run_on_scheduler(count) == 1, "one worker")  # no worker is asked: one leaves
            assert client.gather(results) == [produce(number) for number in range(30)]
            print("fewer", hosts(client), flush=True)
"""
)


def test_a_node_is_lost_then_a_satellite_joins_and_goes(slurm, submit):
    job, said = submit(CHANGES, "--no-kill")
    slurm.wait_until(lambda: (out := said_by(said)) and "ready" in out, "two workers", 120)
    slurm.crash("n2")
    slurm.set_down("n2")
    slurm.wait_until(lambda: job not in slurm.jobs(), "its end", 120)
    text = said()
    assert "hpc_rank" not in text, "who is not managed is not asked whom it can miss"
    assert "ready ['n1', 'n2']" in text and "again ['n1', 'n3']" in text, text
    assert "lost ('n2', 'not used', 'Slurm says it is down" in text
    told = r"told satellite unit-\d: job \d+ of 1 node; in place: this site does not permit it"
    assert re.search(told, text), text
    assert "more ['n1', 'n3', 'n4'] 3" in text and re.search(r"fewer \['n\d'\]", text), text
    slurm.wait_until_empty()


def said_by(said):
    try:
        return said()
    except FileNotFoundError:
        return ""


def test_the_doctor_asks_all_nodes_of_a_job(slurm, submit, tmp_path):
    program = (
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'dask_hpc', 'doctor'], check=True)\n"
    )
    job, said = submit(program, nodes=2)
    slurm.wait_until(lambda: job not in slurm.jobs(), "its end", 120)
    text = said()
    print(text)
    assert slurm.ask(job, "JobState") == "COMPLETED", text
    for words in (
        "ok       batch system: Slurm: slurm",
        f"ok       batch system: this runs inside of job {job}",
        "ok       slurm: linuxproc: all processes of a job are told its end",
        "ok       slurm: KillWait: 30 s between SIGTERM and SIGKILL",
        "lacking  slurm: jobs cannot grow in place: this site does not permit it",
        "ok       slurm: jobs may be preempted (requeue)",
        "lacking  slurm: no accounting",
        "all 2 nodes see it",
        "2 nodes agree within",
        "2 nodes can connect to",
    ):
        assert words in text, words
