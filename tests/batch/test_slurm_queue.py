"""Slurm's whole queue from what its commands print, also where that is garbage."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_slurm import row

from dask_hpc.batch.job_state import Heard
from dask_hpc.batch.slurm import Slurm
from dask_hpc.batch.slurm_queue import (
    QOS,
    SITE,
    KnownQueue,
    expand_nodes,
    read_bytes,
    read_jobs,
    read_nodes,
    read_partitions,
    read_qos,
    read_reservations,
    read_words,
)
from dask_hpc.planning.asks.holes import holes_of
from dask_hpc.planning.asks.queue import Maintenance, PendingAsk, QueueNode, QueueQos, RunningAsk

NODES = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=2 CPUEfctv=3 CPUTot=4 CPULoad=2.18 OS=Linux 6.1 #1 SMP \
RealMemory=2000 AllocMem=500 FreeMem=1000 Sockets=3 State=MIXED ThreadsPerCore=1 Partitions=debug,urgent \
Reason=a b c [root@2026-11-26]
NodeName=n2 CPUAlloc=0 CPUTot=3 RealMemory=1 AllocMem=0 State=IDLE+DRAIN
NodeName=n3 CPUAlloc=0 CPUTot=3 State=IDLE*
NodeName=n4 CPUAlloc=0 CPUTot=many State=IDLE
NodeName=n5 CPUAlloc=0 CPUTot=3 State=IDLE+PLANNED
"""
PARTITIONS = """\
PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A MaxNodes=UNLIMITED \
MaxTime=UNLIMITED MinNodes=0 Nodes=n[1-3,5] PriorityTier=1 OverSubscribe=NO PreemptMode=REQUEUE State=UP
PartitionName=urgent AllowGroups=wheel,staff AllowAccounts=a,b AllowQos=high,low MaxNodes=2 \
MaxTime=1-00:00:00 MinNodes=1 Nodes=n5 PriorityTier=2 OverSubscribe=EXCLUSIVE PreemptMode=OFF State=DOWN
PartitionName=root RootOnly=YES Nodes=(null) State=UP
"""

ON_N1 = {
    "NodeList": "n1", "StartTime": "1000", "SubmitTime": "900", "PriorityLong": "5000", "QOS": "normal",
    "TimeLimit": "30:00", "tres-alloc": "cpu=2,mem=500M,node=1,billing=2",
}  # fmt: skip
JOBS = "".join(
    [
        row("7", "RUNNING", **ON_N1),
        row(
            "8", "PENDING", Partition="debug,urgent", NumNodes="2", TimeLimit="1-00:00:00", StartTime="4600",
            SubmitTime="950", PriorityLong="4000", UserName="bob", QOS="normal", OverSubscribe="NO",
            Reason="Resources", **{"tres-alloc": "cpu=6,mem=2G,node=2,billing=6"},
        ),
        row("9", "PENDING", TimeLimit="UNLIMITED", ArrayTaskID="3-9%2", Reason="Priority", SubmitTime="960"),
        row("10", "PENDING", StartTime="2000", Reason="BeginTime"),
        row("11", "PENDING", Reason="Dependency"),
        row("12", "PENDING", NumNodes="1-3", Reason="(QOSMaxJobsPerUserLimit)", SubmitTime="980"),
        row("13", "COMPLETING", **ON_N1),
        "nonsense\n",
        row("14", "RUNNING", **{**ON_N1, "StartTime": "N/A", "NodeList": ""}),
        row("15", "COMPLETED", **{**ON_N1, "EndTime": "1400"}),
    ]
)  # fmt: skip
RESERVATIONS = """\
ReservationName=maint StartTime=2000 EndTime=5600 Duration=01:00:00 Nodes=n[1-2] NodeCnt=2 Flags=MAINT
ReservationName=licences StartTime=2000 EndTime=5600 Nodes=(null) Flags=ANY_NODES
No reservations in the system
"""
QUALITIES = """\
normal|0||||
low|1|02:00:00|node=4|10|cpu=64,node=8
high|100|1-00:00:00|||
short
"""


def test_lists_of_nodes():
    assert expand_nodes("n[1-3,07,09-10],gpu1") == ["n1", "n2", "n3", "n07", "n09", "n10", "gpu1"]
    assert expand_nodes("r[1-2]c[01-02]") == ["r1c01", "r1c02", "r2c01", "r2c02"]
    assert (
        expand_nodes("(null)") == expand_nodes("") == expand_nodes("n[a-b]") == expand_nodes("n[5-1]") == []
    )
    assert len(expand_nodes("n[1-99999]")) == 99_999
    assert expand_nodes("n[1-9999999999999]") == []


def test_values_with_blanks_in_them():
    words = read_words("NodeName=n1 OS=Linux 6.1 #1 SMP State=IDLE Reason=a b [x]")
    assert words == {"NodeName": "n1", "OS": "Linux 6.1 #1 SMP", "State": "IDLE", "Reason": "a b [x]"}


def test_nodes():
    found = read_nodes(NODES)
    assert found["n1"] == QueueNode("n1", 3, 2000 * 2.0**20, 1, 1500 * 2.0**20, True)
    assert {name for name, node in found.items() if node.is_up} == {"n1", "n5"}
    assert set(found) == {"n1", "n2", "n3", "n5"}
    assert found["n3"].memory == inf


@pytest.mark.parametrize("state", ["DOWN", "DRAINED", "IDLE+DRAIN", "DOWN*", "IDLE+POWERED_DOWN", "FAIL", ""])
def test_nodes_that_take_no_jobs(state):
    assert not read_nodes(f"NodeName=n CPUTot=1 State={state}")["n"].is_up


def test_partitions():
    found = read_partitions(PARTITIONS, {"staff"}, "b")
    debug, urgent = found["debug"], found["urgent"]
    assert debug.nodes == ("n1", "n2", "n3", "n5")
    assert (debug.max_time, debug.min_nodes, debug.max_nodes, debug.qos) == (inf, 1, inf, ())
    assert debug.is_up and debug.is_default and debug.is_open and not debug.is_exclusive
    assert (urgent.max_time, urgent.max_nodes, urgent.tier, urgent.qos) == (86_400.0, 2, 2, ("high", "low"))
    assert urgent.is_open and urgent.is_exclusive and not urgent.is_up and not urgent.is_default
    assert not found["root"].is_open
    for groups, account in ((set(), "a"), ({"wheel"}, ""), ({"wheel"}, "c")):
        assert not read_partitions(PARTITIONS, groups, account)["urgent"].is_open
    denied = "PartitionName=x DenyAccounts=a,b"
    assert not read_partitions(denied, (), "a")["x"].is_open and read_partitions(denied, (), "c")["x"].is_open


def test_jobs():
    found = read_jobs(JOBS)
    first = RunningAsk("7", ("n1",), 1000.0, 1800.0, 2, "ann", "debug", 900.0, 500 * 2.0**20)
    assert found.running == (first, replace(first, id="13"))
    assert found.ended == (replace(first, id="15", limit=400.0),)
    second = PendingAsk(
        "8", ("debug", "urgent"), 2, 86_400.0, 6, 2.0**30, 4000.0, 950.0, user="bob", qos="normal",
        is_exclusive=True,
    )  # fmt: skip
    assert found.pending[0] == second
    by_id = {ask.id: ask for ask in found.pending}
    assert [job for job in by_id if job.startswith("9")] == ["9", "9+1"]
    assert by_id["9"].limit == inf
    assert (by_id["10"].not_before, by_id["10"].is_held) == (2000.0, False)
    assert by_id["11"].is_held and by_id["12"].is_held and not by_id["9"].is_held
    assert by_id["12"].nodes == 1
    ours = Slurm().read(Heard(JOBS), 1500.0)
    assert {job for job, one in ours.items() if one.state == "queued"} == {"8", "9", "10", "11", "12"}
    assert ours["7"].state == "running" and ours["15"].state == "gone"


def test_reservations_and_qualities():
    assert read_reservations(RESERVATIONS) == [Maintenance("maint", 2000.0, 5600.0, ("n1", "n2"))]
    local = "ReservationName=x StartTime=2026-01-01T00:00:00 EndTime=2026-01-01T01:00:00 Nodes=n1"
    (one,) = read_reservations(local)
    assert one.end - one.start == 3600
    assert read_qos(QUALITIES) == {
        "normal": QueueQos("normal"),
        "low": QueueQos("low", 1.0, 7200.0, 4, 10, 8),
        "high": QueueQos("high", 100.0, 86_400.0),
    }


@pytest.mark.parametrize(
    ("text", "size"),
    [("500M", 500 * 2**20), ("1.5G", 1.5 * 2**30), ("4000", 4000 * 2**20), ("2Gc", 2**31), ("x", 0)],
)
def test_amounts_of_memory(text, size):
    assert read_bytes(text) == size


def heard(nodes=NODES, partitions=PARTITIONS, jobs=JOBS, reservations=RESERVATIONS, qos=QUALITIES, at=1500.0):
    """What is known after all answers; without one that is None."""
    known = KnownQueue()
    site = None if nodes is None else Heard(nodes + partitions + reservations)
    known.hear(SITE[0], site, 0.0, at)
    known.hear(QOS[0], None if qos is None else Heard(qos), 0.0, at)
    known.hear("squeue", None if jobs is None else Heard(jobs), 0.0, at)
    return known


def test_a_view_of_all():
    known = heard()
    view = known.view()
    assert [ask.id for ask in view.pending][:2] == ["8", "9"] and view.now == 1500.0
    assert view.unknown == () and view.reserved and view.qos and not known.is_silent
    assert not view.partitions["urgent"].is_open and heard().view("a").now == 1500.0
    assert {hole.partition for hole in holes_of(view, cores=1)} <= {"debug"}
    # too little is known, or not all
    for lacks in ({"nodes": None}, {"nodes": ""}, {"partitions": ""}, {"jobs": None}):
        known = heard(**lacks)
        assert known.view() is None and known.is_silent
    poor = heard(jobs="", reservations="", qos=None).view()
    assert [words.partition(":")[0] for words in poor.unknown] == [
        "who holds 1 busy node (n1)",
        "reservations",
        "limits of the qualities of service",
    ]
    assert poor.nodes["n1"].free_cores == 1, "taken by somebody whom nobody shows us"


def test_what_is_free_follows_from_who_runs():
    """Nodes are asked about seldom, jobs often."""
    busy = "NodeName=n1 CPUTot=4 CPUAlloc=3 RealMemory=2000 AllocMem=1500 State=MIXED\n"
    on = dict(ON_N1, StartTime="1000")
    mine, other = row("1", "RUNNING", **on), row("2", "RUNNING", **{**on, "tres-alloc": "cpu=1,mem=1000M"})
    later = row("3", "RUNNING", **{**on, "StartTime": "1600"})

    def free(known):
        node = known.view().nodes["n1"]
        return node.free_cores, round(node.free_memory / 2**20), len(known.view().unknown)

    known = heard(busy, jobs=mine + other)
    assert free(known) == (1, 500, 0)
    known.hear("squeue", Heard(mine), 60.0, 1560.0)
    assert free(known) == (2, 1500, 0)
    known.hear("squeue", Heard(mine + later), 120.0, 1620.0)
    assert free(known) == (0, 1000, 0)
    # two of our looks say who it was that held it when nodes were asked about
    known = heard(busy, jobs=mine)
    assert free(known) == (1, 500, 1), "one core and its memory are taken by nobody whom we see"
    known.hear("squeue", Heard(mine + later), 60.0, 1660.0)
    assert free(known) == (0, 0, 1), "who came later explains nothing"
    ended = row("2", "COMPLETED", **{**on, "tres-alloc": "cpu=1,mem=1000M", "EndTime": "1490"})
    known.hear("squeue", Heard(mine + ended), 120.0, 1720.0)
    assert free(known) == (2, 1500, 0), "who has ended a moment ago does"
    whole = row("4", "RUNNING", **{**on, "tres-alloc": ""})
    assert free(heard(busy, jobs=whole))[0] == 0, "of how many cores, nobody says"


def test_what_hardly_changes_is_asked_seldom():
    known = KnownQueue()
    assert known.overdue(0.0)[0] == SITE and not known.is_fresh(0.0, inf)
    known.hear(SITE[0], Heard("", "no", 1), 0.0, 0.0)
    assert known.is_silent and known.overdue(10.0)[0] == QOS
    known.hear(QOS[0], None, 10.0, 10.0)
    assert known.overdue(119.0) is None and known.overdue(120.0)[0] == SITE
    known.hear(SITE[0], Heard(NODES + PARTITIONS), 120.0, 120.0)
    assert not known.is_silent and known.view() is None and not known.is_fresh(120.0, 10.0)
    known.hear("squeue", Heard(JOBS), 130.0, 130.0)
    assert known.is_fresh(140.0, 10.0) and not known.is_fresh(141.0, 10.0) and known.view().now == 130.0
    assert known.overdue(719.0) is None and known.overdue(720.0)[0] == SITE
    known.hear(SITE[0], Heard(NODES + PARTITIONS), 3300.0, 3300.0)
    assert known.overdue(3609.0) is None and known.overdue(3610.0)[0] == QOS
    known.hear("squeue", None, 3620.0, 3620.0)
    assert known.is_silent and known.view() is not None


def shuffled(text):
    """Parts of it, cut anywhere and put together anyhow, with nonsense between."""
    pieces = st.one_of(
        st.tuples(st.integers(0, len(text)), st.integers(1, 80)).map(lambda cut: text[cut[0] : sum(cut)]),
        st.text(max_size=10),
        st.sampled_from(["\n", "|", "=", ",", "[1-", "9" * 30, "-1", "\x00"]),
    )
    return st.lists(pieces, max_size=12).map("".join)


@given(shuffled(NODES), shuffled(PARTITIONS), shuffled(JOBS), shuffled(RESERVATIONS), shuffled(QUALITIES))
def test_garbage_is_left_out(nodes, partitions, jobs, reservations, qos):
    view = heard(NODES + nodes, PARTITIONS + partitions, jobs, reservations, qos).view()
    for node in view.nodes.values():
        assert node.cores >= 0 and node.free_cores >= 0 and node.free_memory >= 0
    for job in view.running:
        assert job.limit > 0 and job.nodes
    for ask in view.pending:
        assert ask.limit > 0 and ask.nodes >= 1
    assert all(one.start < one.end for one in view.reserved)
    holes_of(view)
