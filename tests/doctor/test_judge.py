"""What facts about a site mean."""

from dataclasses import replace

import pytest

from dask_hpc.doctor.batch import judge, judge_jobqueue, judge_slurm, judge_systems, read_config
from dask_hpc.doctor.facts import CommandAnswer, DirectoryFacts, Interface, NodeFacts, PowerFacts, SiteFacts
from dask_hpc.doctor.judge import (
    judge_clocks,
    judge_dashboard,
    judge_directories,
    judge_limits,
    judge_network,
    judge_power,
    judge_python,
)


def found(judging, **facts):
    """State, and words of each finding."""
    return [(one.state, f"{one.found} -> {one.advice}") for one in judging(SiteFacts(**facts))]


def the(judging, **facts):
    (one,) = found(judging, **facts)
    return one


NEEDED = {"dask": ">=2026.1.1", "distributed": ">=2026.1.1", "zarr": ">=3"}
HERE = {"dask": "2026.8.0", "distributed": "2026.8.0", "zarr": "3.1"}
FINE = {"python": "3.12.1", "pythons": ("3.11", "3.12"), "requirements": NEEDED, "packages": HERE}


def test_python_and_packages():
    assert [state for state, _ in found(judge_python, **FINE)] == ["ok", "ok"]
    strange = found(judge_python, **FINE | {"python": "3.14.0"})[0]
    assert strange == ("unknown", "Python 3.14.0 -> tested are 3.11, 3.12")
    old = found(judge_python, **FINE | {"packages": HERE | {"zarr": "2.18"}})
    assert old[1:] == [("lacking", 'zarr 2.18 -> pip install "zarr>=3"')]
    none = found(judge_python, **FINE | {"packages": HERE | {"zarr": None}})
    assert none[1:] == [("lacking", 'no zarr -> pip install "zarr>=3"')]
    apart = found(judge_python, **FINE | {"packages": HERE | {"distributed": "2026.7.0"}})
    assert apart[1][0] == "lacking" and "same version" in apart[1][1]
    other = found(
        judge_python, **FINE, nodes=(NodeFacts("n1", python="3.12.1"), NodeFacts("n2", python="3.9.2"))
    )
    assert next(words for state, words in other if state == "lacking").startswith("n2 has Python 3.9.2 -> ")
    wrong = found(judge_python, **FINE, config_problem="hpc.drain: found -1")
    assert wrong[-1] == ("lacking", "hpc.drain: found -1 -> mend it: nothing is managed with it")
    assert found(judge_python, **FINE | {"packages": HERE | {"zarr": "strange"}})[1][0] == "ok"


@pytest.mark.parametrize(
    "directory, state, words",
    [
        ({"kind": "lustre"}, "ok", "of a kind that nodes share"),
        ({"kind": "nfs4"}, "ok", "of a kind that nodes share"),
        ({"kind": "ext4"}, "unknown", "this machine's own"),
        ({"kind": "tmpfs", "name": "temporary"}, "ok", "this machine's own"),
        ({"kind": "fuse.strange"}, "unknown", "whether nodes share it is not known"),
        ({"kind": "ext4", "seen": {"n1": True, "n2": True}}, "ok", "all 2 nodes see it"),
        ({"kind": "nfs", "seen": {"n1": True, "n2": False}}, "lacking", "not seen by n2"),
        ({"kind": "lustre", "lock": "Function not implemented"}, "lacking", "no locks: Function not"),
        ({"kind": "nfs", "rename": "I/O error"}, "lacking", "cannot take another's place: I/O error"),
        ({"kind": "nfs", "problem": "no answer"}, "lacking", "no answer -> choose another one"),
    ],
)
def test_a_directory(directory, state, words):
    one = DirectoryFacts(**{"name": "home", "path": "/home/me"} | directory)
    told = the(judge_directories, directories=(one,), store="/shared", job="17")
    assert told[0] == state and words in told[1] and "/home/me" in told[1]


def test_no_store():
    assert the(judge_directories)[0] == "lacking"


def test_a_machine_on_its_own_has_no_other_nodes():
    home = DirectoryFacts("home", "/home/me", "ext4")
    silent = {"Slurm": CommandAnswer(problem="fatal: no configuration")}
    for systems in ({}, silent):
        facts = {"systems": systems, "directories": (home,), "store": "/shared"}
        assert the(judge_directories, **facts)[0] == "ok"
        assert found(judge_clocks, **facts) == found(judge_jobqueue, **facts) == []
        rows = found(judge_network, **facts, address="10.0.0.5", interfaces=(LO, ETH))
        assert rows[0] == ("ok", "10.0.0.5 is ours, and answers here -> ")


def clocks(*ahead):
    return tuple(NodeFacts(f"n{i}", seconds, 0.1) for i, seconds in enumerate(ahead, 1))


def test_clocks():
    def the_clocks(**facts):
        return the(judge_clocks, job="17", **facts)

    assert the_clocks()[0] == "unknown"
    assert "srun: no" in the_clocks(nodes_problem="srun: no")[1]
    assert the_clocks(nodes=clocks(0.2, -0.3)) == ("ok", "2 nodes agree within 0.3 s -> ")
    assert the_clocks(nodes=clocks(0.2, -1.05))[0] == "ok", "it is not known so exactly"
    state, words = the_clocks(nodes=clocks(0.2, -120.0))
    assert state == "lacking" and words.startswith("n2 is 2.0 min behind (+- 0.1 s)")
    assert "n1 is 1.2 s ahead" in the_clocks(nodes=clocks(1.2))[1]
    assert the_clocks(nodes=(NodeFacts("n1", problem="refused"),))[0] == "unknown"


ETH, IB = Interface("eth0", "10.0.0.5", speed=1000), Interface("ib0", "10.1.0.5", speed=100_000)
LO, DOWN = Interface("lo", "127.0.0.1"), Interface("eth1", "10.2.0.5", is_up=False)


def test_the_network():
    rows = found(judge_network, **SLURM, address="10.0.0.5", interfaces=(LO, ETH, IB, DOWN))
    assert [state for state, _ in rows] == ["unknown", "ok"]
    assert rows[1][1].endswith('pass interface="ib0": it seems the fastest') and "eth1" not in rows[1][1]
    rows = found(judge_network, address="10.1.0.5", interfaces=(LO, ETH, IB), nodes=clocks(0.0, 0.0))
    assert rows[0] == ("ok", "2 nodes can connect to 10.1.0.5 -> ")
    assert rows[1][1].endswith("-> Dask takes the first")
    silent = Interface("ib1", "10.3.0.5")  # nobody says how fast it is
    rows = found(
        judge_network, address="10.0.0.5", interfaces=(Interface("enp3s0", "10.9.0.5", speed=1), ETH, silent)
    )
    assert 'interface="ib1"' in rows[1][1] and rows[1][1].index("eth0") < rows[1][1].index("enp3s0")
    deaf = (*clocks(0.0), NodeFacts("n2", problem="Connection refused"))
    rows = found(judge_network, address="10.0.0.5", interfaces=(ETH,), nodes=deaf)
    assert rows[0][0] == "lacking" and "n2: Connection refused" in rows[0][1]
    rows = found(judge_network, address_problem="no route", interfaces=(LO,))
    assert [state for state, _ in rows] == ["lacking", "lacking"]


def test_power():
    assert the(judge_power)[0] == "unknown"
    rows = found(judge_power, power=PowerFacts(problem="no RAPL", fix="modprobe", cap="not root"))
    assert rows == [("lacking", "power can only be modelled: no RAPL -> modprobe")]
    assert the(judge_power, power=PowerFacts("measured", ("ipmi",)))[0] == "ok"
    rows = found(judge_power, power=PowerFacts("measured", ("ipmi",), cap="not root"))
    assert rows[1] == ("lacking", "packages cannot be capped: not root -> levers are nodes alone")


def test_limits():
    def limits(**facts):
        return found(judge_limits, **facts)[1:]

    rows = limits(files=(1024, 524_288), processes=(-1, -1))
    assert rows[0][0] == "lacking" and "ulimit -n 524288" in rows[0][1]
    assert rows[1] == ("ok", "processes: any number -> ")
    assert limits(files=(1024, -1))[0][1].endswith("-> ulimit -n 4096 in job-script-prologue")
    rows = limits(files=(1024, 2048))
    assert "administrators" in rows[0][1] and rows[1][0] == "unknown"
    assert limits(files=(4096, 4096))[0][0] == "ok"


def test_what_may_be_used_of_a_machine():
    state, words = found(judge_limits, cores=(4, 64), memory=(2.0**33, 2.0**33))[0]
    assert state == "ok"
    assert words.startswith("4 of 64 cores, 8") and words.endswith("-> Dask's workers here keep within that")
    assert "keep within" in found(judge_limits, cores=(4, 4), memory=(2.0**33, 2.0**38))[0][1]
    assert found(judge_limits, cores=(4, 4), memory=(2.0**33, 2.0**33))[0][1].endswith("-> ")


def test_the_dashboard():
    assert the(judge_dashboard, packages={})[0] == "lacking"
    assert "ssh -L 8787:login1:8787" in the(judge_dashboard, packages={"bokeh": "3"}, host="login1")[1]
    both = {"bokeh": "3", "jupyter-server-proxy": "4"}
    assert "distributed.dashboard.link" in the(judge_dashboard, packages=both)[1]


# batch systems

CONFIG = """Configuration data as of 2026-11-26T10:00:00
AccountingStorageType   = accounting_storage/slurmdbd
KillWait                = 30 sec
PowerPlugin             =
PreemptMode             = OFF
PreemptType             = preempt/none
ProctrackType           = proctrack/cgroup
SchedulerParameters     = bf_interval=2,permit_job_expansion
SlurmctldParameters     = (null)
"""
SLURM = {
    "systems": {"Slurm": CommandAnswer("slurm 22.05.8\n")},
    "slurm_config": CommandAnswer(CONFIG),
    "partitions": CommandAnswer("debug*|30:00|4|up\nlong|7-00:00:00|100|up\nold|infinite|1|down\n"),
    "own_limits": CommandAnswer("hpc||normal|10|50|1-00:00:00\n"),
}


def test_a_site_with_slurm():
    assert the(judge_systems, **SLURM) == ("ok", "Slurm: slurm 22.05.8 -> ")
    rows = found(judge_slurm, **SLURM)
    assert {state for state, _ in rows} == {"ok"}
    text = "\n".join(words for _, words in rows)
    for words in (
        "python='exec python'",
        "KillWait: 30 s",
        "jobs may grow in place",
        "no job is preempted",
        "accounting by slurmdbd",
        "debug* up to 30.0 min, 4 nodes; long up to 7.0 d, 100 nodes ->",
        "your account hpc (normal): jobs 10, submitted 50, walltime 1-00:00:00 -> keep maximum_jobs below 50",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    "before, after, state, words",
    [
        ("30 sec", "5 sec", "lacking", "hpc.farewell is 25 s"),
        ("30 sec", "?", "unknown", "KillWait: nobody says"),
        (",permit_job_expansion", "", "lacking", "submits satellites instead"),
        ("accounting_storage/slurmdbd", "accounting_storage/none", "lacking", "sacct knows no past jobs"),
        ("proctrack/cgroup", "proctrack/linuxproc", "ok", "linuxproc: all processes of a job are told"),
        ("proctrack/cgroup", "proctrack/pgid", "ok", "outlives the job"),
        (
            "OFF\nPreemptType             = preempt/none",
            "REQUEUE\nPreemptType = preempt/qos",
            "ok",
            "GraceTime",
        ),
        (
            "OFF\nPreemptType             = preempt/none",
            "SUSPEND,GANG\nPreemptType = preempt/qos",
            "lacking",
            "Dask takes it for dead",
        ),
    ],
)
def test_a_configuration_of_slurm(before, after, state, words):
    assert before in CONFIG
    rows = found(judge_slurm, **SLURM | {"slurm_config": CommandAnswer(CONFIG.replace(before, after))})
    assert [one for one, told in rows if words in told] == [state]


def test_a_signal_before_preemption():
    text = CONFIG.replace("OFF", "REQUEUE").replace("preempt/none", "preempt/qos")
    text = text.replace("(null)", "preempt_send_user_signal")
    rows = found(judge_slurm, **SLURM | {"slurm_config": CommandAnswer(text)})
    assert ("ok", "jobs may be preempted (requeue) -> ") in rows


def test_slurm_that_does_not_answer_is_asked_for_nothing_more():
    silent = CommandAnswer(problem="sinfo did not answer in 5 s")
    assert the(judge_systems, systems={"Slurm": silent})[0] == "unknown"
    assert found(judge_slurm, **SLURM | {"systems": {"Slurm": silent}}) == []
    rows = found(
        judge_slurm, systems=SLURM["systems"], slurm_config=silent, partitions=silent, own_limits=silent
    )
    assert [state for state, _ in rows] == ["unknown"] * 3
    rows = found(
        judge_slurm, **SLURM | {"partitions": CommandAnswer("x|1:00|1|down"), "own_limits": CommandAnswer("")}
    )
    assert [state for state, _ in rows[-2:]] == ["lacking", "unknown"]


def test_no_batch_system_and_inside_of_a_job():
    assert the(judge_systems)[0] == "lacking"
    assert "AllocationCluster" in found(judge_systems, **SLURM, job="17")[1][1]
    assert found(judge_slurm) == found(judge_jobqueue) == []


def test_dask_jobqueue():
    assert the(judge_jobqueue, **SLURM)[0] == "lacking"
    there = {**SLURM, "packages": {"dask-jobqueue": "0.9"}, "config_directory": "/home/me/.config/dask"}
    state, words = the(judge_jobqueue, **there, jobqueue={"slurm": {"cores": 4, "memory": None}})
    assert state == "lacking" and words.startswith("no memory under jobqueue.slurm")
    assert "/home/me/.config/dask/jobqueue.yaml" in words
    job = {"slurm": {"cores": 4, "memory": "8 GB", "walltime": "1:00:00"}}
    assert the(judge_jobqueue, **there, jobqueue=job) == (
        "ok", "SLURMCluster: cores 4, memory 8 GB, walltime 1:00:00 -> ",
    )  # fmt: skip
    rows = found(judge_jobqueue, **there, jobqueue=job, interfaces=(LO, ETH, IB))
    assert rows[1][0] == "unknown" and "no interface" in rows[1][1]


def test_all_of_it_in_one_list():
    areas = [one.area for one in judge(replace(SiteFacts(), **FINE, **SLURM))]
    assert areas[0] == "python" and {"slurm", "network", "clocks", "limits", "power"} <= set(areas)
    assert judge(SiteFacts()), "who knows nothing says so"


def test_the_configuration_is_read():
    config = read_config(CONFIG)
    assert (config["killwait"], config["powerplugin"], config["preemptmode"]) == ("30 sec", "", "OFF")
