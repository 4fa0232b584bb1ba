"""``dask-hpc submit`` and its batch jobs, with commands of Slurm that only write down what they are asked.
What really follows is in ``tests/slurm/test_chain_on_slurm.py``."""

import getpass
import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import dask
import pytest
from click.testing import CliRunner
from recorded_answers import squeue

from dask_hpc.batch.job_state import JobState
from dask_hpc.cli import cli
from dask_hpc.history.runs import PastRun, RunHistory
from dask_hpc.model.errors import InputError
from dask_hpc.reservations.chain import ChainCancelled, JobAsked
from dask_hpc.reservations.slurm import QueuedJob, check_options
from dask_hpc.reservations.state import ChainFile

USER = getpass.getuser()
LAW = ("--law", "empirical 10min 20min 40min", "--cost", "cloud", "--checkpoint", "1min", "--restart", "30s")
PROGRAMS = {
    "sbatch": """
[ -e $at/refuse ] && { cat $at/refuse >&2; exit 1; }
id=$((100 + $(ls $at | grep -c script)))
cat > $at/script-$id
echo $id
""",
    "squeue": "cat $at/queue 2>/dev/null; exit 0",
    "scontrol": """
[ "$*" = "-a -o show partition" ] || exit 0
echo 'PartitionName=debug Default=YES MaxTime=02:00:00 State=UP Nodes=n1'
echo 'PartitionName=long Default=NO MaxTime=5-00:00:00 State=UP Nodes=n1'
""",
    "scancel": "exit 0",
    "sacct": "exit 1",
}


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Where those commands write ``calls``, and take what they answer."""
    at = tmp_path / "slurm"
    at.mkdir()
    for name, text in PROGRAMS.items():
        program = at / name
        program.write_text(f'#!/bin/sh\nat={at}\necho "{name} $*" >> $at/calls\n{text}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{at}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("DASK_HPC__HISTORY", str(tmp_path / "runs.json"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("import sys\nsys.exit(int(sys.argv[1]))\n")
    with dask.config.set({"hpc.history": str(tmp_path / "runs.json")}):
        yield at


def calls(at, name):
    lines = (at / "calls").read_text().splitlines() if (at / "calls").exists() else []
    return [line.split()[1:] for line in lines if line.split()[0] == name]


def queued(at, job, state, left="11:00", reason="None", comment="x"):
    """What squeue says from now on: of one more job."""
    row = (str(job), state, "0:00", left, "N/A", "N/A", "0", reason)
    with (at / "queue").open("a") as file:
        file.write(squeue(row, comment=comment))


def said(*args, code=0):
    result = CliRunner().invoke(cli, ["submit", *args])
    assert result.exit_code == code, result.output + str(result.exception)
    if code:
        assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr if code else result.stdout


def chain(name="fmri"):
    return ChainFile.of_name(name, None).read()


def run_job(at, number=100, **environment):
    """What Slurm does with a job script."""
    return subprocess.run(
        ["sh", str(at / f"script-{number}")],
        env={**os.environ, "DASK_HPC__HISTORY": str(at.parent / "runs.json"), "SLURM_JOB_ID": str(number),
             "DASK_CONFIG": str(at), "SLURM_JOB_END_TIME": "1", **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def submitted(at, *more):
    (at / "hpc.yaml").write_text(f"hpc: {{history: {at.parent / 'runs.json'}}}")
    return said("--name", "fmri", *LAW, *more, "a.py", "--", "0")


def test_a_first_job_is_asked_for(at):
    told = submitted(at, "--partition", "long", "--sbatch", "--cpus-per-task=2", "--sbatch", "-A me")
    assert "fmri: job 100 asks for 11 min" in told and "plan: p33 of the empirical law: 11 min; then" in told
    (words,) = calls(at, "sbatch")
    assert {
        "--parsable",
        "--job-name=fmri",
        "--time=11",
        "--requeue",
        "--partition=long",
        "--cpus-per-task=2",
    } < {*words}
    assert words[-2:] == ["-A", "me"] and "--signal=B:TERM@95" in words
    assert not any("dependency" in word for word in words)
    script = (at / "script-100").read_text().splitlines()
    assert script[0] == "#!/bin/sh" and script[-1].startswith("exec ")
    assert script[-1].endswith(f"--step 1 -- {sys.executable} a.py 0")
    assert (chain().links[0].job, chain().options) == (
        "100", ("--partition=long", "--cpus-per-task=2", "-A", "me"),
    )  # fmt: skip


def test_a_job_that_is_done(at):
    submitted(at)
    done = run_job(at)
    assert done.returncode == 0, done.stderr
    found = chain()
    assert found.state == "done" and [link.fate for link in found.links] in (["done"], ["done", "dropped"])
    if len(found.links) == 2:  # it had the time to ask for the next
        (_, words) = calls(at, "sbatch")
        assert {"--dependency=afternotok:100", "--kill-on-invalid-dep=yes"} < {*words}
        assert ["update", "JobId=100", "Requeue=0"] in calls(at, "scontrol")
        assert calls(at, "scancel") == [["101"]]
    (run,) = RunHistory(at.parent / "runs.json").read()[f"{USER}/fmri"]
    assert run.ended == "done" and run.requested == 660.0 and run.seconds > 0
    assert "done" in said("--status", "fmri")


def test_a_job_that_fails(at):
    said("--name", "fmri", *LAW, "a.py", "--", "3")
    done = run_job(at)
    assert done.returncode == 3
    assert chain().state == "failed" and not (at.parent / "runs.json").exists()
    assert "exit code 3" in said("--status", "fmri")


def test_the_next_job_goes_on_and_lowers_its_limit(at):
    (at.parent / "a.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    submitted(at)
    assert run_job(at).returncode == 143
    found = chain()
    assert [link.fate for link in found.links] == ["cut", "asked"] and found.is_resumable is False
    (at.parent / "a.py").write_text("print('here')\n")
    queued(at, 100, "FAILED")
    assert run_job(at, 101).returncode == 0
    assert chain().state == "done" and len(chain().links) >= 2


def test_a_cancelled_job_ends_the_chain(at):
    (at.parent / "a.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    submitted(at)
    run_job(at)
    queued(at, 100, "CANCELLED")
    done = run_job(at, 101)
    assert done.returncode == 0 and "nothing is to be done here" in done.stderr
    assert chain().state == "cancelled"


def test_slurm_does_not_answer_for_a_while(at):
    (at.parent / "a.py").write_text(
        f"import os, signal, time\nwhile not os.path.exists({str(at / 'seen')!r}): time.sleep(0.05)\n"
        f"os.remove({str(at / 'refuse')!r})\nos.kill(os.getpid(), signal.SIGTERM)\n"
    )
    submitted(at)
    (at / "refuse").write_text("sbatch: error: Unable to contact slurm controller (connect failure)\n")
    sbatch = at / "sbatch"
    sbatch.write_text(sbatch.read_text().replace("exit 1", "touch $at/seen; exit 1"))
    done = run_job(at)
    assert done.returncode == 143 and "Unable to contact slurm controller" in done.stderr
    assert [link.job for link in chain().links] == ["100", "101"]


def test_an_answer_that_got_lost(at):
    (at.parent / "a.py").write_text(
        f"import os, time\nwhile not os.path.exists({str(at / 'seen')!r}): time.sleep(0.05)\n"
        "os.kill(os.getpid(), 15)\n"
    )
    submitted(at)
    (at / "refuse").write_text("sbatch: error: Socket timed out on send/recv operation\n")
    sbatch = at / "sbatch"
    sbatch.write_text(sbatch.read_text().replace("exit 1", "touch $at/seen; exit 1"))
    comment = f"dask-hpc:{chain().id}:2"
    queued(at, 7, "CANCELLED", comment=comment)
    queued(at, 8, "PENDING", reason="Dependency", comment=comment)
    assert run_job(at).returncode == 143
    assert [link.job for link in chain().links] == ["100", "8"]


def test_what_a_job_was_told_of_itself_is_nothing_to_the_next(at):
    (at.parent / "a.py").write_text(
        "import os\nopen('told', 'w').write(' '.join(os.environ))\nos.kill(os.getpid(), 15)\n"
    )
    submitted(at)
    sbatch = at / "sbatch"
    sbatch.write_text(sbatch.read_text().replace("id=", "env > $at/environment\nid="))
    assert run_job(at, SLURM_CONF="/etc/slurm.conf", SLURM_MEM_PER_NODE="7").returncode == 143
    passed_on = (at / "environment").read_text()
    assert "SLURM_CONF=/etc/slurm.conf" in passed_on and "SLURM_MEM" not in passed_on
    assert "DASK_HPC_RESERVATION" not in passed_on
    told = (at.parent / "told").read_text().split()
    assert "DASK_HPC_RESERVATION" in told and "SLURM_JOB_ID" in told and "SLURM_JOB_END_TIME" not in told


def test_status_list_and_cancel(at):
    submitted(at)
    comment = f"dask-hpc:{chain().id}:1"
    queued(at, 100, "PENDING", reason="Priority", comment=comment)
    told = said("--status", "fmri")
    assert "fmri: waiting\n" in told and "pending (Priority)" in told
    found = json.loads(said("--status", "fmri", "--json"))
    assert (found["state"], found["steps"][0]["slurm"], found["steps"][0]["asked"]) == (
        "waiting",
        "PENDING",
        660,
    )
    (at / "queue").unlink()
    queued(at, 100, "RUNNING", "10:00")
    assert "running, 10.0 min left" in said("--status", "fmri")
    assert json.loads(said("--list", "--json"))[0]["state"] == "running"
    (at / "queue").unlink()
    queued(at, 100, "TIMEOUT", "0:00", "TimeLimit")
    assert "its jobs are gone" in said("--status", "fmri")
    assert said("--list").splitlines()[1].split()[:2] == ["fmri", "gone"]
    (at / "queue").unlink()
    queued(at, 100, "PENDING", comment=comment)
    queued(at, 102, "PENDING", comment=f"{comment}0")
    assert said("--cancel", "fmri") == "fmri: 2 jobs cancelled\n"
    assert calls(at, "scancel") == [["100", "102"]] and chain().state == "cancelled"
    (at / "queue").unlink()
    assert said("--cancel", "fmri", "--json").split() == ["{", '"name":', '"fmri",', '"jobs":', "0", "}"]


def test_a_chain_goes_on_when_its_jobs_are_gone(at):
    submitted(at)
    comment = f"dask-hpc:{chain().id}:1"
    queued(at, 100, "COMPLETING", comment=comment)
    assert "--resume: found 'job 100'" in said("--resume", "fmri", code=2)
    (at / "queue").unlink()
    assert "its jobs are gone (dask-hpc submit --resume NAME" in said("--status", "fmri")
    told = said("--resume", "fmri", "--sbatch", "--mem=9G", "--max-walltime", "30min")
    assert told.startswith("fmri: job 101 goes on from 0 s of work\nit asks for 11 min (p33 of the empirical")
    assert calls(at, "sbatch")[-1][-1] == "--mem=9G" and chain().longest == 1800.0
    assert run_job(at, 100).returncode == 0 and chain().state == "waiting"  # it comes after all
    assert run_job(at, 101).returncode == 0 and chain().state == "done"
    assert "--resume: found 'fmri'; allowed: a chain that is not done" in said("--resume", "fmri", code=2)


def test_jobs_of_a_chain_are_not_learnt_as_runs_of_the_program(at):
    submitted(at)
    made = ChainFile.of_name("fmri", None).since()
    lines = ["JobName|User|ElapsedRaw|State|Start|AllocNodes"]
    for name, start in (("fmri", made - 900), ("fmri", made + 60), ("other", made + 60)):
        lines.append(f"{name}|{USER}|600|COMPLETED|{datetime.fromtimestamp(start):%Y-%m-%dT%H:%M:%S}|1")
    (at.parent / "sacct.txt").write_text("\n".join(lines))
    result = CliRunner().invoke(cli, ["learn", "--sacct", "sacct.txt"])
    assert "2 runs of 2 names; 1 job left out" in result.stdout, result.output
    assert len(RunHistory(at.parent / "runs.json").read()[f"{USER}/fmri"]) == 1


def test_a_chain_that_failed_goes_on(at):
    said("--name", "fmri", *LAW, "a.py", "--", "3")
    run_job(at)
    assert "fmri: failed (dask-hpc submit --resume NAME goes on from there)" in said("--status", "fmri")
    (at / "refuse").write_text("sbatch: error: invalid partition specified: nowhere\n")
    assert "invalid partition" in said("--resume", "fmri", "--partition", "nowhere", code=2)
    (at / "refuse").unlink()
    found = json.loads(said("--resume", "fmri", "--partition", "long", "--json"))
    assert found["job"] == chain().links[-1].job and found["saved"] == 0
    assert chain().options == ("--partition=nowhere", "--partition=long")
    (at / "squeue").write_text("#!/bin/sh\nexit 1\n")
    assert "Slurm cannot be asked" in said("--resume", "fmri", code=2)


def test_slurm_cannot_be_asked(at, monkeypatch):
    submitted(at)
    (at / "squeue").unlink()
    monkeypatch.setenv("PATH", f"{at}:/nowhere")
    result = CliRunner().invoke(cli, ["submit", "--status", "fmri"])
    assert result.exit_code == 0 and "there is no squeue here" in result.stderr
    assert "fmri: waiting" in result.stdout


def test_a_chain_that_goes_on_is_not_submitted_again(at):
    submitted(at)
    assert "fmri goes on already" in said("--name", "fmri", *LAW, "a.py", code=2)
    said("--cancel", "fmri")
    (ChainFile.of_name("fmri", None).progress).write_text("{}")
    submitted(at)
    assert chain().links[0].job == "101" and not ChainFile.of_name("fmri", None).progress.exists()


def test_slurm_refuses_the_first_job(at):
    (at / "refuse").write_text("sbatch: error: invalid partition specified: nowhere\n")
    assert "invalid partition specified" in said("--name", "fmri", *LAW, "a.py", code=2)
    assert not ChainFile.of_name("fmri", None).path.parent.exists()


def test_the_partition_says_how_long_a_job_may_be(at):
    law = ("--law", "empirical 10h 20h", "--cost", "cloud")
    said("--name", "a", *law, "a.py")
    assert chain("a").plan.max_walltime == 7200.0
    said("--name", "b", *law, "--max-walltime", "4h", "a.py")
    assert chain("b").plan.max_walltime == chain("b").longest == 14400.0
    said("--name", "c", *law, "--checkpoint", "none", "a.py")
    assert "--time=120" in calls(at, "sbatch")[-1] and chain("c").longest == 7200.0
    assert all(link.length <= 14400 for link in chain("b").links)


def test_past_runs_say_how_long_to_ask_for(at):
    history = RunHistory(at.parent / "runs.json")
    runs = [
        PastRun(nodes=1, seconds=600.0 + n, when=n, commit=(7.0, 0.0), restore=(3.0, 0.0)) for n in range(9)
    ]
    history.add({f"{USER}/fmri": runs})
    history.write()
    said("--name", "fmri", "--cost", "cloud", "--method", "all-checkpoint", "a.py")
    assert chain().planned == (7.0, 3.0) and "9 runs" in chain().story[0][1]
    said("--name", "other", "--runs", "fmri", "--checkpoint", "none", "--method", "p99", "a.py")
    assert chain("other").planned is None and chain("other").plan.requests[0].length > 600
    (at.parent / "seconds").write_text("600, 700\n>800\n")
    said("--name", "third", "--runs", "seconds", "--method", "mean-doubling", "a.py")


def test_a_plan_from_a_file(at):
    submitted(at)
    plan = chain().plan.as_plain()
    (at.parent / "plan.json").write_text(json.dumps(plan))
    said("--name", "b", "--plan", "plan.json", "a.py")
    assert chain("b").plan.as_plain() == plan


@pytest.mark.parametrize(
    "args, words",
    [
        ((), "found 0 of them"),
        (("a.py", "--list"), "found 2 of them"),
        (("--status", "fmri"), "--status: found 'fmri'; allowed: none"),
        (("--cancel", "../x"), "--name: found '../x'"),
        (("a.py",), "--name: found none"),
        (("b.py", "--name", "fmri"), "b.py: no such file"),
        (("a.py", "--name", "fmri"), "--name: found 'fmri', of which no run is known"),
        (("a.py", "--name", "f", "--runs", "none"), "--runs: found 'none', of which no run is known"),
        (("a.py", "--name", "f", "--law", "x"), "law"),
        (("a.py", "--name", "f", "--law", "x", "--plan", "y"), "--law and --plan"),
        (("a.py", "--name", "f", "--plan", "none.json"), "none.json: cannot be read"),
        (("a.py", "--name", "f", "--plan", "a.py"), "a.py: found no JSON"),
        (("a.py", "--name", "f", *LAW, "--checkpoint", "soon"), "--checkpoint: found 'soon'"),
        (("a.py", "--name", "f", *LAW, "--restart", "-5s"), "--restart"),
        (("a.py", "--name", "f", *LAW, "--cost", "much"), "cost"),
        (("a.py", "--name", "f", *LAW, "--sbatch", "--time=5"), "--sbatch: found '--time=5'"),
        (("a.py", "--name", "f", *LAW, "--sbatch", "debug"), "--sbatch: found 'debug'"),
        (("a.py", "--name", "f", *LAW, "--max-walltime", "30s"), "walltime"),
    ],
)
def test_bad_input_is_one_line(at, args, words):
    assert words in said(*args, code=2)
    assert calls(at, "sbatch") == [] and not (at.parent / "data" / "dask-hpc" / "chains").exists()


@pytest.mark.parametrize(
    "change, words",
    [
        ({"user": "somebody"}, "belongs to somebody"),
        ({"id": "other"}, "is of chain other"),
        ({"links": 5}, "a chain that dask-hpc submit made"),
        (None, "damaged: not JSON"),
    ],
)
def test_a_state_that_is_not_ours(at, change, words):
    submitted(at)
    path = ChainFile.of_name("fmri", None).path
    plain = json.loads(path.read_text())
    path.write_text("{" if change is None else json.dumps(plain | change))
    before = path.read_text()
    done = run_job(at)
    assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1
    assert path.read_text() == before
    if change is None or "id" not in change:
        assert words in said("--status", "fmri", code=2)
        assert words in CliRunner().invoke(cli, ["submit", "--list"]).stderr


def test_a_step_outside_of_slurm(at):
    submitted(at)
    done = run_job(at, SLURM_JOB_ID="")
    assert done.returncode == 2 and "to be called in a batch job" in done.stderr
    assert chain().links[0].fate == "asked"


def test_events_of_many_processes_are_not_lost(at):
    submitted(at)
    file, found = ChainFile.of_name("fmri", None), chain()
    program = (
        "import sys; from pathlib import Path; from dask_hpc.reservations.state import ChainFile;"
        "from dask_hpc.reservations.chain import JobAsked\n"
        f"for n in range(10): ChainFile(Path({str(file.path)!r})).follow("
        f"JobAsked(now=1.0, number=1, job=sys.argv[1] + str(n)), {found.id!r})"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, str(one)]) for one in (1, 2, 3)]
    assert [one.wait() for one in processes] == [0, 0, 0]
    assert sum("is not needed" in words for _, words in chain().story) == 30
    with pytest.raises(InputError, match="of chain"):
        file.follow(ChainCancelled(now=0.0), "x")
    file.path.unlink()
    with pytest.raises(InputError, match="no such file"):
        file.follow(JobAsked(now=0.0, number=1, job="1"), found.id)
    assert not file.path.exists()


def test_options_of_sbatch():
    assert check_options(["--mem=4G", "-p debug", "-N2", "--exclusive"]) == (
        "--mem=4G", "-p", "debug", "-N2", "--exclusive",
    )  # fmt: skip
    for wrong in ("-t5", "-d afterok:1", "--signal=USR1", "--", "", "-", "x", "--mem='4G", "--a\nb"):
        with pytest.raises(InputError, match="--sbatch"):
            check_options([wrong])


def test_jobs_that_are_alive():
    lost = JobState("gone", "launch failed requeued held")
    found = [("PENDING", lost), ("RUNNING", JobState("running")), ("TIMEOUT", JobState("gone"))]
    assert [QueuedJob("1", *one).is_alive for one in found] == [True, True, False]


def test_the_hidden_command_is_not_listed():
    assert "submit-step" not in CliRunner().invoke(cli, ["--help"]).output
    assert Path(__file__).exists() and CliRunner().invoke(cli, ["submit-step", "--help"]).exit_code == 0
