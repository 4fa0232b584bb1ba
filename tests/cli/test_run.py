"""``dask-hpc run`` as a person runs it: real scripts, real clusters, real signals."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from time import monotonic, sleep

import pytest
from distributed import Client, LocalCluster

import dask_hpc
from dask_hpc.cli.run import most_nodes, nodes_over_time, picture

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_workers")]

WORK = """
import sys, threading, time
import dask, dask_hpc
from distributed import Client

def slow(x):
    time.sleep(0.1)
    return x

if __name__ == "__main__":
    with Client() as client:
        print(sys.argv[1:], sum(client.gather(client.map(slow, range(8)))))
        thread = threading.Thread(target=lambda: print(sum(client.gather(client.map(slow, range(10, 14))))))
        thread.start()
        thread.join()
        with dask_hpc.job("inner", nodes=2):
            print(client.submit(sum, [20, 1]).result())
    with Client():
        print(dask.delayed(slow)(5).compute())
    print(sys.stdin.read())
    sys.exit(3)
"""

WAIT = """
import os, sys, time
from distributed import Client

if __name__ == "__main__":
    with Client() as client:
        future = client.submit(lambda: 1)
        future.result()
        print(os.getpid(), flush=True)
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            print("workers", len(client.nthreads()), client.submit(lambda: 2).result())
            sys.exit(7)
"""

MINE = """
import time
from distributed import Client

if __name__ == "__main__":
    with Client() as client:
        client.gather(client.map(lambda x: time.sleep(0.2), range(20)))
"""


def command(*args):
    return [sys.executable, "-m", "dask_hpc", "run", *map(str, args)]


def ran(*args, **options):
    return subprocess.run(command(*args), capture_output=True, text=True, timeout=120, **options)


def written(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


@contextmanager
def small_cluster(nodes=4):
    with (
        LocalCluster(
            n_workers=nodes, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_a_script_keeps_its_own_and_gets_a_summary(tmp_path):
    script = written(tmp_path, "work.py", WORK)
    done = ran(script, "--policy", "elastic", "--nodes", "1:2", "-x", "--", "--policy", input="told")
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines() == ["['-x', '--policy'] 28", "46", "21", "5", "told"]
    assert "Traceback" not in done.stderr and "INFO" not in done.stderr
    lines = done.stderr.splitlines()
    assert "ended with exit code 3 after" in done.stderr
    assert "results lost  0" in lines
    assert any(re.match(r"nodes used .*on average, 2 at most", line) for line in lines)
    assert any(re.search(r" start .*work\.py-\w+ ", line) for line in lines)
    assert any(re.search(r" start .*inner-\w+\s+2 nodes", line) for line in lines)


def test_a_module_and_a_script_that_needs_no_cluster():
    with small_cluster(1) as client:
        where = ("--cluster", client.scheduler.address)
        done = ran("-m", "json.tool", *where, "--nodes", "1", "--compact", input='{"a": 1}')
    assert (done.returncode, done.stdout) == (0, '{"a":1}\n')
    assert "none of its work came to this cluster" in done.stderr


def test_a_dry_run_decides_and_does_nothing(tmp_path):
    script = written(tmp_path, "work.py", WORK)
    done = ran(script, "--policy", "urgent-first", "--nodes", "1:2", "--dry-run", input="told")
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines() == ["[] 28", "46", "21", "5", "told"]
    assert "a dry run, policy urgent-first" in done.stderr
    assert re.search(r" start .*work\.py-\w+ ", done.stderr)
    with small_cluster() as client, dask_hpc.manage(client):
        refused = ran(script, "--cluster", client.scheduler.address, "--dry-run")
    assert refused.returncode == 2
    assert refused.stderr.strip().splitlines() == [
        "dask-hpc: --dry-run: this cluster is managed already; allowed: a cluster that is not"
    ]


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 7), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_signals_reach_the_script_and_nothing_remains(tmp_path, number, code):
    script = written(tmp_path, "wait.py", WAIT)
    with subprocess.Popen(
        command(script, "--nodes", "2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        own = int(process.stdout.readline() or process.stderr.read())
        if number == signal.SIGINT:  # on a terminal, Ctrl-C comes to all of them: it is for the script
            for pid in _processes_of_session(process.pid):
                if pid not in (process.pid, own):
                    os.kill(pid, number)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert out == ("workers 2 2\n" if number == signal.SIGINT else "")
    assert f"ended with exit code {code}" in errors and "results lost  0" in errors
    deadline = monotonic() + 20  # Python's own resource tracker ends a moment after its parent
    while _processes_of_session(process.pid):
        assert monotonic() < deadline
        sleep(0.1)


def test_two_scripts_compete_on_a_cluster_that_is_there(tmp_path):
    scripts = [written(tmp_path, f"{name}.py", MINE) for name in ("first", "second")]
    with small_cluster() as client:
        address = client.scheduler.address
        with dask_hpc.manage(client, "elastic") as manager:
            runs = [
                subprocess.Popen(
                    command(script, "--cluster", address, "--nodes", "1:4"), stderr=subprocess.PIPE, text=True
                )
                for script in scripts
            ]
            errors = [run.communicate(timeout=120)[1] for run in runs]
            assert [run.returncode for run in runs] == [0, 0], errors
            jobs = {job["name"]: job for job in manager.status()["jobs"]}
            assert set(jobs) == {"first.py", "second.py"}
            assert {(job["kind"], job["min_nodes"], job["max_nodes"]) for job in jobs.values()} == {
                ("malleable", 1, 4)
            }
            rows = [row for row in manager.story() if row["decision"] in ("start", "grow", "shrink")]
            assert {row["job"] for row in rows} == {job["id"] for job in jobs.values()}
            assert manager.status()["state"] == "on"  # it was managed before, and still is
            manager.close()
            close = MINE.replace("client.gather(", "client.sync(client.scheduler.hpc_close) or print(")
            gone = written(tmp_path, "gone.py", close)
            done = ran(gone, "--cluster", address)
            assert done.returncode == 0 and "no summary: this cluster is not managed any more" in done.stderr
        alone = ran(scripts[0], "--cluster", address, "--policy", "fcfs")
        assert alone.returncode == 0, alone.stderr
        assert client.sync(client.scheduler.hpc_status) is None  # it was not, and is not


def test_an_address_where_nobody_answers(tmp_path):
    done = ran(written(tmp_path, "a.py", ""), "--cluster", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("dask-hpc: --cluster: found '127.0.0.1:1'")


def test_slurm_without_what_it_needs_is_one_line(tmp_path):
    script = written(tmp_path, "a.py", "")
    env = {**os.environ, "DASK_CONFIG": str(tmp_path)}
    done = ran(script, "--cluster", "slurm", env={**env, "PATH": str(tmp_path)})
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "found no sbatch" in done.stderr or "dask-jobqueue is not installed" in done.stderr


def _processes_of_session(session):
    """Pids of everything that still runs in a session."""
    listed = subprocess.run(["ps", "-eo", "pid=,sess=,stat="], capture_output=True, text=True, check=True)
    rows = (line.split() for line in listed.stdout.splitlines())
    return [int(pid) for pid, sess, state in rows if int(sess) == session and not state.startswith("Z")]


def test_nodes_over_time():
    rows = [
        {"time": 10.0, "decision": "start", "job": "a", "nodes": ["1", "2"], "reason": ""},
        {"time": 16.0, "decision": "shrink", "job": "a", "nodes": ["1"], "reason": ""},
        {"time": 20.0, "decision": "end", "job": "a", "nodes": ["1"], "reason": ""},
    ]
    used = nodes_over_time(rows, 10.0, 22.0)
    assert used[:30] == pytest.approx([2.0] * 30)
    assert used[30:50] == pytest.approx([1.0] * 20)
    assert used[50:] == pytest.approx([0.0] * 10)
    assert picture(used) == "█" * 30 + "▄" * 20 + " " * 10
    assert picture([0.0, 0.01, 8.0]) == " ▁█"
    assert sum(nodes_over_time(rows, 0.0, 20.0)) * 20 / 60 == pytest.approx(2 * 6 + 4)
    assert most_nodes(rows) == 2 and most_nodes([]) == 0
