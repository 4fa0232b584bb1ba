"""Reading what was written for ElastiSim."""

import copy
import json
import pickle
import shutil
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.simulator.application import Fixed
from dask_hpc.simulator.readers import load_workload
from dask_hpc.simulator.readers.elastisim import load_elastisim
from dask_hpc.simulator.readers.elastisim_application import busiest_link
from dask_hpc.simulator.readers.elastisim_form import Derived

SAMPLE = Path(__file__).parent / "elastisim"


@pytest.fixture
def folder(tmp_path):
    """A copy of the sample that a test may spoil."""
    shutil.copytree(SAMPLE, tmp_path / "elastisim")
    return tmp_path / "elastisim"


def spoil(path, change):
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def application(folder, model, **job):
    """One rigid job of four nodes with this model, on the sample's machine."""
    (folder / "model.json").write_text(json.dumps(model))
    values = {"type": "rigid", "submit_time": 0, "num_nodes": 4, "application_model": "model.json", **job}
    (folder / "jobs.json").write_text(json.dumps({"jobs": [values]}))
    (arrival,) = workload = load_elastisim(folder / "configuration.json")
    return arrival.application, workload.notes


def tasks(folder, *found, **job):
    read, notes = application(folder, {"phases": [{"tasks": list(found)}]}, **job)
    return read.phases[0].tasks, notes


def test_the_sample():
    workload = load_workload(SAMPLE / "configuration.json")
    assert workload.nodes == 16 and workload.platform.speed == 200e9 and workload.platform.link == 10e9
    assert (workload.platform.file_system, workload.platform.writing) == (20e9, 16e9)
    assert (workload.platform.tick, workload.platform.only_ticks) == (60.0, False)
    kinds = [(a.job.id, a.job.kind, a.job.min_nodes, a.job.nodes, a.job.max_nodes) for a in workload]
    assert kinds == [
        ("0", "rigid", 4, 4, 4),
        ("1", "moldable", 2, 2, 8),
        ("2", "malleable", 1, 4, 16),
        ("3", "evolving", 2, 2, 12),
        ("4", "evolving", 2, 2, 4),
    ]
    first = workload.arrivals[0]
    assert (first.job.walltime, first.job.priority, first.job.user) == (7200.0, 3.0, "ada")
    # One window of 4 MiB in twice 1.002 ms: on few nodes that is less than the share of 16 GB/s.
    stream = 4194304 / 2.004e-3
    assert workload.platform.stream == pytest.approx(stream) and stream < 4e9
    # By hand: 4 GB reading; 10 times 100 s computing (the ring is hidden), 2 x (0.075 s and 8 GB), 4 GB
    # writing; 2 s burst buffer, 1.5 s idle; 1 + 10 * 3 latencies of the file system, 10 * 3 between nodes.
    late = 31 * 1.002e-3 + 30 * 4e-6
    assert first.runtime == pytest.approx(10 * 100.15 + 3.5 + (4e9 + 10 * (2 * 8e9 + 4e9)) / stream + late)
    assert workload.arrivals[1].application.phases[0].iterations == 6
    assert workload.arrivals[3].application.phases[1].request(2) == 6
    # 2e14 flops on 4 GPUs of 5 Tflop/s, four times, after 8 GB out of a burst buffer of 4 GB/s
    assert workload.arrivals[4].runtime == pytest.approx(42)
    assert any("latencies" in note for note in workload.notes)
    assert any("'dependency'" in note for note in workload.notes)
    assert pickle.loads(pickle.dumps(workload)) == workload


def test_jobs_alone_say_nothing_of_the_machine(folder):
    spoil(folder / "jobs.json", lambda found: found["jobs"].pop())  # GPUs need a platform
    workload = load_workload(folder / "jobs.json")
    assert workload.platform is None and workload.nodes is None and len(workload) == 4
    kinds = [task.kind for task in workload.arrivals[0].application.phases[0].tasks]
    assert kinds == ["compute", "communicate", *["communicate", "write"] * 2, "write"]
    assert any("no burst buffers" in note for note in workload.notes)


def test_start_at_the_most(folder):
    workload = load_elastisim(folder / "configuration.json", start="most")
    assert [a.job.nodes for a in workload] == [4, 8, 4, 12, 4]


@pytest.mark.parametrize(
    ("pattern", "amounts"),
    [
        ("all_ranks", (60.0, 15.0, 12.0)),
        ("total", (60.0, 15.0, 12.0)),
        ("uniform", (60.0, 60.0, 60.0)),
        ("root_only", (60.0, 60.0, 60.0)),
        ("even_ranks", (60.0, 30.0, 20.0)),
        ("odd_ranks", (0.0, 30.0, 30.0)),
        ("all_to_all", (0.0, 15.0, 12.0)),
        ("gather", (0.0, 45.0, 48.0)),
        ("scatter", (0.0, 45.0, 48.0)),
        ("master_worker", (0.0, 120.0, 120.0)),
        ("ring", (0.0, 15.0, 12.0)),
        ("ring_clockwise", (0.0, 15.0, 12.0)),
        ("ring_counter_clockwise", (0.0, 15.0, 12.0)),
    ],
)
def test_patterns_on_one_four_and_five_nodes(pattern, amounts):
    busiest = Derived(pattern, (Fixed(60.0),))
    assert tuple(busiest(nodes) for nodes in (1, 4, 5)) == pytest.approx(amounts)


def matrix_of(pattern, nodes):
    """What each sends to each, of a payload of 60: the matrix that ElastiSim builds."""
    cells = [[0.0] * nodes for _ in range(nodes)]
    for node in range(nodes):
        match pattern:
            case "all_to_all":
                for other in range(nodes):
                    cells[node][other] = 60 / (nodes * nodes - nodes)
            case "gather" if node:
                cells[node][0] = 60 / nodes
            case "scatter" if node:
                cells[0][node] = 60 / nodes
            case "master_worker" if node:
                cells[0][node] = cells[node][0] = 60 / ((nodes - 1) / 2)
            case "ring_clockwise":
                cells[node][(node + 1) % nodes] += 60 / nodes
            case "ring":
                for step in (-1, 1):
                    cells[node][(node + step) % nodes] += 60 / (2 * nodes)
    return [cell for row in cells for cell in row]


MATRICES = ["all_to_all", "gather", "scatter", "master_worker", "ring_clockwise", "ring"]


@given(st.integers(2, 12), st.sampled_from(MATRICES))
def test_patterns_are_the_busiest_links_of_their_matrices(nodes, pattern):
    """The closed forms against the matrices that ElastiSim builds."""
    matrix = busiest_link(matrix_of(pattern, nodes), nodes, "bytes")
    assert matrix(1) == pytest.approx(Derived(pattern, (Fixed(60.0),))(nodes))


def test_explicit_vectors_and_matrices(folder):
    found, notes = tasks(
        folder,
        {"type": "cpu", "flops": [1, 2, 3, 4], "computation_pattern": "vector"},
        {"type": "pfs_write", "bytes": [4, 0, 0, 0], "pattern": "vector"},
        {"type": "pfs_write", "bytes": [4, 0, 4, 0], "pattern": "vector"},
        {"type": "cpu", "bytes": [9, 1, 1, 1, *[0] * 12], "communication_pattern": "matrix"},
    )
    assert [(task.kind, task.amount(4), task.root_only) for task in found] == [
        ("compute", 4.0, False),
        ("write", 4.0, True),
        ("write", 2.0, False),
        ("communicate", 3.0, False),
    ]
    assert any("shared evenly by all" in note for note in notes)


def test_communication_hides_behind_computation(folder):
    found, _ = tasks(
        folder,
        {"type": "cpu", "flops": 200e9, "computation_pattern": "uniform",
         "bytes": 60e9, "communication_pattern": "all_to_all"},
    )  # fmt: skip
    # one second of computing hides 10 GB of the 15 that each link carries from 4 us on
    late = 4e-6 * 10e9
    assert [(task.kind, task.amount(4)) for task in found] == [
        ("compute", 200e9),
        ("communicate", 5e9 + late),
    ]


def test_iterations_of_tasks_and_sequences(folder):
    inner = [{"type": "idle", "delay": 1, "pattern": "uniform"}, {"type": "busy_wait", "delay": "num_nodes",
                                                                  "pattern": "uniform"}]  # fmt: skip
    found, notes = tasks(
        folder,
        {"type": "idle", "delay": 2, "pattern": "uniform", "iterations": 3},
        {"type": "sequence", "iterations": 2, "tasks": inner},
        {"type": "sequence", "iterations": "num_nodes", "tasks": inner},
        {"type": "sequence", "iterations": 1_000_000, "tasks": inner},
    )
    assert [task.amount(4) for task in found] == [6, 1, 4, 1, 4, 4, 16, 1_000_000, 4_000_000]
    assert any("in one go" in note for note in notes)


def test_sequences_within_sequences(folder):
    task = {"type": "idle", "delay": 1, "pattern": "uniform"}
    for depth, fine in ((40, True), (41, False), (400, False)):
        nested = task
        for _ in range(depth):
            nested = {"type": "sequence", "tasks": [nested]}
        if fine:
            assert len(tasks(folder, nested)[0]) == 1
        else:
            with pytest.raises(InputError, match="nested too deeply; allowed: 40"):
                tasks(folder, nested)


def test_older_and_newer_one_time_phases(folder):
    step = {"type": "idle", "delay": 1, "pattern": "uniform"}
    for once in ([step, step], {"tasks": [step, step]}, {"iterations": 2, "tasks": [step]}):
        read, _ = application(folder, {"on_init": once, "phases": [{"tasks": [step]}]})
        assert sum(task.amount(4) for task in read.on_start) == 2
    read, _ = application(folder, {"on_init": None, "phases": []})
    assert read.on_start == () and read.phases == ()


def test_gpus(folder):
    task = {"type": "gpu", "bytes": 120, "communication_pattern": "all_to_all"}
    found, _ = tasks(folder, task, num_gpus_per_node=2)
    assert found[0].amount(4) == pytest.approx(120 * 6 / 7 / 4)  # 6 of 7 partners are elsewhere
    for change, complaint in (
        ({}, "is for GPUs, and its job uses 0"),
        ({"num_gpus_per_node": 5}, "uses 5 on each node; allowed: num_gpus_per_node from 1 to 4"),
    ):
        with pytest.raises(InputError, match=complaint):
            tasks(folder, task, **change)
    with pytest.raises(InputError, match=r"phases\[0\].tasks\[0\]: is for GPUs, and without a platform"):
        load_elastisim(folder / "jobs.json")


def _platform(folder, inside):
    head = "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM 'x.dtd'>\n<platform version='4.1'>"
    text = f"{head}{inside}</platform>"
    (folder / "platform.xml").write_text(text)

    def no_links(found):
        del found["pfs_read_links"], found["pfs_write_links"]

    if "pfs_read_links" in json.loads((folder / "configuration.json").read_text()):
        spoil(folder / "configuration.json", no_links)
    spoil(folder / "jobs.json", lambda found: found.update(jobs=found["jobs"][:1]))
    workload = load_elastisim(folder / "configuration.json")
    return workload.platform, workload.notes


def test_platform_of_plain_hosts(folder):
    platform, notes = _platform(
        folder,
        "<AS id='a' routing='Full'><host id='h1' speed='2Gf'/><host id='h2' speed='1500Mf'/>"
        "<host id='s' speed='1f'><prop id='pfs_host' value='true'/></host>"
        "<link id='l1' bandwidth='1GBps' latency='1us'/><link id='l2' bandwidth='1GBps'/>"
        "<link id='fs' bandwidth='16Gbps'/><storage_type id='x'/>"
        "<route src='h1' dst='s'><link_ctn id='l1'/><link_ctn id='fs'/></route>"
        "<route src='h2' dst='s'><link_ctn id='l2'/><link_ctn id='fs'/></route></AS>",
    )
    assert (platform.nodes, platform.speed, platform.link, platform.file_system) == (2, 1.5e9, 1e9, 2e9)
    assert any("storage_type" in note for note in notes) and any("differ in speed" in note for note in notes)


def test_platform_without_a_file_system(folder):
    platform, notes = _platform(folder, "<cluster id='c' radical='0-3' speed='1e9' bw='125MBps'/>")
    assert (platform.nodes, platform.file_system) == (4, inf) and platform.link == 125e6
    assert any("no file system" in note for note in notes)


@pytest.mark.parametrize(
    ("inside", "complaint"),
    [
        ("", "platform: has no compute nodes"),
        ("<cluster id='c' radical='0-3' bw='1Gbps'/>", "cluster 'c': speed: is missing"),
        ("<cluster id='c' radical='0-3' speed='1Gf'/>", "cluster 'c': bw: is missing"),
        ("<cluster id='c' radical='3-0' speed='1Gf' bw='1Gbps'/>", "radical: found '3-0'"),
        ("<cluster id='c' radical='0-99999999' speed='1Gf' bw='1Gbps'/>", "100,000,000 nodes"),
        ("<cluster id='c' radical='0' speed='1GB' bw='1Gbps'/>", "speed: found '1GB'; allowed: .* 100Gf"),
        ("<cluster id='c' radical='0' speed='1Gf' bw='1Xbps'/>", "bw: found '1Xbps'"),
        ("<cluster id='c' radical='0' speed='0Gf' bw='1Gbps'/>", "speed 0"),
        ("<cluster id='c' radical='0' speed='1Gf' bw='0Gbps'/>", "bw: found 0"),
        ("<cluster", "line 3: not XML"),
        ("<cluster id='c' radical='0' speed='1Gf' bw='1Gbps'><prop id='num_gpus' value='2'/></cluster>",
         "flops_per_gpu: is missing"),
        ("<cluster id='c' radical='0' speed='1' bw='1Gbps'><prop id='node_local_bb' value='true'/></cluster>",
         "bb_read_bw: is missing"),
    ],
)  # fmt: skip
def test_platform_complaints(folder, inside, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        _platform(folder, inside)
    assert "platform.xml" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_entities_are_refused_in_any_encoding(folder, encoding):
    bomb = (
        '<?xml version="1.0"?><!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><platform>&b;</platform>'
    )
    (folder / "platform.xml").write_bytes(bomb.encode(encoding))
    with pytest.raises(InputError, match=r"platform.xml: (line 1: found '(<!ENTITY|.x00)'|not text)"):
        load_elastisim(folder / "configuration.json")


def _set(path, value):
    *front, last = path

    def change(found):
        for key in front:
            found = found[key]
        if value is KeyError:
            del found[last]
        else:
            found[last] = value

    return change


@pytest.mark.parametrize(
    ("file", "path", "value", "complaint"),
    [
        ("configuration.json", ["jobs_fil"], "x",
         "configuration.json: jobs_fil: unknown key .nearest: jobs_file"),
        ("configuration.json", ["platform_file"], KeyError, "configuration.json: platform_file: is missing"),
        ("configuration.json", ["jobs_file"], "no.json", "jobs_file: there is no file 'no.json'"),
        ("configuration.json", ["jobs_file"], "\0", "jobs_file: found"),
        ("configuration.json", ["sensing"], 3, "sensing: found 3; allowed: true, false"),
        ("configuration.json", ["pfs_read_links"], ["nope"], "has no link 'nope'; allowed: storage_in"),
        ("jobs.json", ["jobs"], [], "jobs.json: jobs: found"),
        ("jobs.json", ["jobs", 1, "type"], "modable", "jobs.1.: type: found 'modable' .nearest: moldable"),
        ("jobs.json", ["jobs", 1, "type"], KeyError, "jobs.1.: type: found None"),
        ("jobs.json", ["jobs", 0, "num_nodes_min"], 2, "jobs.0.: num_nodes_min: unknown key"),
        ("jobs.json", ["jobs", 0, "num_nodes"], KeyError, "jobs.0.: num_nodes: is missing"),
        ("jobs.json", ["jobs", 0, "num_nodes"], 0, "num_nodes: found 0; allowed: a whole number, 1 or more"),
        ("jobs.json", ["jobs", 1, "num_nodes_max"], 1, "num_nodes_max: found 1; allowed: num_nodes_min=2"),
        ("jobs.json", ["jobs", 0, "submit_time"], -1, "submit_time: found -1"),
        ("jobs.json", ["jobs", 0, "submit_time"], "soon", "submit_time: found 'soon'"),
        ("jobs.json", ["jobs", 0, "walltime"], -1, "walltime: found -1"),
        ("jobs.json", ["jobs", 0, "wall_time"], 1, "wall_time: unknown key .nearest: walltime"),
        ("jobs.json", ["jobs", 0, "arguments"], {},
         "solver.json: on_init.tasks.0..bytes: unknown name 'field'"),
        ("jobs.json", ["jobs", 1, "arguments", "half"], "steps",
         "arguments: steps: is defined by itself: steps -> half -> steps"),
        ("jobs.json", ["jobs", 0, "arguments", "num_gpus"], 1, "arguments.num_gpus: is given by"),
        ("jobs.json", ["jobs", 0, "attributes", "priority"], "high", "attributes.priority: found 'high'"),
        ("jobs.json", ["jobs", 2, "attributes", "nodes"], 17, "attributes.nodes: found 17; .* 1 to 16"),
        ("jobs.json", ["jobs", 0, "application_model"], 3, "application_model: found 3"),
        ("solver.json", ["phase"], 1, "solver.json: phase: unknown key .nearest: phases"),
        ("solver.json", ["phases"], KeyError, "solver.json: phases: is missing"),
        ("solver.json", ["phases", 0, "iteration"], 1, "phases.0..iteration: unknown key"),
        ("solver.json", ["phases", 0, "iterations"], "num_nodes", "iterations: unknown name 'num_nodes'"),
        ("solver.json", ["phases", 0, "iterations"], -1, "iterations: found -1, that is -1; allowed: 0 to"),
        ("solver.json", ["phases", 0, "iterations"], "1/0", "iterations: expression '1/0': division by zero"),
        ("solver.json", ["phases", 0, "tasks", 0, "type"], "cpus",
         "tasks.0..type: found 'cpus' .nearest: cpu"),
        ("solver.json", ["phases", 0, "tasks", 0, "flop"], 1, "tasks.0..flop: unknown key .nearest: flops"),
        ("solver.json", ["phases", 0, "tasks", 0, "flops"], -5, "tasks.0..flops: found -5 on 4 nodes"),
        ("solver.json", ["phases", 0, "tasks", 0, "flops"], "work//2",
         "flops: expression 'work//2', character 6"),
        ("solver.json", ["phases", 0, "tasks", 0, "computation_pattern"], "even",
         "computation_pattern: found 'even' .nearest: even_ranks"),
        ("solver.json", ["phases", 0, "tasks", 0, "communication_pattern"], KeyError,
         "communication_pattern: found None"),
        ("solver.json", ["phases", 0, "tasks", 1, "tasks", 1, "pattern"], "vector",
         "tasks.1..tasks.1..bytes: found 'field / 2'; allowed: a list of 4 numbers"),
        ("solver.json", ["phases", 0, "tasks", 2, "bytes"], KeyError, "tasks.2..bytes: is missing"),
        ("solver.json", ["phases", 1, "tasks", 0, "async"], "yes", "async: found 'yes'"),
        ("refinement.json", ["phases", 1, "evolving_request"], "1/0", "evolving_request: .*division by zero"),
        ("training.json", ["phases", 0, "tasks", 0, "communication_pattern"], "gather",
         "communication_pattern: found 'gather' for GPUs"),
    ],
)  # fmt: skip
def test_complaints_name_the_file_and_the_key(folder, file, path, value, complaint):
    spoil(folder / file, _set(path, value))
    with pytest.raises(InputError, match=complaint) as caught:
        load_elastisim(folder / "configuration.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"{", "jobs.json: line 1: not JSON"),
        (b'{"jobs": [], "jobs": []}', "jobs.json: the key 'jobs' is said twice"),
        (b'{"jobs": NaN}', "jobs.json: found NaN"),
        (b"[" * 100_000, "jobs.json: nested too deeply"),
        (b"\xff\xfe", "jobs.json: not text"),
        (b'{"jobs": 1' + b"0" * 5000 + b"}", "jobs.json: not JSON"),
        (b"3", "jobs.json: found 3"),
        (b'{"workload": 3}', "jobs.json: workload: unknown key"),
    ],
)
def test_files_that_are_none(tmp_path, text, complaint):
    (tmp_path / "jobs.json").write_bytes(text)
    with pytest.raises(InputError, match=complaint) as caught:
        load_workload(tmp_path / "jobs.json")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        load_workload(tmp_path / "none.json")


def _paths(found, path=()):
    yield path
    for key, value in (
        found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    ):
        yield from _paths(value, (*path, key))


_MODEL = json.loads((SAMPLE / "solver.json").read_text())
_JOBS = json.loads((SAMPLE / "jobs.json").read_text())
odd = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        0.5,
        10**30,
        1e308,
        "",
        "x",
        "num_nodes",
        "1/0",
        "a b",
        [],
        {},
        [1],
        {"a": 1},
        "1 ?",
        "phase_iteration - 1",
        "num_nodes_min",
        "/data/jobs.json",
        "/",
    ]
)


@pytest.mark.slow
@given(st.sampled_from(["jobs", "solver"]), st.data(), odd)
@settings(max_examples=200, deadline=None)
def test_anything_gives_a_workload_or_a_complaint(tmp_path_factory, which, data, value):
    folder = tmp_path_factory.mktemp("spoilt") / "elastisim"
    shutil.copytree(SAMPLE, folder)
    found = copy.deepcopy(_JOBS if which == "jobs" else _MODEL)
    path = data.draw(st.sampled_from([path for path in _paths(found) if path]))
    _set(path, value)(found)
    (folder / f"{which}.json").write_text(json.dumps(found))
    try:
        load_elastisim(folder / "configuration.json")
    except InputError as error:
        assert "\n" not in str(error)
    finally:
        shutil.rmtree(folder)
