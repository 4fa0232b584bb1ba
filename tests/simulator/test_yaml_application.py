"""Our own workload form in full: kinds, speed-ups, requests, phases, the machine."""

import pickle
from math import inf

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.model.speedup import Amdahl, Interpolated, Linear, PowerLaw, Tabulated
from dask_hpc.simulator import load_workload, simulate
from dask_hpc.simulator.platform import Failures, ResizeCost

FULL = """
platform:
  nodes: 16
  speed: 100 Gflop/s
  link: 100 Gbit/s
  file_system: 20 GB/s
  idle_power: 100 W
  active_power: 0.4 kW
  tick: 30 s
  launch: 2 s
  cleanup: 1 s
  resize: {fixed: 2 s, per_process: 0.1, bandwidth: 10 GB/s}
  failures: {mtbf: 1 week, shape: 0.7, repair: 1 h, checkpoint: 30 min, trace: [[1 h, 3], [90, 15]], seed: 4}
jobs:
- {id: a, nodes: 4, runtime: 100, kind: malleable, min_nodes: 2, max_nodes: 8, constraint: pof2,
   speedup: {power_law: 0.8}, data: 4 GiB, cancelled: 1 h, io_intensity: {compute: 3 Tflop, data: 10 GB},
   recorded: 1000 s}
- {id: b, nodes: 2, runtime: 50, kind: evolving, max_nodes: 9, requests: {75 %: 3, 0.25: 9}}
- id: c
  nodes: 4
  kind: evolving
  min_nodes: 2
  max_nodes: 16
  submit: 1 min
  value: 7
  deadline: 2 h
  arguments: {flops: 2 Tflop, alpha: 0.5, steps: 2 * half, half: 3, per: flops / nodes^alpha}
  on_start: [{read: 10 GB / nodes}]
  on_resize: [{communicate: 1 GiB}]
  on_expansion: [{idle: 30 s}]
  phases:
  - {iterations: steps, compute: per, write: 5 GB}
  - iterations: 2
    scheduling_point: false
    request: 2 * nodes
    tasks: [{compute: 1e12}, {write: 2 GB, root_only: true}, {compute: 1 Tflop}, {idle: 2 min}]
"""


def read(tmp_path, text):
    path = tmp_path / "w.yaml"
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(text))
    return load_workload(path)


def test_the_whole_form(tmp_path):
    workload = read(tmp_path, FULL)
    platform = workload.platform
    assert (platform.nodes, workload.nodes) == (16, 16)
    assert (platform.speed, platform.link, platform.file_system) == (100e9, 12.5e9, 20e9)
    assert (platform.idle_power, platform.active_power, platform.tick) == (100, 400, 30)
    assert (platform.launch, platform.cleanup, platform.only_ticks) == (2, 1, False)
    assert platform.resize == ResizeCost(2.0, 0.1, 10e9)
    assert platform.failures == Failures(604800.0, 0.7, 3600.0, 1800.0, ((3600.0, 3), (90.0, 15)), 4)
    a, b, c = workload
    assert (a.job.kind, a.job.min_nodes, a.job.max_nodes, a.job.constraint) == ("malleable", 2, 8, "pof2")
    assert a.job.speedup == a.speedup == PowerLaw(0.8)
    assert (a.data, a.cancelled) == (4 * 2**30, 3600.0)
    assert (a.job.io_intensity.compute, a.job.io_intensity.file_system) == (3e12, 20e9)
    assert b.requests == ((0.25, 9), (0.75, 3)) and b.speedup == Linear() and b.job.speedup is None
    assert (c.job.value, c.job.deadline) == (7, 7260)  # from its submission on
    app = c.application
    first, second = app.phases
    assert (first.iterations, first.scheduling_point, first.request) == (6, True, None)
    assert [(t.kind, t.amount(4), t.amount(16)) for t in first.tasks] == [
        ("compute", 1e12, 5e11),
        ("write", 5e9, 5e9),
    ]
    assert (second.iterations, second.scheduling_point, second.request(3)) == (2, False, 6)
    assert [(t.kind, t.amount(1), t.root_only) for t in second.tasks] == [
        ("compute", 1e12, False),
        ("write", 2e9, True),
        ("compute", 1e12, False),
        ("idle", 120, False),
    ]
    assert app.on_start[0].amount(4) == 2.5e9 and app.on_resize[0].amount(1) == 2**30
    assert app.on_expansion[0].amount(9) == 30
    # 0.5 s reading, six times 10 s and 1 s, twice 10 s, 0.16 s, 10 s and 120 s
    assert c.runtime == pytest.approx(0.5 + 6 * 11 + 2 * (140 + 2 / 12.5))
    assert c.job.io_intensity.data == pytest.approx(10e9 + 6 * 20e9 + 2 * 2e9)
    # of what is told phase by phase it is known how long it takes, of the others what somebody says
    assert (a.job.recorded, b.job.recorded, c.job.recorded) == (1000.0, None, c.runtime)
    assert pickle.loads(pickle.dumps(workload)) == workload


def test_it_runs(tmp_path):
    quiet = FULL.replace("mtbf: 1 week", "mtbf: inf").replace("trace: [[1 h, 3], [90, 15]], ", "")
    jobs = simulate(read(tmp_path, quiet)).jobs
    assert set(jobs["state"]) == {"completed"}


@pytest.mark.parametrize(
    ("text", "speedup"),
    [
        ("linear", Linear()),
        ("{amdahl: 0.05}", Amdahl(0.05)),
        ("{tabulated: {1: 1, 2: 1.9, 8: 5}}", Tabulated(((1, 1.0), (2, 1.9), (8, 5.0)))),
        ("{interpolated: {2: 1.9, 1: 1}}", Interpolated(((1, 1.0), (2, 1.9)))),
        ("{runtimes: {1: 2 min, 2: 60 s}}", Interpolated(((1, 1.0), (2, 2.0)))),
    ],
)
def test_speedups(tmp_path, text, speedup):
    (arrival,) = read(tmp_path, f"jobs: [{{nodes: 1, runtime: 1, speedup: {text}}}]")
    assert arrival.speedup == arrival.job.speedup == speedup


def test_short_and_long_ways_to_say_the_machine(tmp_path):
    job = "jobs: [{nodes: 1, runtime: 1}]"
    assert read(tmp_path, f"nodes: 4\n{job}").platform is None
    both = read(tmp_path, f"nodes: 4\nplatform: {{speed: 2, link: inf}}\n{job}")
    assert (both.nodes, both.platform.speed, both.platform.link) == (4, 2.0, inf)


def _job(more):
    return f"platform: {{nodes: 8}}\njobs: [{{nodes: 4, {more}}}]"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (_job("runtime: 1, kind: malable"),
         "jobs\\[0\\]: job '1': kind: found 'malable'; allowed: rigid, mold"),
        (_job("runtime: 1, kind: malleable, min_nodes: 5"), "min_nodes: found 5; allowed: 1 to nodes=4"),
        (_job("runtime: 1, kind: malleable, max_nodes: 3"), "max_nodes: found 3; allowed: nodes=4 or more"),
        (_job("runtime: 1, kind: malleable, min_nodes: 0"),
         "min_nodes: found 0; allowed: a whole number, 1 or more"),
        (_job("runtime: 1, max_nodes: 8"), "kind: a rigid job has one size"),
        (_job("runtime: 1, constraint: odd"), "nodes: found 4; allowed: a size that is odd"),
        (_job("runtime: 1, constraint: prime"), "constraint: found 'prime'; allowed: any, even"),
        (_job("runtime: -1 s"), "runtime: found -1.0; allowed: 0 s or more"),
        (_job("runtime: 1, data: -1"), "data: found -1; allowed: 0 B or more"),
        (_job("runtime: 1, submit: 10, cancelled: 5"), "cancelled: found 5; allowed: not before"),
        (_job("runtime: 1, speedup: {amdal: 0.1}"), "speedup: 'amdal': unknown speed-up .nearest: amdahl"),
        (_job("runtime: 1, speedup: {amdahl: 2}"), "speedup: amdahl: serial: found 2.0; allowed: 0 to 1"),
        (_job("runtime: 1, speedup: {tabulated: {2: 2}}"), "tabulated: points: .*starts with"),
        (_job("runtime: 1, speedup: {tabulated: {}}"), "tabulated: found {}"),
        (_job("runtime: 1, speedup: fast"), "speedup: found 'fast'; allowed: one of linear"),
        (_job("runtime: 1, requests: {0.5: 2}"), "kind: a rigid job asks for nodes; allowed: evolving"),
        (_job("runtime: 1, kind: evolving, requests: {2: 2}"), "requests: 2: is no share of the work"),
        (_job("runtime: 1, kind: evolving, requests: {0.5: 9}"),
         "requests: 0.5: found 9 nodes .*; allowed: 1 to 8, the nodes of the machine"),
        (_job("runtime: 1, io_intensity: {compute: -1}"), "io_intensity: io_intensity.compute: found -1.0"),
        (_job("runtime: 1, on_start: []"), "jobs\\[0\\]: phases: found None; allowed: a list of phases"),
        (_job("phases: []"), "phases: found \\[\\]; allowed: a list of phases"),
        (_job("phases: [{iterations: 2}]"),
         "phases\\[0\\]: found iterations; allowed: tasks, or else compute"),
        (_job("phases: [{tasks: []}]"), "phases\\[0\\].tasks: found \\[\\]"),
        (_job("phases: [{compute: 1, tasks: [{idle: 1}]}]"), "phases\\[0\\]: found compute, tasks"),
        (_job("phases: [{compte: 1}]"), "phases\\[0\\].compte: unknown key .nearest: compute"),
        (_job("phases: [{tasks: [{compute: 1, idle: 1}]}]"),
         "tasks\\[0\\]: found .*; allowed: one of compute"),
        (_job("phases: [{tasks: [{write: 1, root_only: 1}]}]"), "tasks\\[0\\].root_only: found 1"),
        (_job("phases: [{write: 3 parsecs}]"), "phases\\[0\\].write: expression '3 parsecs', character 3"),
        (_job("phases: [{write: -3}]"), "phases\\[0\\].write: found -3 on 4 nodes; allowed: 0 or more"),
        (_job("phases: [{compute: flops}]"), "phases\\[0\\].compute: unknown name 'flops' in 'flops'"),
        (_job("phases: [{compute: 1 / (nodes - 4)}]"), "compute: expression .*division by zero with nodes=4"),
        (_job("arguments: {a: b, b: a}, phases: [{compute: a}]"),
         "jobs\\[0\\]: arguments: a: is defined by itself: a -> b -> a"),
        (_job("arguments: {nodes: 3}, phases: [{compute: 1}]"), "arguments: nodes: is the number of nodes"),
        (_job("arguments: {1: 3}, phases: [{compute: 1}]"), "arguments: found the name 1"),
        (_job("phases: [{compute: 1, iterations: 0}]"),
         "phases\\[0\\].iterations: found 0; allowed: a whole"),
        (_job("phases: [{compute: 1, iterations: 2.5}]"), "iterations: found 2.5"),
        (_job("phases: [{compute: 1, iterations: nodes}]"), "iterations: unknown name 'nodes'"),
        (_job("phases: [{compute: 1, scheduling_point: 1}]"),
         "scheduling_point: found 1; allowed: true, false"),
        (_job("phases: [{compute: 1, request: 2}]"), "kind: a rigid job asks for nodes; allowed: evolving"),
        (_job("kind: evolving, phases: [{compute: 1}, {compute: 1, request: 3 * nodes}]"),
         "jobs\\[0\\]: phases\\[1\\].request: found 12 nodes .asked for on 4.; allowed: 1 to 8, the nodes"),
        (_job("kind: evolving, phases: [{compute: 1}], requests: {1: 2}"), "requests: the job has phases"),
        ("platform: {nodes: 0}\njobs: [{nodes: 1, runtime: 1}]", "platform: nodes: found 0; allowed: 1 to"),
        ("platform: {speed: 1}\njobs: [{nodes: 1, runtime: 1}]", "platform: nodes: is missing"),
        ("nodes: 3\nplatform: {nodes: 4}\njobs: []", "platform: nodes: found 4 here and 3 outside"),
        ("platform: {nodes: 4, sped: 1}\njobs: []", "platform: sped: unknown key .nearest: speed"),
        ("platform: {nodes: 4, speed: 3 GB/s}\njobs: []", "platform: speed: found '3 GB/s'; .*Gflop/s"),
        ("platform: {nodes: 4, link: 3 Gflop/s}\njobs: []", "platform: link: found '3 Gflop/s'; .*Gbit/s"),
        ("platform: {nodes: 4, link: 0}\njobs: []", "platform: link: found 0.0; allowed: more than 0"),
        ("platform: {nodes: 4, tick: -3 s}\njobs: []", "platform: tick: found -3.0; allowed: 0 or more"),
        ("platform: {nodes: 4, only_ticks: true}\njobs: []", "platform: only_ticks: there is no tick"),
        ("platform: {nodes: 4, resize: {fixed: -1}}\njobs: []", "platform: resize: fixed: found -1"),
        ("platform: {nodes: 4, resize: {cost: 1}}\njobs: []", "platform: resize.cost: unknown key"),
        ("platform: {nodes: 4, failures: {mtbf: 0}}\njobs: []", "platform: failures.mtbf: found 0"),
        ("platform: {nodes: 4, failures: {trace: [[1, 4]]}}\njobs: []",
         "failures.trace: node 4 fails at 1 s; allowed: 0 to 3"),
        ("platform: {nodes: 4, failures: {trace: [1]}}\njobs: []",
         "failures.trace: \\[0\\]: found 1; allowed: .time"),
        ("platform: 3\njobs: []", "platform: found 3"),
    ],
)  # fmt: skip
def test_complaints_name_the_file_the_job_and_the_key(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value) and "w.yaml" in str(caught.value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["nodes", "1 GiB", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 3), inner, max_size=3)
    ),
    max_leaves=8,
)
tasks = st.lists(
    st.dictionaries(st.sampled_from(["compute", "write", "idle", "root_only"]), plain, max_size=2), max_size=3
)
phases = st.lists(
    st.dictionaries(
        st.sampled_from(["compute", "iterations", "request", "scheduling_point"]), plain, max_size=3
    )
    | st.fixed_dictionaries({"tasks": tasks | plain}),
    max_size=2,
)
jobs = st.fixed_dictionaries(
    {"nodes": st.just(2), "kind": st.sampled_from(["evolving", "malleable"])},
    optional={
        "runtime": st.just(1) | plain,
        "phases": phases | plain,
        **dict.fromkeys(("arguments", "on_start", "speedup", "requests", "max_nodes"), plain),
        **dict.fromkeys(("data", "io_intensity", "cancelled"), plain),
    },
)
keys = ["nodes", "speed", "link", "file_system", "tick", "only_ticks", "resize", "failures", "launch"]
platforms = st.dictionaries(st.sampled_from(keys), plain, max_size=3)


@pytest.mark.slow
@given(jobs, platforms | plain | st.just({"nodes": 4}))
@settings(max_examples=300, deadline=None)
def test_any_structure_gives_a_workload_or_a_complaint(tmp_path_factory, job, platform):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump({"platform": platform, "jobs": [job]}))
    try:
        load_workload(path)
    except InputError as error:
        assert "\n" not in str(error)
