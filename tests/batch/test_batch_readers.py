"""Each batch system's answer, in the form its own programs print, and what is made of it."""

import json
from math import inf, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_answers import (
    bjob,
    bjobs,
    month_and_day,
    oarstat,
    qstat_f,
    qstat_json,
    qstat_row,
    qstat_xml,
    squeue,
)

from dask_hpc.batch.clock import read_local_time
from dask_hpc.batch.grid_engine import GridEngine
from dask_hpc.batch.htcondor import HTCondor
from dask_hpc.batch.job_state import Heard, JobState, seconds_in
from dask_hpc.batch.lsf import LSF
from dask_hpc.batch.oar import OAR
from dask_hpc.batch.pbs import PBS
from dask_hpc.batch.slurm import Slurm
from dask_hpc.batch.system import refusal_in
from dask_hpc.batch.systems import SYSTEMS, system_of

NOW = 1_795_000_000.0  # a Wednesday in November


def said(system, out, error="", code=0, now=NOW):
    return system.read(Heard(out, error, code), now)


# --- Slurm


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            ("PENDING", "0:00", "5:00", "N/A", "N/A", "0", "Resources"),
            JobState("queued", "pending: Resources", restarts=0),
        ),
        (
            ("PENDING", "0:00", "5:00", "1795000600", "1795000300", "1", "BeginTime"),
            JobState("queued", "pending: BeginTime", starts_in=300.0, restarts=1),
        ),
        (
            ("CONFIGURING", "0:03", "5:00", "N/A", "1794999997", "0", "None"),
            JobState("queued", "configuring: None", starts_in=0.0, restarts=0),
        ),
        (
            ("RUNNING", "1:05", "3:55", "1795000235", "1794999935", "0", "None"),
            JobState("running", "", 65.0, 235.0, restarts=0),
        ),
        (
            ("RUNNING", "1-02:00:00", "UNLIMITED", "NONE", "1794999935", "2", "None"),
            JobState("running", "", 93600.0, inf, restarts=2),
        ),
        (
            ("RUNNING", "0:05", "INVALID", "NONE", "1794999995", "0", "None"),
            JobState("running", "", 5.0, inf, restarts=0),
        ),
        (  # it is preempted: its end has moved
            ("RUNNING", "1:05", "3:55", "1795000010", "1794999935", "0", "None"),
            JobState("running", "", 65.0, 10.0, True, restarts=0),
        ),
        (
            ("PENDING", "0:00", "5:00", "N/A", "N/A", "0", "JobHeldAdmin"),
            JobState("held", "pending: JobHeldAdmin", restarts=0),
        ),
        (
            ("REQUEUE_HOLD", "0:00", "5:00", "N/A", "N/A", "1", "job requeued in held state"),
            JobState("held", "requeue_hold: job requeued in held state", restarts=1),
        ),
        (
            ("PENDING", "0:00", "5:00", "N/A", "N/A", "1", "launch failed requeued held"),
            JobState("gone", "Slurm says PENDING (launch failed requeued held)", restarts=1),
        ),
        (
            ("CANCELLED", "0:00", "5:00", "1794999000", "N/A", "0", "None"),
            JobState("gone", "Slurm says CANCELLED", restarts=0),
        ),
        (
            ("NODE_FAIL", "0:09", "4:51", "1794999000", "N/A", "0", "NodeDown"),
            JobState("gone", "Slurm says NODE_FAIL (NodeDown)", restarts=0),
        ),
        (
            ("PREEMPTED", "0:09", "4:51", "1794999000", "N/A", "0", "None"),
            JobState("gone", "Slurm says PREEMPTED", restarts=0),
        ),
        # over, or on its way back into the queue: the next answer tells
        (
            ("COMPLETING", "0:09", "4:51", "1794999000", "N/A", "0", "None"),
            JobState("unknown", "Slurm says COMPLETING", restarts=0),
        ),
    ],
)
def test_slurm(row, expected):
    assert said(Slurm(), "\nnonsense\n" + squeue(("7", *row))) == {"7": expected}


def test_slurm_says_nothing_or_is_silent():
    assert said(Slurm(), "") == {}
    assert said(Slurm(), "", "slurm_load_jobs error: Unable to contact slurm controller", 1) is None
    assert said(Slurm(), "hello") is None


# --- PBS


def test_pbs():
    estimate = f"    estimated.start_time = {int(NOW + 300)}"
    out = (
        qstat_f("7", "R", NOW, started=NOW - 600, runs=2)
        + qstat_f("8", "Q", NOW, estimate, comment="Not Running: ncpus", runs=0)
        + qstat_f("9", "H", NOW, hold="u", comment="Job held by somebody", runs=0)
        + qstat_f("10", "H", NOW, hold="s", comment="job held, too many failed attempts to run", runs=21)
        + qstat_f("11", "Q", NOW, comment="Not Running: preempted", runs=1)
        + qstat_f("12", "E", NOW, started=NOW - 600)
        + qstat_f("13", "F", NOW, "    Exit_status = 271", started=NOW - 600)
        + qstat_f("14", "S", NOW, started=NOW - 600, walltime="UNLIMITED")
        + qstat_f("15", "?", NOW)
    )
    assert said(PBS(), out) == {
        "7": JobState("running", "", 600.0, 3000.0, restarts=1),
        "8": JobState("queued", "Not Running: ncpus", starts_in=300.0, restarts=0),
        "9": JobState("held", "Job held by somebody", restarts=0),
        "10": JobState("gone", "PBS holds it: job held, too many failed attempts to run", restarts=21),
        "11": JobState("queued", "Not Running: preempted", restarts=1),
        "12": JobState("unknown", "PBS says that it exits", restarts=0),
        "13": JobState("gone", "PBS says that it finished with exit status 271", restarts=1),
        "14": JobState("running", "suspended", 600.0, inf, restarts=0),
    }


def test_what_pbs_says_of_a_job_twice_is_of_its_environment():
    """A variable may hold lines that look like attributes; its own come first."""
    more = "    comment = nonsense\n\tand more\n    job_state = F"
    out = qstat_f("7", "H", NOW, more, comment="held by ann", hold="u", runs=0)
    assert said(PBS(), out) == {"7": JobState("held", "held by ann", restarts=0)}


def test_pbs_in_json():
    assert said(PBS(), qstat_json(NOW)) == {
        "7": JobState("running", "", 600.0, 3000.0, restarts=1),
        "8": JobState("queued", "Not Running: Insufficient amount of resource: ncpus", starts_in=300.0),
    }


def test_torque_says_what_remains():
    (state,) = said(PBS(), qstat_f("7", "R", NOW, "    Walltime.Remaining = 1234", started=NOW - 60)).values()
    assert (state.running_for, state.left) == (60.0, 1234.0)


def test_pbs_has_forgotten_or_does_not_answer():
    assert said(PBS(), "", "qstat: Unknown Job Id 7.pbs-server", 153) == {}
    over = "qstat: 7.pbs-server Job has finished, use -x or -H to obtain historical job information"
    assert said(PBS(), "", over, 35) == {}
    one = qstat_f("8", "Q", NOW)
    assert list(said(PBS(), one, "qstat: Unknown Job Id 7.pbs-server", 153)) == ["8"]
    assert said(PBS(), '{\n "timestamp":1795000000,\n "pbs_version":"23.06"}') == {}
    assert said(PBS(), "", "qstat: cannot connect to server pbs-server (errno=111)", 111) is None
    assert said(PBS(), '{"timestamp":1, "Jobs":{"7":{"Variable_List":{"SEVEN":007}}}}', "", 1) is None


# --- LSF


def test_lsf():
    out = bjobs(
        bjob("7", "RUN", RUN_TIME="600 second(s)", TIME_LEFT="1:30 L"),
        bjob(
            "8", "PEND", PEND_REASON="Job slot limit reached;", ESTIMATED_START_TIME=month_and_day(NOW + 3600)
        ),
        bjob("9", "PSUSP", PEND_REASON="The job was suspended by the user while pending;"),
        bjob("10", "EXIT", EXIT_REASON="TERM_OWNER: job killed by owner"),
        bjob("11", "DONE", EXIT_REASON="-"),
        bjob("12", "UNKWN", RUN_TIME="600 second(s)"),
        bjob("13", "SSUSP", RUN_TIME="20 second(s)", TIME_LEFT="0:10:30 E"),
        {"JOBID": "14", "ERROR": "Job <14> is not found"},
    )
    found = said(LSF(), out)
    assert found.pop("8").starts_in == pytest.approx(3600, abs=60)
    assert found == {
        "7": JobState("running", "", 600.0, 5400.0),
        "9": JobState("held", "The job was suspended by the user while pending"),
        "10": JobState("gone", "LSF says EXIT (TERM_OWNER: job killed by owner)"),
        "11": JobState("gone", "LSF says DONE"),
        "12": JobState("unknown", "LSF says UNKWN: its host does not answer"),
        "13": JobState("running", "suspended", 20.0, 630.0),
    }


def test_lsf_has_no_job_or_does_not_answer():
    assert said(LSF(), bjobs()) == {}
    assert said(LSF(), "", "No job found", 255) == {}
    assert said(LSF(), "", "Failed in an LSF library call: LIM is down; try later", 255) is None


def test_a_date_without_a_year_is_the_nearest():
    at = NOW + 50 * 86400  # January of the next year
    out = bjobs(bjob("7", "PEND", ESTIMATED_START_TIME=month_and_day(at)))
    assert said(LSF(), out)["7"].starts_in == pytest.approx(50 * 86400, abs=60)


# --- Grid Engine


def test_grid_engine():
    out = qstat_xml(
        qstat_row("7", "r", NOW - 600, 3600)
        + qstat_row("8", "Rr", NOW - 60)
        + qstat_row("9", "dr", NOW - 60)
        + qstat_row("10", "S", NOW - 60, 120),
        qstat_row("11", "qw") + qstat_row("12", "hqw") + qstat_row("13", "Eqw") + qstat_row("14", "Rq"),
    )
    assert said(GridEngine(), out) == {
        "7": JobState("running", "", 600.0, 3000.0, restarts=0),
        "8": JobState("running", "", 60.0, inf, restarts=1),
        "9": JobState("unknown", "Grid Engine is ending it", restarts=0),
        "10": JobState("running", "suspended", 60.0, 60.0, restarts=0),
        "11": JobState("queued", "waits (qw)", restarts=0),
        "12": JobState("held", "held (hqw)", restarts=0),
        "13": JobState("gone", "Grid Engine says Eqw: it could not be started", restarts=0),
        "14": JobState("queued", "waits (Rq)", restarts=1),
    }


def test_grid_engine_has_no_job_or_does_not_answer():
    assert said(GridEngine(), qstat_xml()) == {}
    assert said(GridEngine(), "", "error: commlib error: got select error (Connection refused)", 1) is None
    assert said(GridEngine(), "<other/>") is None
    grows = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bbbb">]><job_info>&b;</job_info>'
    assert said(GridEngine(), grows) is None


# --- HTCondor


def test_htcondor():
    rows = [
        {"ClusterId": 7, "ProcId": 0, "JobStatus": 2, "JobCurrentStartDate": NOW - 600, "NumJobStarts": 2},
        {"ClusterId": 8, "ProcId": 0, "JobStatus": 1, "NumJobStarts": 0},
        {"ClusterId": 9, "ProcId": 0, "JobStatus": 5, "HoldReasonCode": 1, "HoldReason": "via condor_hold"},
        {"ClusterId": 10, "ProcId": 0, "JobStatus": 5, "HoldReasonCode": 34, "HoldReason": "memory exceeded"},
        {"ClusterId": 11, "ProcId": 0, "JobStatus": 1, "NumJobStarts": 1},
        {"ClusterId": 12, "ProcId": 0, "JobStatus": 4},
        {
            "ClusterId": 13, "ProcId": 0, "JobStatus": 2, "JobCurrentStartDate": NOW - 60,
            "AllowedJobDuration": 3600, "AllowedExecuteDuration": 900,
        },
    ]  # fmt: skip
    assert said(HTCondor(), json.dumps(rows)) == {
        "7.0": JobState("running", "", 600.0, inf, restarts=1),
        "8.0": JobState("queued", "idle", restarts=0),
        "9.0": JobState("held", "via condor_hold"),
        "10.0": JobState("gone", "HTCondor holds it: memory exceeded"),
        "11.0": JobState("queued", "idle", restarts=1),
        "12.0": JobState("gone", "HTCondor has completed it"),
        "13.0": JobState("running", "", 60.0, 840.0),
    }


def test_htcondor_has_no_job_or_does_not_answer():
    assert said(HTCondor(), "") == {}
    assert said(HTCondor(), "", "-- Failed to fetch ads from: <127.0.0.1:9618>", 1) is None
    assert said(HTCondor(), "Error: ...") is None


def test_htcondor_is_asked_where_jobs_are_submitted():
    words = ["condor_submit", "-verbose", "-name", "schedd@x", "-pool", "cm.x:9618"]
    assert HTCondor().options(words) == ("-name", "schedd@x", "-pool", "cm.x:9618")
    assert HTCondor().options(["condor_submit", "-remote", "far"]) == ("-name", "far")
    assert Slurm().options(["sbatch", "-p", "debug"]) == ()


# --- OAR


def test_oar():
    out = oarstat(
        j7={"state": "Running", "startTime": NOW - 600, "message": "R=4,W=1:0:0,J=B (Karma=0.087)"},
        j8={"state": "Waiting", "message": "R=4,W=1:0:0,J=B", "scheduledStart": NOW + 300},
        j9={"state": "Hold", "message": ""},
        j10={"state": "Terminated", "message": ""},
        j11={"state": "Finishing", "startTime": NOW - 600},
        j12={"state": "Running", "startTime": NOW - 60, "walltime": 120, "resubmit_job_id": 5},
        j13={"state": "Launching", "startTime": NOW - 1},
        j14={"state": "Suspended", "startTime": NOW - 60},
        j15={"state": "Error", "message": "it broke"},
    )
    assert said(OAR(), out) == {
        "7": JobState("running", "", 600.0, 3000.0),
        "8": JobState("queued", "R=4,W=1:0:0,J=B", starts_in=300.0),
        "9": JobState("held", "held"),
        "10": JobState("gone", "OAR says Terminated"),
        "11": JobState("unknown", "OAR says Finishing"),
        "12": JobState("running", "", 60.0, 60.0),
        # it goes on as job 12
        "5": JobState("running", "", 60.0, 60.0, restarts=1, now_id="12"),
        "13": JobState("queued", "Launching", starts_in=0.0),
        "14": JobState("running", "suspended", 60.0, inf),
        "15": JobState("gone", "OAR says Error (it broke)"),
    }


def test_oar_has_no_job_or_does_not_answer():
    for nothing in ("", "{}", "[]", "null"):
        assert said(OAR(), nothing) == {}
    assert said(OAR(), "", "Cannot connect to the database", 1) is None
    assert said(OAR(), "hello") is None and said(OAR(), "7") is None


# --- all


class UnitOf:
    def __init__(self, submit):
        self.submit_command = submit


class SGEJob(UnitOf):
    pass


@pytest.mark.parametrize(
    ("job", "name"),
    [
        (UnitOf("/opt/slurm/bin/sbatch"), "Slurm"),
        (UnitOf("sbatch --parsable"), "Slurm"),
        (UnitOf("qsub"), "PBS"),
        (SGEJob("qsub"), "Grid Engine"),
        (UnitOf("bsub"), "LSF"),
        (UnitOf("condor_submit -name x"), "HTCondor"),
        (UnitOf("oarsub"), "OAR"),
        (UnitOf("msub"), None),  # nobody taught us to ask Moab
        (UnitOf(None), None),
        (object(), None),
    ],
)
def test_whose_job_it_is(job, name):
    found = system_of(job)
    assert (found and found.name) == name


def test_which_of_dask_jobqueues_jobs_are_whose():
    import dask_jobqueue

    found = {}
    for kind in ("SLURM", "PBS", "SGE", "LSF", "HTCondor", "OAR", "Moab"):
        cluster = getattr(dask_jobqueue, f"{kind}Cluster")
        found[kind] = (one := system_of(cluster.job_cls.__new__(cluster.job_cls))) and one.name
    assert found == {
        "SLURM": "Slurm", "PBS": "PBS", "SGE": "Grid Engine", "LSF": "LSF", "HTCondor": "HTCondor",
        "OAR": "OAR", "Moab": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("system", "question", "cancel", "requeue"),
    [
        (Slurm(), "squeue -h --me -t all -O ", "scancel 7 8", "scontrol requeue 7,8"),
        (PBS(), "qstat -f 7 8", "qdel 7 8", "qrerun 7 8"),
        (LSF(), "bjobs -a -json -o ", "bkill 7 8", "brequeue 7 8"),
        (GridEngine(), "qstat -r -xml", "qdel 7 8", "qmod -rj 7 8"),
        (HTCondor(), "condor_q -json -attributes ", "condor_rm 7 8", "condor_vacate_job 7 8"),
        (OAR(), "oarstat -u -J", "oardel 7 8", None),
    ],
    ids=lambda one: getattr(one, "name", ""),
)  # fmt: skip
def test_by_which_commands(system, question, cancel, requeue):
    ids = ["7", "8"]
    assert " ".join(system.question(ids)).startswith(question)
    found = [system.cancel(ids), system.requeue(ids)]
    assert [one and " ".join(one) for one in found] == [cancel, requeue]
    assert (system.question_of_all() is not None) == (system.name == "Slurm")


def test_what_a_system_cannot_say_is_told():
    assert {system.name for system in SYSTEMS if system.silent} == {"LSF", "Grid Engine", "HTCondor", "OAR"}
    assert "put a running job back" in OAR.silent


def test_time_passes_since_an_answer():
    state = JobState("running", "", 60.0, 100.0, starts_in=5.0)
    assert state.later(10.0) == JobState("running", "", 70.0, 90.0, starts_in=0.0)
    assert JobState().later(10.0) == JobState()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3600", 3600.0), (90, 90.0), ("1:05", 65.0), ("1-02:00:00", 93600.0), (" 01:00:00 ", 3600.0),
        ("UNLIMITED", None), ("", None), (None, None), (True, None), ("-5", None), ("inf", None), ([], None),
    ],
)  # fmt: skip
def test_durations(text, expected):
    assert seconds_in(text) == expected


def test_why_a_submission_was_refused_is_the_last_line_of_what_was_complained():
    text = (
        "RuntimeError: Command exited with non-zero exit code.\nExit code: 1\nCommand:\nsbatch /tmp/x.sh\n"
        "stdout:\n\nstderr:\nsbatch: error: QOSMaxSubmitJobPerUserLimit\n"
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy\n\n"
    )
    assert refusal_in(text).startswith("sbatch: error: Batch job submission failed")
    assert refusal_in("OSError: the batch system says no") == "OSError: the batch system says no"
    assert refusal_in("A: b\nstderr:\n\n") == "stderr:" and refusal_in("") == ""


# --- whatever is printed

TEXTS = {
    "Slurm": squeue(("7", "RUNNING", "1:05", "3:55", "1795000235", "1794999935", "0", "None")),
    "PBS": qstat_f("7", "R", NOW, started=NOW - 600) + qstat_json(NOW),
    "LSF": bjobs(bjob("7", "RUN", RUN_TIME="600 second(s)", TIME_LEFT="1:30 L")),
    "Grid Engine": qstat_xml(qstat_row("7", "r", NOW - 600, 3600)),
    "HTCondor": '[{"ClusterId": 7, "ProcId": 0, "JobStatus": 2, "JobCurrentStartDate": 1}]',
    "OAR": oarstat(j7={"state": "Running", "startTime": 1, "message": "W=1:0:0"}),
}
anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
KEYS = """
    ClusterId ProcId JobStatus JobCurrentStartDate NumJobStarts HoldReasonCode HoldReason AllowedJobDuration
    JOBID STAT RUN_TIME TIME_LEFT ESTIMATED_START_TIME state startTime scheduledStart walltime message
    resubmit_job_id job_state stime run_count estimated Resource_List resources_used comment Hold_Types
    Exit_status
"""
keys = st.sampled_from(KEYS.split())
likely = anything | st.sampled_from(
    [
        "R",
        "Q",
        "H",
        "E",
        "F",
        "S",
        "RUN",
        "PEND",
        "PSUSP",
        "EXIT",
        "Running",
        "Waiting",
        "Hold",
        1,
        2,
        5,
        "7",
        7,
    ]
)
rows = st.dictionaries(keys, likely, max_size=8)


def check(system, heard):
    found = system.read(heard, NOW)
    for job, state in (found or {}).items():
        assert isinstance(job, str) and isinstance(state, JobState) and isinstance(state.why, str)
        assert state.state in ("queued", "held", "running", "gone", "unknown")
        assert state.running_for is None or 0 <= state.running_for < inf
        assert not isnan(state.left) and (state.starts_in is None or 0 <= state.starts_in < inf)
        assert state.restarts is None or state.restarts >= 0


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda one: one.name)
@given(data=st.data(), code=st.sampled_from([0, 1, 153]))
def test_garbage_is_left_out(system, data, code):
    text = TEXTS[system.name]
    at = data.draw(st.integers(0, len(text)))
    width = data.draw(st.integers(0, 40))
    other = data.draw(st.text(max_size=40) | st.sampled_from(["9" * 400, "1e999", "\x00", "|" * 20, "\n"]))
    check(system, Heard(text[:at] + other + text[at + width :], data.draw(st.text(max_size=30)), code))
    check(system, Heard(other, "", code))


def test_seconds_that_no_number_can_hold_are_not_known():
    row = {"JOBID": "7", "STAT": "RUN", "RUN_TIME": "9" * 400 + " second(s)"}
    (lsf,) = (one for one in SYSTEMS if one.name == "LSF")
    assert lsf.read(Heard(json.dumps({"RECORDS": [row]})), NOW)["7"].running_for is None


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda one: one.name)
@given(found=st.lists(rows, max_size=3), names=st.sampled_from([("7", "8", "9"), ("7.x", "", "a")]))
def test_strange_values_are_left_out(system, found, names):
    by_name = dict(zip(names, found, strict=False))
    for whole in (
        found,
        by_name,
        {"RECORDS": found},
        {"Jobs": by_name},
        {"Jobs": found},
        {"RECORDS": by_name},
    ):
        check(system, Heard(json.dumps(whole), "", 0))
    text = "".join(
        f"Job Id: {name}\n" + "".join(f"    {key} = {value}\n" for key, value in row.items())
        for name, row in by_name.items()
    )
    check(system, Heard(text, "", 0))


@given(st.text(max_size=60) | anything)
def test_dates_are_dates_or_none(found):
    at = read_local_time(found)
    assert at is None or isinstance(at, float)
