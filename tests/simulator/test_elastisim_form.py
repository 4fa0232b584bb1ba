"""ElastiSim's models as jobs fill them: formulas with the iteration, arguments, files, start sizes."""

import cProfile
import gc
import json
import pickle
import pstats
import random
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dask_hpc import InputError, simulate
from dask_hpc.cli import cli
from dask_hpc.simulator.application import MOST_VARYING, Fixed, during, io_demand, quiet_runtime, varies
from dask_hpc.simulator.execution import Phased, Wait
from dask_hpc.simulator.platform import Failures, Platform
from dask_hpc.simulator.readers import load_workload
from dask_hpc.simulator.readers.elastisim import load_elastisim
from dask_hpc.simulator.readers.elastisim_form import Derived

SAMPLE = Path(__file__).parent / "elastisim"
IDLE = {"type": "idle", "delay": 1, "pattern": "uniform"}


def write(folder, models, *jobs):
    """A folder with these models, and a file of jobs."""
    for name, phases in models.items():
        (folder / f"{name}.json").write_text(json.dumps({"phases": phases}))
    common = {"submit_time": 0, "application_model": "model.json"}
    (folder / "jobs.json").write_text(json.dumps({"jobs": [common | job for job in jobs]}))
    return folder / "jobs.json"


def only(folder, phase, **job):
    """What one job does, by default on two nodes."""
    path = write(
        folder, {"model": [phase]}, {"type": "rigid"} | ({} if "type" in job else {"num_nodes": 2}) | job
    )
    (arrival,) = load_elastisim(path)
    return arrival.application


def delay(text, **others):
    return {"type": "idle", "delay": text, "pattern": "uniform"} | others


def lengths(application, nodes=2):
    """Of the tasks of each iteration, one after the other."""
    return [
        task.amount(nodes) for phase in application.phases for tasks, _ in phase.rounds() for task in tasks
    ]


def test_amounts_vary_with_the_iteration_of_their_phase(tmp_path):
    phase = {"iterations": 4, "tasks": [delay("phase_iteration % 2 == 0 ? 10 * num_nodes : 1"), IDLE]}
    application = only(tmp_path, phase)
    assert lengths(application) == [20, 1, 1, 1, 20, 1, 1, 1]
    platform = Platform(4)
    assert quiet_runtime(application, platform, 2) == 20 + 1 + 20 + 1 + 4
    assert io_demand(application, platform, 2).compute == 2 * 46
    assert pickle.loads(pickle.dumps(application)) == application
    result = simulate(tmp_path / "jobs.json", policy="fcfs", nodes=4)
    assert list(result.jobs["end"]) == [46.0]


def test_each_phase_counts_its_own_iterations_from_zero(tmp_path):
    phases = [{"iterations": 2, "tasks": [delay("phase_iteration")]}] * 2
    path = write(tmp_path, {"model": phases}, {"type": "rigid", "num_nodes": 1})
    (arrival,) = load_elastisim(path)
    assert lengths(arrival.application, 1) == [0, 1, 0, 1]


def test_by_way_of_arguments_and_in_a_sequence(tmp_path):
    inner = [delay("later + 1"), delay(2)]
    phase = {
        "iterations": 3,
        "tasks": [{"type": "sequence", "iterations": "1 + phase_iteration", "tasks": inner}],
    }
    application = only(tmp_path, phase, arguments={"later": "10 * phase_iteration"})
    # iterations of one task are one longer task
    assert lengths(application) == [1, 2, 11 * 2, 2 * 2, 21 * 3, 2 * 3]


def test_an_argument_of_that_name_is_meant(tmp_path):
    application = only(tmp_path, {"iterations": 2, "tasks": [delay("phase_iteration")]},
                       arguments={"phase_iteration": 5})  # fmt: skip
    assert lengths(application) == [5, 5] and not varies(application.phases[0].tasks[0].amount)
    application = only(tmp_path, {"iterations": 2, "tasks": [delay("phase_iteration + 1")]},
                       arguments={"phase_iteration": "3 * num_nodes"})  # fmt: skip
    assert lengths(application) == [7, 7] and not varies(application.phases[0].tasks[0].amount)


@pytest.mark.parametrize(
    ("phase", "complaint"),
    [
        ({"iterations": "phase_iteration", "tasks": []}, "iterations: unknown name 'phase_iteration'"),
        ({"iterations": 3, "tasks": [delay("1 - phase_iteration")]},
         "delay: found -1 on 2 nodes in iteration 2 of its phase; allowed: 0 or more"),
        ({"iterations": 3, "tasks": [delay("1 / (2 - phase_iteration)")]}, "delay: .*division by zero"),
        ({"iterations": MOST_VARYING + 1, "tasks": [delay("phase_iteration")]},
         "delay: is another amount in each of 100,001 iterations"),
        ({"tasks": [delay("num_node > 1 ? 2 : 1")]}, "unknown name 'num_node' .*nearest: num_nodes"),
        ({"tasks": [delay("hal + 1")]}, "unknown name 'hal' .*nearest: half.; allowed: half, num_gpus"),
        ({"tasks": [delay("num_gpu")]}, "unknown name 'num_gpu' .*nearest: num_gpus"),
        ({"tasks": [delay("work")]}, "arguments.'work': expression 'wf-1a', character 5: found 'a'"),
        ({"tasks": [delay("more")]}, "arguments: more: unknown name 'nobody'"),
    ],
)  # fmt: skip
def test_complaints_about_formulas(tmp_path, phase, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        only(tmp_path, phase, arguments={"work": "wf-1a", "more": "nobody + 1", "half": 0.5})
    assert "\n" not in str(caught.value)


def test_where_there_is_no_phase_there_is_no_iteration(tmp_path):
    (tmp_path / "model.json").write_text(
        json.dumps({"on_init": {"tasks": [delay("phase_iteration")]}, "phases": []})
    )
    job = {"type": "rigid", "num_nodes": 1, "submit_time": 0, "application_model": "model.json"}
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [job]}))
    with pytest.raises(InputError, match=r"on_init.tasks\[0\].delay: unknown name 'phase_iteration'"):
        load_elastisim(tmp_path / "jobs.json")


def asked(folder, text, *, iterations=3, **job):
    """What a job on 4 of 2 to 6 nodes asks for before each iteration of its second phase."""
    phase = {"iterations": iterations, "evolving_request": text, "tasks": [IDLE]}
    one = {"type": "evolving", "num_nodes_min": 2, "num_nodes_max": 6} | job
    (arrival,) = load_elastisim(write(folder, {"model": [{"tasks": [IDLE]}, phase]}, one))
    return [request(4) for _, request in arrival.application.phases[1].rounds()]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("num_nodes - 4", [2, 2, 2]),
        ("num_nodes - 1.5", [2, 2, 2]),  # 2.5, of which ElastiSim keeps the whole nodes
        ("-100", [2, 2, 2]),
        ("num_nodes * 8", [6, 6, 6]),
        ("phase_iteration == 1 ? num_nodes_max : num_nodes_min", [2, 6, 2]),
        ("if(phase_iteration > 0 and not(phase_iteration == 2), 5, num_nodes)", [4, 5, 4]),
    ],
)
def test_requests_are_cut_to_the_range_of_the_job(tmp_path, text, sizes):
    assert asked(tmp_path, text) == sizes
    assert asked(tmp_path, text, type="adaptive") == sizes


def test_a_job_that_gives_back_what_it_does_not_need(tmp_path):
    phase = {"iterations": 3, "evolving_request": "num_nodes - 4", "tasks": [delay("100 / num_nodes")]}
    job = {"type": "evolving", "num_nodes_min": 2, "num_nodes_max": 10, "attributes": {"nodes": 10}}
    path = write(tmp_path, {"model": [phase]}, job)
    result = simulate(path, policy="egs-pwma", nodes=10)
    # on 10, 6 and 2 nodes
    assert list(result.jobs["end"]) == [pytest.approx(10 + 100 / 6 + 50)]


def test_a_job_that_has_just_started_asks_for_nothing(tmp_path):
    """As in ElastiSim: before the first iteration of its first phase, even if that comes after empty ones."""
    text = "phase_iteration == 0 ? num_nodes_max : num_nodes"
    phase = {"iterations": 3, "evolving_request": text, "tasks": [delay("12 / num_nodes")]}
    job = {"type": "evolving", "num_nodes_min": 2, "num_nodes_max": 4}
    path = write(tmp_path, {"model": [phase | {"iterations": 0}, phase]}, job)
    (arrival,) = load_elastisim(path)
    (only_one,) = arrival.application.phases
    requests = [request and request(2) for _, request in only_one.rounds()]
    assert requests == [None, 2, 2] and [request(2) for _, request in only_one.rounds(1)] == [2, 2]
    assert list(simulate(path, policy="egs-pwma", nodes=4).jobs["end"]) == [18.0]
    write(tmp_path, {"model": [phase, phase]}, job)  # asks at the beginning of its second phase
    assert list(simulate(path, policy="egs-pwma", nodes=4).jobs["end"]) == [18.0 + 9.0]


def test_arguments_that_nobody_uses_may_be_anything(tmp_path):
    odd = {"id": "wf-1a", "none": None, "parts": [1], "circle": "circle + 1", "what": "unknown * 2"}
    application = only(tmp_path, {"tasks": [delay("half")]}, arguments={"half": "work / 2", "work": 8} | odd)
    assert lengths(application) == [4.0]
    chain = {"half": "work / 2", "work": "more + 1", "more": "most - 1", "most": "num_nodes_max * 4"}
    assert lengths(only(tmp_path, {"tasks": [delay("half")]}, arguments=chain | odd)) == [4.0]


def test_true_is_not_the_number_one(tmp_path):
    jobs = [{"type": "rigid", "num_nodes": 1, "arguments": {"t": value}} for value in (1, True)]
    path = write(tmp_path, {"model": [{"tasks": [delay("t")]}]}, *jobs)
    with pytest.raises(InputError, match=r"jobs\[1\]: arguments.'t': found True"):
        load_elastisim(path)


def test_jobs_alike_share_what_they_do_and_others_do_not(tmp_path):
    jobs = [
        {"type": "rigid", "num_nodes": nodes, "arguments": {"t": t, "id": str(number)}}
        for number, (nodes, t) in enumerate([(1, 2), (1, 2.5), (2, 2), (1, 2)])
    ]
    path = write(tmp_path, {"model": [{"tasks": [delay("t * num_nodes_max")]}]}, *jobs)
    found = [arrival.application for arrival in load_elastisim(path)]
    assert [lengths(one) for one in found] == [[2.0], [2.5], [4.0], [2.0]]
    assert found[0] is found[3] and found[0] is not found[1]
    jobs = [
        {"type": "moldable", "num_nodes_min": 1, "num_nodes_max": most, "arguments": {"t": 2}}
        for most in (3, 5)
    ]
    write(tmp_path, {}, *jobs)
    assert [lengths(arrival.application) for arrival in load_elastisim(path)] == [[6.0], [10.0]]


@pytest.fixture
def contained(tmp_path):
    """The sample as it was in a container, under ``/data``: elsewhere now."""
    folder = tmp_path / "project" / "data" / "elastisim"
    shutil.copytree(SAMPLE, folder)
    found = json.loads((folder / "configuration.json").read_text())
    found |= {"jobs_file": "/data/elastisim/jobs.json", "platform_file": "/data/elastisim/platform.xml"}
    (folder / "configuration.json").write_text(json.dumps(found))
    jobs = json.loads((folder / "jobs.json").read_text())
    for job in jobs["jobs"]:
        job["application_model"] = "/data/" + job["application_model"]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    return folder


def test_files_of_a_container(contained):
    workload, known = (
        load_workload(contained / "configuration.json"),
        load_workload(SAMPLE / "configuration.json"),
    )
    assert list(workload) == list(known)
    notes = [note for note in workload.notes if "are taken from" in note]
    assert notes == [f"there is no / here: its files are taken from {contained.parents[1]}"]


def test_the_longest_end_of_a_path_is_taken(contained):
    (contained / "jobs.json").rename(contained.parents[1] / "jobs.json")  # above: still found
    assert len(load_workload(contained / "configuration.json")) == 5
    other = contained / "data" / "elastisim"
    other.mkdir(parents=True)
    (other / "jobs.json").write_text("{}")  # more of the path fits here
    with pytest.raises(InputError, match=r"data/elastisim/jobs.json: jobs: is missing"):
        load_workload(contained / "configuration.json")


def test_files_that_are_nowhere(contained):
    (contained / "jobs.json").unlink()
    with pytest.raises(InputError, match=r"jobs_file: there is no file '/data/elastisim/jobs.json' in"):
        load_workload(contained / "configuration.json")


def test_starting_on_most_nodes_on_the_command_line():
    mean = {}
    for start in ("fewest", "most"):
        args = [
            "simulate",
            str(SAMPLE / "configuration.json"),
            "--policy",
            "fcfs",
            "--json",
            "--start",
            start,
        ]
        found = CliRunner().invoke(cli, args)
        assert found.exit_code == 0, found.output
        mean[start] = json.loads(found.stdout)["policies"]["fcfs"]
        assert f"start on the {start} nodes" in found.stderr
        again = CliRunner().invoke(cli, [*args, "--seeds", "1"])
        assert again.exit_code == 0, again.output
        study = json.loads(again.stdout)["policies"]["fcfs"]
        assert study["makespan"] == mean[start]["makespan"]
    assert mean["fewest"]["makespan"] != mean["most"]["makespan"]
    found = CliRunner().invoke(cli, ["simulate", "x.json", "--start", "all"])
    assert found.exit_code == 2 and "--start" in found.output


def many(folder, jobs, draw):
    """Jobs of three models with numbers that are all different, on the sample's machine."""
    shutil.copy(SAMPLE / "platform.xml", folder / "platform.xml")
    (folder / "configuration.json").write_text(
        json.dumps({"jobs_file": "jobs.json", "platform_file": "platform.xml"})
    )
    flops = {"type": "cpu", "flops": "flops/num_nodes^0.8", "computation_pattern": "uniform"}
    traffic = {"bytes": "traffic", "communication_pattern": "all_to_all"}
    output = {"type": "pfs_write", "bytes": "output", "pattern": "all_ranks"}
    models = {
        "plain": [{"tasks": [flops]}],
        "solver": [{"iterations": "steps", "tasks": [flops | traffic, output]}],
        "wait": [{"tasks": [delay("runtime")]}],
    }
    found = []
    for number in range(jobs):
        sizes = {"type": "rigid", "num_nodes": 2 ** draw.randrange(5)}
        if number % 2:
            sizes = {"type": "malleable", "num_nodes_min": 2 ** draw.randrange(3), "num_nodes_max": 16}
        names = ("flops", "traffic", "output", "runtime")
        arguments = {name: draw.uniform(1, 1e9) for name in names} | {"steps": draw.randint(1, 50)}
        found.append(
            {"submit_time": number, "walltime": draw.randint(1, 90_000), "arguments": arguments,
             "application_model": draw.choice(list(models)) + ".json"} | sizes
        )  # fmt: skip
    write(folder, models, *found)
    return folder / "configuration.json"


def test_reading_calls_little_for_each_job(tmp_path):
    """Counted: calls of functions for each of many jobs, of which no two are alike. They were a thousand."""
    path = many(tmp_path, 600, random.Random(3))
    load_elastisim(path)
    profile = cProfile.Profile()
    profile.enable()
    workload = load_elastisim(path)
    profile.disable()
    assert len(workload) == 600 and len({arrival.runtime for arrival in workload}) == 600
    assert pstats.Stats(profile).total_calls / 600 < 250


def test_garbage_is_collected_again_after_reading(tmp_path):
    path = write(tmp_path, {"model": [{"tasks": [delay(1)]}]}, {"type": "rigid", "num_nodes": 1})
    broken = tmp_path / "broken.json"
    broken.write_text('{"jobs": [3]}')
    for before in (gc.enable, gc.disable):
        before()
        try:
            was_on = gc.isenabled()
            load_elastisim(path)
            assert gc.isenabled() == was_on
            with pytest.raises(InputError):
                load_elastisim(broken)
            assert gc.isenabled() == was_on
        finally:
            gc.enable()


def test_amounts_during_an_iteration():
    fixed = Fixed(3.0)
    assert during(fixed, 7) is fixed and not varies(fixed) and not varies(Derived("total", (fixed,)))


def test_who_goes_on_goes_on_with_the_amounts_of_that_iteration(tmp_path):
    application = only(tmp_path, {"iterations": 4, "tasks": [delay("10 ^ phase_iteration")]})
    assert [task.amount(2) for tasks, _ in application.phases[0].rounds(2) for task in tasks] == [100, 1000]
    execution = Phased(application, Platform(2), done=0.5)
    execution.begin(0.0, 2)
    assert [
        step.seconds for step in iter(lambda: execution.proceed(0.0), None) if isinstance(step, Wait)
    ] == [
        100.0,
        1000.0,
    ]


def test_who_goes_on_in_the_first_of_two_phases_does_all_of_the_second(tmp_path):
    phases = [{"iterations": count, "tasks": [delay("1 + phase_iteration")]} for count in (3, 2)]
    path = write(tmp_path, {"model": phases}, {"type": "rigid", "num_nodes": 1})
    (arrival,) = load_elastisim(path)
    for done, left in ((0.2, [2, 3, 1, 2]), (0.6, [1, 2]), (0.8, [2]), (1.0, [])):
        execution = Phased(arrival.application, Platform(1), done=done)
        execution.begin(0.0, 1)
        steps = iter(lambda execution=execution: execution.proceed(0.0), None)
        assert [step.seconds for step in steps if isinstance(step, Wait)] == left


def test_an_iteration_that_fails_is_done_again(tmp_path):
    path = write(
        tmp_path,
        {"model": [{"iterations": 3, "tasks": [delay("1 + 10 * phase_iteration")]}]},
        {"type": "rigid", "num_nodes": 1},
    )
    platform = Platform(1, failures=Failures(trace=((15.0, 0),), repair=1.0, checkpoint=1.0))
    result = simulate(load_workload(path), platform=platform, policy="fcfs")
    # 1 s, then 11 s; 3 s of the third are lost
    assert list(result.jobs["end"]) == [pytest.approx(1 + 11 + 3 + 1 + 21)]
