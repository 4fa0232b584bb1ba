"""Reads of simulated jobs go through the lane that the policy's I/O strategy opens and closes."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError, Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival, Platform
from dask_hpc.simulator.application import Application, Fixed, Phase, Split, Task, quiet_runtime
from dask_hpc.simulator.engine import Engine
from dask_hpc.simulator.lanes import ReadDesk
from dask_hpc.simulator.platform import Crowding, Failures, FileSystem
from dask_hpc.simulator.readers.yaml_workload import read_platform
from dask_hpc.simulator.record import Record

FREE = Policy.load("io-lanes").with_(**{"io.tune": False})


def limited(most):
    return FREE.with_(**{"io.limit": most})


def reader(name, nodes, *tasks, iterations=1, **more):
    job = Job(id=name, nodes=nodes, **more)
    return Arrival(job, 1.0, application=Application((Phase(tasks, iterations),)))


def read(nbytes, root=False):
    return Task("read", Fixed(float(nbytes)), root)


class Watched(ReadDesk):
    """The most reads in flight at a time, and the bytes that were read."""

    most = nbytes = 0

    def _let_pass(self, now):
        super()._let_pass(now)
        self.most = max(self.most, len(self.lane.in_flight))

    def ended(self, one, now):
        self.nbytes += one.job.nbytes
        super().ended(one, now)


def run(policy, arrivals, nodes=8, **platform):
    platform = {"file_system": 4.0, **platform}
    desk, record = Watched(), Record()
    engine = Engine(Platform(nodes, **platform), policy, record, services=[desk])
    engine.run(arrivals)
    return desk, record, engine


PLAIN = [
    reader("a", 3, read(6), Task("compute", Fixed(5.0)), iterations=3),
    reader("b", 2, read(4, root=True), Task("write", Split(9.0)), submitted=1.0),
    reader("c", 3, Task("write", Fixed(2.0)), read(7), submitted=2.5),
    reader("d", 8, read(3), submitted=3.0),
]


@pytest.mark.parametrize("crowding", [None, Crowding(2, 0.5, reads=3), Crowding(5, 2.0, reads=1)])
def test_without_a_limit_all_is_as_without_lanes(crowding):
    """The same shares of the file system, whole or in pieces."""
    with_lanes = simulate(PLAIN, platform=Platform(8, file_system=4.0, crowding=crowding), policy=FREE)
    plain = simulate(PLAIN, platform=Platform(8, file_system=4.0, crowding=crowding), policy="easy-backfill")
    assert list(with_lanes.jobs["end"]) == pytest.approx(list(plain.jobs["end"]))
    assert with_lanes.metrics["mean_transfer"] == pytest.approx(plain.metrics["mean_transfer"])


@given(
    sizes=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 9), st.booleans()), min_size=1, max_size=6),
    most=st.integers(1, 9),
    reads=st.integers(1, 4),
)
@settings(max_examples=50, deadline=None)
def test_no_more_reads_than_the_limit_says_and_all_are_done(sizes, most, reads):
    arrivals = [
        reader(str(i), nodes, read(size, root), submitted=float(i))
        for i, (nodes, size, root) in enumerate(sizes)
    ]
    desk, record, engine = run(limited(most), arrivals, crowding=Crowding(3, 1.0, reads))
    assert desk.most <= most
    assert desk.nbytes == pytest.approx(sum(size * (1 if root else nodes) for nodes, size, root in sizes))
    assert not desk.lane.jobs and not desk.lane.in_flight and not engine.file_system.transfers
    assert all(end == end for end in record.end)


def test_what_waits_for_a_limit_counts_as_reading():
    """Two nodes, each of which reads 8 B at 4 B/s if it is alone, in four pieces."""
    desk, record, _ = run(limited(1), [reader("a", 2, read(8))], crowding=Crowding(1, 1.0, reads=4))
    assert desk.most == 1 and record.end[0] == 4.0 and record.transfer == 4.0
    _, record, _ = run(limited(2), [reader("a", 2, read(8))], crowding=Crowding(1, 1.0, reads=4))
    assert record.end[0] == 8.0, "two at once are served half as fast"


def test_who_began_to_read_first_goes_first():
    arrivals = [reader("a", 2, read(8)), reader("b", 2, read(8))]
    _, record, _ = run(limited(2), arrivals, crowding=Crowding(2, 1.0, reads=4))
    assert list(record.end) == [4.0, 8.0]


def test_the_knee_is_found():
    before, after = (
        simulate("builtin:readers?iterations=20", policy=name) for name in ("easy-backfill", "io-lanes")
    )
    assert after.metrics["makespan"] < 0.6 * before.metrics["makespan"]
    last = [row for row in after.story.happenings if row.decision == "io-limit"][-1]
    assert 4 <= int(re.search(r"(\d+) at once", last.reason)[1]) <= 12
    assert last.why.rule == "io: io-lanes" and last.why.inputs["threads"] == 64
    again = simulate("builtin:readers?iterations=20", policy="io-lanes")
    assert list(again.jobs["end"]) == list(after.jobs["end"])


def test_where_there_is_none_little_is_lost():
    before, after = (
        simulate("builtin:readers?iterations=20&decline=0", policy=name)
        for name in ("easy-backfill", "io-lanes")
    )
    assert after.metrics["makespan"] < 1.03 * before.metrics["makespan"]


def test_a_job_that_is_killed_leaves_its_lane():
    arrivals = [reader("a", 2, read(80), walltime=5.0), reader("b", 2, read(8))]
    desk, record, engine = run(limited(2), arrivals, crowding=Crowding(2, 1.0, reads=4))
    assert list(record.end) == [5.0, 9.0] and [record.state[0], record.state[1]] == [3, 2]
    assert desk.lane.done == 8 and not desk.lane.in_flight and not engine.file_system.transfers


def test_a_job_whose_node_fails_reads_again():
    failures = Failures(trace=((3.0, 0),), repair=1.0)
    arrivals = [reader("a", 2, read(8)), reader("b", 2, read(8))]
    desk, record, _ = run(
        limited(2), arrivals, nodes=4, crowding=Crowding(2, 1.0, reads=4), failures=failures
    )
    # a reads 12 of its 16 B for nothing; b has the lane from 3 s to 7 s, a again from 4 s on behind it
    assert list(record.end) == [11.0, 7.0]
    assert desk.lane.done == 6 + 8 + 8


def test_a_job_that_never_reads_is_in_no_lane():
    desk, record, _ = run(limited(1), [reader("a", 4, Task("write", Fixed(4.0)))])
    assert desk.lane is None and record.end[0] == 4.0


def test_a_crowd():
    crowd = Crowding(knee=10, decline=0.5)
    assert [crowd.share(nodes) for nodes in (1, 10, 40)] == [1.0, 1.0, 0.5]
    platform = Platform(40, link=3.0, file_system=40.0, crowding=crowd)
    assert [platform.file_system_rate(nodes) for nodes in (1, 20, 40)] == [3.0, pytest.approx(2**0.5), 0.5]
    application = Application((Phase((read(8),)),))
    assert quiet_runtime(application, platform, 40) == 16.0
    file_system = FileSystem(platform)
    for owner in range(40):
        file_system.begin(0.0, owner, 1, 8.0)
    assert file_system.next_end == 16.0


def test_a_crowd_in_a_file():
    found = read_platform({"nodes": 4, "file_system": "4 GB/s", "crowding": {"knee": 2, "decline": 0.5}})
    assert found == Platform(4, file_system=4e9, crowding=Crowding(2, 0.5, 8))
    for crowding, words in (
        ({}, "crowding.knee: is missing"),
        ({"knee": 0}, "crowding: knee: found 0; allowed: 1 to"),
        ({"knee": 2, "decline": -1}, "crowding: decline: found -1"),
        ({"knee": 2, "reads": 0}, "crowding: reads: found 0"),
        ({"knee": 2, "decine": 1}, "nearest: decline"),
    ):
        with pytest.raises(InputError, match=words):
            read_platform({"nodes": 4, "crowding": crowding})
