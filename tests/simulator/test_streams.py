"""Streams that latency limits, by hand; and decisions at each instant or on each event."""

import json
from dataclasses import replace
from math import inf

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from test_elastisim import MATRICES, matrix_of

from dask_hpc import InputError, Policy, simulate
from dask_hpc.cli import cli
from dask_hpc.model.job import Job
from dask_hpc.policy import ready_made
from dask_hpc.simulator import Machine, Record
from dask_hpc.simulator.application import Application, Fixed, Phase, Task
from dask_hpc.simulator.platform import FileSystem, Platform
from dask_hpc.simulator.readers import load_workload
from dask_hpc.simulator.readers.elastisim import load_elastisim
from dask_hpc.simulator.readers.elastisim_application import largest_stream
from dask_hpc.simulator.readers.elastisim_form import Derived
from dask_hpc.simulator.record import STATES
from dask_hpc.simulator.workload import Arrival

WINDOW = 4194304.0
#: 128 nodes and a file system, with the figures of ElastiSim's example
CROSSBAR = """<platform version="4.1"><zone id="all" routing="Full">
  <zone id="Z" routing="Full"><host id="B" speed="0Gf"><prop id="batch_system" value="true"/></host></zone>
  <cluster id="C" radical="0-127" speed="100Gf" bw="100Gbps" lat="50us">{inside}</cluster>
  <zone id="F" routing="Full"><host id="PFS" speed="0Gf"><prop id="pfs_host" value="true"/></host></zone>
  <link id="r" bandwidth="80GBps" latency="{read}"/><link id="w" bandwidth="80GBps" latency="{write}"/>
  <zoneRoute src="F" dst="C" symmetrical="NO"><link_ctn id="r"/></zoneRoute>
  <zoneRoute src="C" dst="F" symmetrical="NO"><link_ctn id="w"/></zoneRoute></zone></platform>"""


def crossbar(folder, tasks=(), nodes=1, head="", inside="", read="500us", write="500us", lat="50us", **job):
    """A workload of one job on that machine."""
    text = CROSSBAR.format(inside=inside, read=read, write=write).replace('lat="50us"', f'lat="{lat}"')
    (folder / "p.xml").write_text(text.replace('<zone id="all"', f'{head}<zone id="all"'))
    (folder / "m.json").write_text(json.dumps({"phases": [{"tasks": list(tasks)}]}))
    one = {"type": "rigid", "submit_time": 0, "num_nodes": nodes, "application_model": "m.json"} | job
    (folder / "j.json").write_text(json.dumps({"jobs": [one]}))
    (folder / "c.json").write_text(json.dumps({"jobs_file": "j.json", "platform_file": "p.xml"}))
    return load_elastisim(folder / "c.json")


def test_one_window_in_twice_the_latency(tmp_path):
    """50 us to the edge of the cluster and 500 us to the file system: 3.28 times less than 12.5 GB/s."""
    platform = crossbar(tmp_path).platform
    assert platform.stream == pytest.approx(WINDOW / (2 * 550e-6)) == pytest.approx(12.5e9 / 3.278, rel=1e-3)
    rates = {nodes: platform.file_system_rate(nodes) for nodes in (1, 8, 20, 21, 22, 128)}
    assert rates[1] == rates[8] == rates[20] == platform.stream
    assert [rates[nodes] * nodes for nodes in (21, 22, 128)] == pytest.approx([80e9] * 3)
    assert platform.io_demand(0.0, 1.0).link == platform.stream


@pytest.mark.parametrize("nodes", [1, 4, 64])
@pytest.mark.parametrize("kind", ["pfs_read", "pfs_write"])
def test_how_long_it_takes_to_read_and_write(tmp_path, nodes, kind):
    task = {"type": kind, "bytes": 64e9, "pattern": "all_ranks"}
    workload = crossbar(tmp_path, [task], nodes)
    seconds = 550e-6 + 64e9 / min(nodes * WINDOW / 1.1e-3, 80e9)
    assert workload.arrivals[0].runtime == pytest.approx(seconds)
    demand = workload.arrivals[0].job.io_intensity
    assert (demand.data, demand.compute) == (pytest.approx(64e9), 0.0)
    assert list(simulate(workload, policy="fcfs").jobs["end"]) == [pytest.approx(seconds)]
    assert any("latencies limit what a node reads or writes to 3.81" in note for note in workload.notes)


@pytest.mark.parametrize(
    ("changes", "stream"),
    [
        ({"read": "0", "write": "0", "lat": "0"}, inf),
        ({"read": "1ms", "write": "500us"}, WINDOW / 2.1e-3),  # the longer way is both
        ({"read": "1ms", "write": "500us", "lat": "0.00005"}, WINDOW / 2.1e-3),
        ({"read": "250000ns", "write": "2.5e8ps"}, WINDOW / 0.6e-3),
        ({"head": "<config><prop id='network/TCP-gamma' value='1048576'/></config>"}, 1048576 / 1.1e-3),
        ({"inside": "<prop id='pfs_targets' value='PFS, PFS2'/>"}, 2 * WINDOW / 1.1e-3),
    ],
)  # fmt: skip
def test_streams_of_platforms(tmp_path, changes, stream):
    assert crossbar(tmp_path, **changes).platform.stream == pytest.approx(stream)


def test_a_backbone_is_on_the_way(tmp_path):
    workload = crossbar(tmp_path, lat='50us" bb_bw="1TBps" bb_lat="100us')
    assert workload.platform.stream == pytest.approx(WINDOW / (2 * 650e-6))


@pytest.mark.parametrize("text", ["5 parsecs", "-1us", "fast", "1e999s", "1ks"])
def test_latencies_that_are_none(tmp_path, text):
    with pytest.raises(InputError, match=r"p.xml: link 'r': latency: found .*; allowed: a time such as 50us"):
        crossbar(tmp_path, read=text)
    with pytest.raises(InputError, match=r"cluster 'C': lat: found"):
        crossbar(tmp_path, lat=text)
    with pytest.raises(InputError, match="network/TCP-gamma: found"):
        crossbar(tmp_path, head=f"<config><prop id='network/TCP-gamma' value='{text}'/></config>")


@pytest.mark.parametrize(
    ("pattern", "nodes", "seconds"),
    [
        # 10 ms from node to node: one window of 4 MiB in 20 ms, 210 MB/s, where a link has 12.5 GB/s; and
        # once they are waited for
        ("ring_clockwise", 4, 16e9 / 4 * 20e-3 / WINDOW),
        ("ring", 4, 16e9 / 8 * 20e-3 / WINDOW),
        ("ring", 2, 16e9 / 2 * 20e-3 / WINDOW),
        ("gather", 4, 16e9 / 4 * 20e-3 / WINDOW),
        ("all_to_all", 4, 16e9 / 12 * 20e-3 / WINDOW),
        ("all_to_all", 100, 16e9 / 100 / 12.5e9),  # many streams fill the link
        ("all_to_all", 1, 0.0),
    ],
)
def test_streams_between_nodes(tmp_path, pattern, nodes, seconds):
    task = {"type": "cpu", "bytes": 16e9, "communication_pattern": pattern}
    (arrival,) = crossbar(tmp_path, [task], nodes, lat="5ms")
    assert arrival.runtime == pytest.approx(seconds and 10e-3 + seconds)
    (near,) = crossbar(tmp_path, [task], nodes)  # 0.1 ms, which allows more than the link
    assert near.runtime < 2 * 16e9 / 12.5e9


@given(st.integers(2, 12), st.sampled_from(MATRICES))
def test_streams_are_the_largest_cells_of_their_matrices(nodes, pattern):
    largest = largest_stream(matrix_of(pattern, nodes), nodes, "bytes")
    assert largest(1) == pytest.approx(Derived(f"a stream of {pattern}", (Fixed(60.0),))(nodes))


@given(st.integers(1, 200), st.floats(1, 1e3), st.floats(1, 1e3), st.floats(1, 1e5))
@settings(max_examples=200, deadline=None)
def test_no_more_than_any_limit(nodes, link, stream, total):
    rate = Platform(200, link=link, file_system=total, stream=stream).file_system_rate(nodes)
    assert rate == min(link, stream, total / nodes)
    assert Platform(200, link=link, file_system=total).file_system_rate(nodes) >= rate


def test_who_reads_beside_others(tmp_path):
    """Two nodes of 3 B/s on a file system of 4: shared while both read, 3 for the one that is left."""
    platform = Platform(2, file_system=4.0, stream=3.0)
    applications = [Application((Phase((Task("read", Fixed(size)),)),)) for size in (4.0, 10.0)]
    arrivals = [Arrival(Job(id=str(n), nodes=1), 0.0, application=one) for n, one in enumerate(applications)]
    record = Record()
    Machine(platform, Policy.load("fcfs"), record).run(arrivals)
    assert list(record.end) == [2.0, pytest.approx(2.0 + 6.0 / 3.0)]


def test_writing_over_a_link_of_its_own():
    """Nobody who reads is in the way of one who writes; two who write are in each other's."""
    platform = Platform(3, file_system=4.0, writing=2.0)
    tasks = [Task("read", Fixed(8.0)), Task("write", Fixed(4.0)), Task("write", Fixed(2.0))]
    applications = [Application((Phase((task,)),)) for task in tasks]
    arrivals = [Arrival(Job(id=str(n), nodes=1), 0.0, application=one) for n, one in enumerate(applications)]
    record = Record()
    machine = Machine(platform, Policy.load("fcfs"), record)
    machine.run(arrivals)
    assert list(record.end) == [2.0, 3.0, 2.0]
    assert machine.file_system.begun == 3 and record.transfer == pytest.approx(7.0 / 3)
    assert not machine.file_system.transfers
    assert [platform.file_system_rate(2, is_read) for is_read in (True, False)] == [2.0, 1.0]
    assert platform.io_demand(0.0, 1.0).file_system == 2.0  # the slower way, if nobody says which
    assert Platform(3, file_system=4.0).file_system_rate(2, is_read=False) == 2.0


@pytest.mark.parametrize("is_read", [True, False])
def test_who_gives_up_reading_or_writing(is_read):
    """What is left of it stops; those who go the same way go faster."""
    system = FileSystem(Platform(2, file_system=4.0, writing=2.0))
    system.loads = []
    one, two, other, nobody = owners = [object() for _ in range(4)]
    for owner in owners[:3]:
        system.begin(0.0, owner, 1, 4.0, is_read=is_read is not (owner is other))
    system.abandon(1.0, one)
    system.abandon(1.0, nobody)
    rate = 4.0 if is_read else 2.0
    ends = [(1.0 + (4.0 - rate / 2) / rate, two), (4.0 / (6.0 - rate), other)]
    for end, owner in sorted(ends, key=lambda entry: entry[0]):
        assert system.next_end == pytest.approx(end)
        assert system.ended(system.next_end) == [(owner, 0)]
    assert not system.transfers and system.loads[3] == (1.0, 2) and system.loads[-1][1] == 0


@pytest.mark.parametrize(
    ("pattern", "nodes", "busy"), [("even_ranks", 5, 3), ("odd_ranks", 5, 2), ("odd_ranks", 1, 1)]
)
def test_every_other_node_writes(tmp_path, pattern, nodes, busy):
    """As few streams as there are nodes that write."""
    (arrival,) = crossbar(tmp_path, [{"type": "pfs_write", "bytes": 6e9, "pattern": pattern}], nodes)
    (task,) = arrival.application.phases[0].tasks
    assert task.busy(nodes) == busy and task.amount(nodes) == pytest.approx(6e9 / busy * (nodes > 1))
    assert arrival.runtime == pytest.approx((550e-6 + 6e9 / busy / (WINDOW / 1.1e-3)) * (nodes > 1))


def test_latencies_of_repeated_tasks(tmp_path):
    """Each time one is waited for; computing goes on meanwhile, unless it is coupled with what is sent."""
    write = {"type": "pfs_write", "bytes": 0, "pattern": "all_ranks", "iterations": 3}
    both = {"type": "cpu", "flops": 1e9, "computation_pattern": "uniform", "bytes": 4.0,
            "communication_pattern": "ring_clockwise", "iterations": 100}  # fmt: skip
    for tasks, seconds in (
        ([write], 0.0),
        ([write | {"bytes": 4.0}], 3 * 550e-6),
        ([write | {"bytes": "4 * (phase_iteration > 0)"}], 0.0),
        ([both], 100 * 0.01),
        ([both | {"coupled": True}], 100 * (0.01 + 100e-6)),
        ([both | {"flops": 1e6}], 100 * 100e-6),
    ):
        (arrival,) = workload = crossbar(tmp_path, tasks, 4)
        assert arrival.runtime == pytest.approx(seconds, rel=1e-5)
        assert list(simulate(workload, policy="fcfs").jobs["end"]) == [pytest.approx(seconds, rel=1e-5)]


def rigid(name, nodes, runtime, **others):
    return Arrival(Job(id=name, nodes=nodes, **others), runtime)


def starts(policy, arrivals, nodes, **platform):
    record = Record()
    Machine(Platform(nodes, **platform), Policy.load(policy), record).run(arrivals)
    return dict(zip(record.id, record.start, strict=True))


def test_jobs_that_come_together():
    """The shortest first of all that are there; or of those that a policy has heard of, which is one."""
    arrivals = [rigid("long", 1, 9.0, walltime=9.0), rigid("short", 1, 2.0, walltime=2.0)]
    assert starts("sjf", arrivals, 1) == {"long": 2.0, "short": 0.0}
    assert starts("sjf", arrivals, 1, decide="instant") == {"long": 2.0, "short": 0.0}
    assert starts("sjf", arrivals, 1, decide="event") == {"long": 0.0, "short": 9.0}


def test_jobs_that_end_together():
    """Both their nodes are free at once; or first one of them, on which a small job fits."""
    arrivals = [rigid("a", 1, 5.0), rigid("b", 1, 5.0), rigid("big", 2, 5.0), rigid("small", 1, 5.0)]
    assert starts("first-fit", arrivals, 2) == {"a": 0.0, "b": 0.0, "big": 5.0, "small": 10.0}
    assert starts("first-fit", arrivals, 2, decide="event") == {"a": 0.0, "b": 0.0, "big": 10.0, "small": 5.0}


def test_transfers_that_end_together():
    """As jobs do, if what they end with is writing."""
    application = Application((Phase((Task("write", Fixed(10.0)),)),))
    platform = Platform(2, file_system=4.0)
    jobs = [Arrival(Job(id=name, nodes=1), 0.0, application=application) for name in "ab"]
    arrivals = [*jobs, rigid("big", 2, 5.0), rigid("small", 1, 5.0)]
    for decide, wanted in (("instant", ("big", "small")), ("event", ("small", "big"))):
        record = Record()
        Machine(replace(platform, decide=decide), Policy.load("first-fit"), record).run(arrivals)
        found = dict(zip(record.id, record.start, strict=True))
        assert [found[name] for name in wanted] == [5.0, 10.0]


def test_who_asks_on_an_event_gets_all_or_nothing():
    """Three nodes more, where two are idle at first: two and the third later, or none, and then all three."""
    phases = (Phase((Task("idle", Fixed(10.0)),), 3, request=lambda nodes: 4.0, asks_at_once=False),)
    job = Job(id="e", nodes=1, kind="evolving", min_nodes=1, max_nodes=4)
    arrivals = [Arrival(job, 0.0, application=Application(phases)), rigid("b", 1, 15.0)]
    for decide, sizes in (("instant", [1, 3, 4]), ("event", [1, 4])):
        result = simulate(arrivals, platform=Platform(4, decide=decide), policy="fcfs", allotments=True)
        assert [len(one.nodes) for one in result.held if one.job == "e"] == sizes


def test_only_ticks_decide_whatever_happens():
    arrivals = [rigid("long", 1, 9.0, walltime=9.0), rigid("short", 1, 2.0, walltime=2.0)]
    found = starts("sjf", arrivals, 1, decide="event", tick=10.0, only_ticks=True)
    assert found == {"long": 20.0, "short": 10.0}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_first_come_first_served_does_not_care(jobs):
    """One by one from the front of the queue: it makes no difference how much is known."""
    jobs.sort(key=lambda job: job[0])
    arrivals = [
        rigid(str(n), nodes, float(runtime), submitted=float(when))
        for n, (when, nodes, runtime) in enumerate(jobs)
    ]
    assert starts("fcfs", arrivals, 4, decide="event") == starts("fcfs", arrivals, 4)


def test_where_people_write_it(tmp_path):
    platform = "{nodes: 1, stream: 3 GB/s, writing: 2 GB/s, decide: event}"
    text = f"platform: {platform}\njobs: [{{id: a, nodes: 1, runtime: 1 s}}]"
    (tmp_path / "w.yaml").write_text(text)
    platform = load_workload(tmp_path / "w.yaml").platform
    assert (platform.stream, platform.writing, platform.decide) == (3e9, 2e9, "event")
    for wrong, complaint in (
        ("decide: often", "platform: decide: found 'often'; allowed: instant, event"),
        ("decide: []", "platform: decide: found"),
        ("stream: 0 B/s", "platform: stream: found 0"),
        ("writing: 0 B/s", "platform: writing: found 0"),
    ):
        (tmp_path / "w.yaml").write_text(
            f"platform: {{nodes: 1, {wrong}}}\njobs: [{{id: a, nodes: 1, runtime: 1 s}}]"
        )
        with pytest.raises(InputError, match=complaint):
            load_workload(tmp_path / "w.yaml")


def test_on_the_command_line(tmp_path):
    path = tmp_path / "w.yaml"
    jobs = "{id: a, nodes: 1, runtime: 9 s, walltime: 9 s}, {id: b, nodes: 1, runtime: 2 s, walltime: 2 s}"
    path.write_text(f"nodes: 1\njobs: [{jobs}]")

    def mean_wait(*words):
        args = ["simulate", str(path), "--policy", "sjf", "--json", *words]
        found = CliRunner().invoke(cli, args)
        assert found.exit_code == 0, found.output
        metrics = json.loads(found.stdout)["policies"]["sjf"]
        return metrics["mean_wait"]

    assert mean_wait() == mean_wait("--decide", "instant") == mean_wait("--seeds", "1") == 1.0
    assert mean_wait("--decide", "event") == mean_wait("--decide", "event", "--seeds", "2") == 4.5
    assert mean_wait("--decide", "event", "--nodes", "2") == 0.0
    assert mean_wait("--decide", "event", "--machine", "frontier") == 0.0
    found = CliRunner().invoke(cli, ["simulate", str(path), "--decide", "never"])
    assert found.exit_code == 2 and "--decide" in found.output


@pytest.mark.parametrize("policy", sorted(ready_made()))
def test_every_policy_can_be_asked_on_each_event(policy):
    """Nobody is forgotten, and jobs that come and end together are no trouble."""
    sizes = [(1, 4), (2, 4), (4, 4), (1, 1), (2, 2), (1, 3), (3, 3), (1, 2)]
    arrivals = [
        Arrival(
            Job(
                id=str(number),
                nodes=high,
                kind="malleable" if low < high else "rigid",
                min_nodes=low,
                max_nodes=high,
                walltime=60.0,
                submitted=float(number // 4),
            ),
            2.0 * (number % 3),
        )
        for number, (low, high) in enumerate(sizes)
    ]
    record = Record()
    Machine(Platform(4, decide="event"), Policy.load(policy), record).run(arrivals)
    assert {STATES[code] for code in record.state} == {"completed"}
