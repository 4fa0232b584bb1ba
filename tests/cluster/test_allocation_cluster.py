"""A cluster inside of an allocation, on this machine, which it takes for several nodes."""

import os
import signal
import subprocess
import sys
from math import inf
from time import monotonic, sleep

import psutil
import pytest
from distributed import Client

import dask_hpc
from dask_hpc import AllocationCluster, InputError
from dask_hpc.cluster.client.node_unit import WorkerWords
from dask_hpc.cluster.client.steps import StepProcess, lost_by_state, steps_here
from dask_hpc.cluster.units import UnitLayout
from dask_hpc.planning.allocation import AllocatedNode

SMALL = {
    "nanny": False,
    "scheduler_options": {"dashboard_address": ":0"},
    "worker_extra_args": ["--no-dashboard"],
}


def until(holds, what, timeout=60):
    deadline = monotonic() + timeout
    while not (found := holds()):
        assert monotonic() < deadline, what
        sleep(0.05)
    return found


def producing():
    """A task. Made here, so that it travels as code: the workers cannot import this file."""
    return lambda number: bytes([number]) * 1000


def users(cluster):
    return {name: use for name, use, _ in cluster.nodes()}


def losses(client):
    """Results that were lost, or are not there any more, by what Dask says of workers that left."""
    events = [event for _, event in client.get_events("all")]
    return sum(len(event.get("lost-computed-tasks", ())) for event in events)


def test_a_node_changes_hands_and_back_and_no_result_is_lost():
    with AllocationCluster(nodes=2, **SMALL) as cluster, Client(cluster) as client:
        assert users(cluster) == {"node-0": "Dask", "node-1": "Dask"} and cluster.kept == []
        client.wait_for_workers(2, timeout=60)
        with dask_hpc.malleable(cluster):
            results = client.map(producing(), range(40))
            client.gather(results)
            pids = list(client.run(os.getpid).values())
            (lent,) = cluster.lend(1)
            assert cluster.kept == [lent] and users(cluster)[lent] == "beside"
            assert len(client.run(os.getpid)) == 1 and losses(client) == 0
            assert client.gather(results) == list(map(producing(), range(40)))
            with cluster.beside(
                ["sh", "-c", 'echo "$DASK_HPC_NODES $DASK_SCHEDULER_ADDRESS"; read end; exit 7'],
                stdout=subprocess.PIPE,
                text=True,
            ) as program:
                with program.process.stdout as stdout:
                    said = stdout.read()
                assert said == f"{lent} {cluster.scheduler_address}\n"
            assert program.process.returncode == 7
            assert cluster.take_back(1) == [lent] and cluster.kept == []
            client.wait_for_workers(2, timeout=60)
            pids += client.run(os.getpid).values()
    assert not any(map(psutil.pid_exists, pids))


def test_who_is_asked_for_beyond_the_places_waits():
    with AllocationCluster(units=0, nodes=2, keep=1, **SMALL) as cluster:
        assert UnitLayout.of(cluster).cores == cluster.allocation.nodes[0].cores
        cluster.scale(3)
        units = until(lambda: len(cluster.workers) == 3 and cluster.workers, "three units")
        states = [unit.state_now() for unit in units.values()]
        until(lambda: sum(unit.state_now().state == "running" for unit in units.values()) == 1, "a start")
        states = [unit.state_now() for unit in units.values() if unit.state_now().state == "queued"]
        assert [state.why for state in states] == ["every node has its units"] * 2
        program = cluster.beside(["sleep", "300"])
        with pytest.raises(InputError, match="a program still runs on node-1; allowed: when it is over"):
            cluster.take_back(1)
        with pytest.raises(InputError, match="a program runs on node-1 already"):
            cluster.beside(["sleep", "300"])
    assert program.is_over, "the program ends with the cluster"


@pytest.mark.slow
@pytest.mark.parametrize("adapted", [False, True])
def test_a_unit_that_dies_is_replaced(adapted):
    with AllocationCluster(nodes=2, **SMALL) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        with dask_hpc.malleable(cluster):
            if adapted:
                cluster.adapt(minimum=2, maximum=2, interval="200ms")

            def there():
                found = client.run(os.getpid, on_error="ignore").values()
                return {pid for pid in found if isinstance(pid, int)}

            before = there()
            os.kill(min(before), signal.SIGKILL)
            until(lambda: len(now := there()) == 2 and now != before, "two again")
            assert set(users(cluster).values()) == {"Dask"}
            until(lambda: len(cluster.workers) == len(cluster.worker_spec) == 2, "no unit too many")


@pytest.mark.slow
def test_a_program_that_lives_on_wishes_for_nodes(tmp_path):
    """It wants two, then one: by its files alone."""
    program = """if 1:
        import os, sys, time
        def nodes(count):
            while len(found := open(os.environ["DASK_HPC_NODES_FILE"]).read().split()) != count:
                time.sleep(0.05)
            return found
        first = nodes(1)
        for wish in (2, 1):
            open(os.environ["DASK_HPC_WISH"], "w").write(str(wish))
            assert nodes(wish)[:1] == first
    """
    with AllocationCluster(nodes=3, keep=1, **SMALL) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        with dask_hpc.malleable(cluster), cluster.beside([sys.executable, "-c", program], wishes=tmp_path):
            pass
        until(lambda: len(cluster.kept) == 1, "the node that was given back")
        client.wait_for_workers(2, timeout=60)


SCRIPT = """
import os, sys
from time import sleep
import dask_hpc
from distributed import Client

if __name__ == "__main__":
    options = {"dashboard_address": ":0"}
    cluster = dask_hpc.AllocationCluster(nodes=2, keep=1, scheduler_options=options)
    client = Client(cluster)  # which is not closed either
    client.wait_for_workers(1)
    program = cluster.beside(["sleep", "300"])
    found = [*client.run(os.getpid).values(), *client.run(os.getpid, nanny=True).values()]
    print(*found, program.process.pid, flush=True)
    if sys.argv[1] == "raise":
        raise SystemExit(5)
    sleep(300)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_the_script_ends_nothing_is_left(tmp_path, number):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), "raise" if number is None else "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        processes = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        assert len(processes) == 3
        if number is not None:
            process.send_signal(number)
        try:
            _, complaints = process.communicate(timeout=60)
        finally:
            process.kill()
    assert "Error" not in complaints, complaints
    _, alive = psutil.wait_procs(processes, 60)
    assert alive == []


# without a cluster


@pytest.mark.parametrize(
    "given, message",
    [
        ({"keep": 2}, "keep: found 2; allowed: 0 to 1 here, of 2 nodes"),
        ({"keep": -1}, "keep: found -1"),
        ({"parts": 0}, "parts: found 0"),
        ({"processes": 2, "nanny": False}, "nanny: found False"),
        ({"units": -1}, "units: found -1"),
        ({"nodes": 0}, "nodes: found 0"),
    ],
)
def test_bad_input_is_said_before_anything_starts(given, message):
    with pytest.raises(InputError, match=message):
        AllocationCluster(**{"nodes": 2} | given)


def test_other_batch_systems_are_told_to_be_unknown(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("PBS_NODEFILE", "/some/file")
    with pytest.raises(InputError, match="a job of PBS, in which we cannot start anything on other nodes"):
        steps_here()
    assert len(steps_here(2).allocation.nodes) == 2


def test_a_job_of_slurm_whose_slurm_does_not_answer(monkeypatch):
    """Its variables say enough."""
    for name, value in {"ID": "17", "NODELIST": "n[1-2]", "CPUS_PER_NODE": "3(x2)", "END_TIME": "99"}.items():
        monkeypatch.setenv(f"SLURM_JOB_{name}", value)
    monkeypatch.setenv("PATH", "/nowhere")
    steps = steps_here()
    assert [node.name for node in steps.allocation.nodes] == ["n1", "n2"] and steps.allocation.end == 99
    assert steps.words(steps.allocation.nodes[1], ["true"]) == [
        "srun", "--jobid=17", "--nodes=1", "--ntasks=1", "--nodelist=n2", "--cpus-per-task=3", "--mem=0",
        "--overlap", "--mpi=none", "--job-name=dask-hpc", "true",
    ]  # fmt: skip
    assert "SLURM_JOB_ID" not in steps.environment() and "PATH" in steps.environment()


@pytest.mark.parametrize("state", ["down", "down*", "idle*", "fail", "failing", "unknown", "allocated*"])
def test_a_node_that_is_lost(state):
    assert lost_by_state(f"{state}\n") == f"Slurm says it is {state}"


@pytest.mark.parametrize("state", ["idle", "allocated", "mixed", "draining", "drained", "completing", ""])
def test_a_node_that_is_not(state):
    assert lost_by_state(f"{state}\n") == ""


def test_what_a_unit_is_made_of():
    words = WorkerWords(
        processes=2, parts=2, interface="ib0", local_directory="/local", more=("--lifetime", "1h")
    )
    node = AllocatedNode("n1", 16, 2.0**34)
    assert words.threads(node) == 4 and words.memory(node) == int(0.95 * 2**32)
    command = words.tied("tcp://a:1", "unit-3", node)
    text = " ".join(command[1:])
    assert text.startswith(
        "-m distributed.cli.dask_worker tcp://a:1 --nthreads 4 --nworkers 2 --memory-limit 4080"
    )
    assert (
        "--nanny --interface ib0 --local-directory /local --lifetime 1h --name unit-3 --preload-nanny" in text
    )
    assert words.threads(AllocatedNode("n1", 1)) == 1 and words.memory(AllocatedNode("n1", 1, inf)) is None
    assert "--memory-limit auto" in " ".join(words.command("x", AllocatedNode("n1", 1, inf)))
    assert "--preload dask_hpc" in " ".join(WorkerWords(nanny=False).tied("x", "u", node))


async def _step(tmp_path, text):
    return await StepProcess.start(["sh", "-c", text], {"PATH": os.environ["PATH"]}, tmp_path / "log")


def test_a_step_ends_by_its_input_or_is_made_to(tmp_path):
    import asyncio

    async def steps():
        step = await _step(tmp_path, "cat; exit 0")
        await step.end(20.0)
        assert await step.wait() == "its process ended with code 0"
        step = await _step(tmp_path, "echo; echo why; echo; exec sleep 300")
        await step.end(0.1)
        assert await step.wait() == "its process was killed by signal 15: why"
        step = await _step(tmp_path, "exit 3")
        assert await step.wait() == "its process ended with code 3: why"

    asyncio.run(steps())
