"""Slurm's whole queue from what its commands print, also where that is garbage."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.batch.slurm_queue import (
    expand_nodes,
    read_bytes,
    read_jobs,
    read_nodes,
    read_partitions,
    read_qos,
    read_reservations,
    read_words,
    view_of,
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
JOBS = """\
7|RUNNING|debug|1|2|500M|30:00|1000|900|5000|ann|n1|normal|OK|N/A|None
8|PENDING|debug,urgent|2|6|1G|1-00:00:00|4600|950|4000|bob||normal|NO|N/A|Resources
9_[3-9%2]|PENDING|debug|1|1|0|UNLIMITED|N/A|960|3000|ann||low|OK|3-9%2|Priority
10|PENDING|debug|1|1|0|10:00|2000|970|3000|ann||low|OK|N/A|BeginTime
11|PENDING|debug|1|1|0|10:00|N/A|970|3000|ann||low|OK|N/A|Dependency
12|PENDING|debug|1-3|1|0|10:00|N/A|980|3000|ann||low|OK|N/A|(QOSMaxJobsPerUserLimit)
13|COMPLETING|debug|1|2|500M|30:00|1000|900|5000|ann|n1|normal|OK|N/A|None
nonsense
14|RUNNING|debug|1|2|500M|30:00|N/A|900|5000|ann||normal|OK|N/A|None
"""
RESERVATIONS = """\
ReservationName=maint StartTime=2000 EndTime=5600 Duration=01:00:00 Nodes=n[1-2] NodeCnt=2 Flags=MAINT
ReservationName=licences StartTime=2000 EndTime=5600 Nodes=(null) Flags=ANY_NODES
No reservations in the system
"""
QOS = """\
normal|0|||||
low|1|02:00:00|node=4|10|cpu=64,node=8|
high|100|1-00:00:00||||low,normal
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
    assert debug.is_preemptible and not urgent.is_preemptible
    assert (urgent.max_time, urgent.max_nodes, urgent.tier, urgent.qos) == (86_400.0, 2, 2, ("high", "low"))
    assert urgent.is_open and urgent.is_exclusive and not urgent.is_up and not urgent.is_default
    assert not found["root"].is_open
    for groups, account in ((set(), "a"), ({"wheel"}, ""), ({"wheel"}, "c")):
        assert not read_partitions(PARTITIONS, groups, account)["urgent"].is_open
    denied = "PartitionName=x DenyAccounts=a,b"
    assert not read_partitions(denied, (), "a")["x"].is_open and read_partitions(denied, (), "c")["x"].is_open


def test_jobs():
    running, pending = read_jobs(JOBS)
    assert running == [
        RunningAsk("7", ("n1",), 1000.0, 1800.0, 2, "ann", "debug", 900.0),
        RunningAsk("13", ("n1",), 1000.0, 1800.0, 2, "ann", "debug", 900.0),
    ]
    first = PendingAsk(
        "8", ("debug", "urgent"), 2, 86_400.0, 6, 2.0**30, 4000.0, 950.0, user="bob", qos="normal",
        expected=4600.0, is_exclusive=True,
    )  # fmt: skip
    assert pending[0] == first
    by_id = {ask.id: ask for ask in pending}
    assert [job for job in by_id if job.startswith("9_")] == ["9_[3-9%2]", "9_[3-9%2]+1"]
    assert by_id["9_[3-9%2]"].limit == inf
    assert (by_id["10"].not_before, by_id["10"].expected, by_id["10"].is_held) == (2000.0, None, False)
    assert by_id["11"].is_held and by_id["12"].is_held and not by_id["9_[3-9%2]"].is_held
    assert by_id["12"].nodes == 1


def test_reservations_and_qualities():
    assert read_reservations(RESERVATIONS) == [Maintenance("maint", 2000.0, 5600.0, ("n1", "n2"))]
    local = "ReservationName=x StartTime=2026-01-01T00:00:00 EndTime=2026-01-01T01:00:00 Nodes=n1"
    (one,) = read_reservations(local)
    assert one.end - one.start == 3600
    assert read_qos(QOS) == {
        "normal": QueueQos("normal", is_preemptible=True),
        "low": QueueQos("low", 1.0, 7200.0, 4, 10, 8, 64, is_preemptible=True),
        "high": QueueQos("high", 100.0, 86_400.0),
    }


@pytest.mark.parametrize(
    ("text", "size"),
    [("500M", 500 * 2**20), ("1.5G", 1.5 * 2**30), ("4000", 4000 * 2**20), ("2Gc", 2**31), ("x", 0)],
)
def test_amounts_of_memory(text, size):
    assert read_bytes(text) == size


def test_a_view_of_all():
    view = view_of(1500.0, NODES, PARTITIONS, JOBS, RESERVATIONS, QOS, me="ann")
    assert [ask.id for ask in view.pending][:2] == ["8", "9_[3-9%2]"]
    assert view.unknown == ()
    assert view.me == "ann" and view.reserved and view.qos
    assert {hole.partition for hole in holes_of(view, cores=1)} <= {"debug"}
    # too little is known, or not all
    assert view_of(0.0, None, PARTITIONS, JOBS) is None
    assert view_of(0.0, NODES, "", JOBS) is None
    assert view_of(0.0, NODES, PARTITIONS, None) is None
    poor = view_of(0.0, NODES, PARTITIONS, "", None, None)
    assert [words.partition(":")[0] for words in poor.unknown] == [
        "who holds 1 busy node (n1)",
        "reservations",
        "limits of the qualities of service",
    ]


def shuffled(text):
    """Parts of it, cut anywhere and put together anyhow, with nonsense between."""
    pieces = st.one_of(
        st.tuples(st.integers(0, len(text)), st.integers(1, 80)).map(lambda cut: text[cut[0] : sum(cut)]),
        st.text(max_size=10),
        st.sampled_from(["\n", "|", "=", ",", "[1-", "9" * 30, "-1", "\x00"]),
    )
    return st.lists(pieces, max_size=12).map("".join)


@given(shuffled(NODES), shuffled(PARTITIONS), shuffled(JOBS), shuffled(RESERVATIONS), shuffled(QOS))
def test_garbage_is_left_out(nodes, partitions, jobs, reservations, qos):
    view = view_of(1500.0, NODES + nodes, PARTITIONS + partitions, jobs, reservations, qos)
    for node in view.nodes.values():
        assert node.cores >= 0 and node.free_cores >= 0 and node.free_memory >= 0
    for job in view.running:
        assert job.limit > 0 and job.nodes
    for ask in view.pending:
        assert ask.limit > 0 and ask.nodes >= 1
    assert all(one.start < one.end for one in view.reserved)
    holes_of(view)
