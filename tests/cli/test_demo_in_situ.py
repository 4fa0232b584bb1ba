"""The demo of a pipeline: what it shows of states that were recorded, and as a person runs it."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from rich.console import Console

from dask_hpc.cli import cli
from dask_hpc.cli.demo import picture, print_end, report_page
from dask_hpc.cli.demo_panels import core_parts, place_of
from dask_hpc.examples import heat
from dask_hpc.examples.in_situ import CORES, NODES, SLOWER, SlowAnalysis, problem
from dask_hpc.planning.in_situ.partition import Partition, Phases, tell_iteration, tell_partition
from dask_hpc.planning.in_situ.phases import with_split
from dask_hpc.planning.in_situ.plan import partition
from dask_hpc.policy import Policy

NAMES = tuple(heat.ANALYSES)
FIRST = Partition("async", 4, 1, NAMES, (), Phases(0.4, 0.5, 0))
SECOND = Partition("async", 3, 1, ("front", "picture"), ("profile", "spectrum"), Phases(0.8, 0.1, 0.7))


def status(done, **changed):
    changes = [(1, "as declared", FIRST), (8, "spectrum takes 4 s, not <0.4 s>", SECOND)]
    return {
        "name": "heat",
        "state": "running",
        "job": None,
        "iteration": done,
        "iterations": 20,
        "nodes": [str(at) for at in range(NODES)],
        "cores": CORES,
        "analyses": list(NAMES),
        "when_slow": "wait",
        "partition": tell_partition(SECOND if done >= 8 else FIRST),
        "history": [
            tell_iteration(at, *((0.6, FIRST.phases, FIRST) if at < 8 else (0.9, SECOND.phases, SECOND)))
            for at in range(1, done + 1)
        ],
        "changes": [
            {"iteration": at, "time": 3.0 * at, "reason": why, "partition": tell_partition(one)}
            for at, why, one in changes
            if at <= done
        ],
        "changed": 1,
        "skipped": {},
    } | changed


def recorded(done):
    """A demo that has seen so many iterations."""
    run = SlowAnalysis(Policy.load("in-situ-async"), 20)
    run.slow_from, run.iterations = 5, 12
    run.status = {"time": 0.7 * done, "jobs": [], "nodes": []}
    blocks = heat.plate(48, 96, 6).compute()
    for number in range(1, done + 1):
        blocks = heat.advance(blocks)
        results = {"picture": heat.picture(blocks), "front": heat.front(blocks)}
        run.note(number, results, status(number))
    return run


def printed(what):
    console = Console(width=120, force_terminal=False)
    with console.capture() as capture:
        what(console)
    return capture.get()


def test_before_the_first_iteration_there_is_a_word():
    assert "waiting for the first" in printed(lambda console: console.print(picture(recorded(0))))


def test_the_picture_says_who_computes_what_where_and_for_how_long():
    shown = printed(lambda console: console.print(picture(recorded(10))))
    assert "iteration 10 of 20, async" in shown and "10x slower" in shown
    assert shown.count("■") == NODES * CORES + 3  # and the legend
    assert re.search(r"spectrum\s+in transit", shown) and re.search(r"front\s+in situ", shown)
    assert re.search(r"simulation\s+█+\s+0.8 s\s+planned 0.8 s", shown)
    assert "▼" in shown and "of the plate is warm" in shown


def test_cores_have_the_colours_of_what_they_do():
    now = status(10)
    assert [core_parts(now, node).count("simulation") for node in range(NODES)] == [3, 3, 3, 0]
    assert core_parts(now, 0)[-1] == "in_situ" and set(core_parts(now, 3)) == {"in_transit"}
    assert core_parts(now | {"partition": None}, 0) == ["simulation"] * CORES
    assert place_of(now, "profile") == "in_transit" and place_of(now | {"partition": None}, "front") == ""


def test_the_summary_says_what_was_checked_planned_and_gained():
    run = recorded(12)
    run.is_same, run.rivals = True, {"all in situ": 1.2}
    shown = " ".join(printed(lambda console: print_end(console, run)).split())
    assert "12 of 12 iterations have the results of a plain serial loop to the last bit, and so has" in shown
    assert "At iteration 5, spectrum became 10 times slower. From iteration 8 on: spectrum takes 4 s" in shown
    assert "Before that, an iteration took 0.6 s (mean of 4), 0.5 s were planned (+20%)." in shown
    assert (
        "Under the last partition, an iteration took 0.9 s (mean of 4), 0.8 s were planned (+12%)." in shown
    )
    assert "it takes 1.2 s: as it was divided here, 25% less." in shown


def test_the_status_forgets_and_the_demo_does_not():
    run = recorded(4)
    run.note(5, {}, status(5, history=status(5)["history"][-1:]))
    assert [one["iteration"] for one in run.history] == [1, 2, 3, 4, 5]
    assert run.changes == {1: "as declared"}


def test_the_report_is_one_page_that_needs_no_other():
    run = recorded(12)
    page = report_page(run)
    assert page.count('class="partition"') == 2 and page.count('class="phases"') == 1
    assert page.count("data:image/png;base64,") == len(run.fields) > 2
    assert "not &lt;0.4 s&gt;" in page and "<0.4 s>" not in page
    assert "http://" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "") and "https://" not in page


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_what_is_played_has_a_better_partition_once_an_analysis_is_slow(mode):
    before, after = (problem(mode, slower) for slower in (1.0, SLOWER))
    assert not partition(before).runs_like(partition(after)) or mode == "sync"
    for is_inside in (True, False):
        other = with_split(after, NAMES if is_inside else ())
        assert other.in_situ == (NAMES if is_inside else ()) and len(other.in_situ + other.in_transit) == 4
        assert partition(after).iteration <= other.iteration


def test_a_demo_needs_a_policy_that_places_and_is_one_at_a_time():
    done = CliRunner().invoke(cli, ["demo", "--in-situ", "--policy", "fcfs"])
    assert done.exit_code == 2 and "in-situ-async" in done.output
    done = CliRunner().invoke(cli, ["demo", "--in-situ", "--corridor"])
    assert done.exit_code == 2 and "one of both" in done.output


@pytest.mark.slow
@pytest.mark.timed
def test_the_demo_divides_anew_and_every_result_is_right(tmp_path, forked_workers):
    report = tmp_path / "heat.html"
    command = [
        sys.executable,
        "-m",
        "dask_hpc",
        "demo",
        "--in-situ",
        "--seconds",
        "10",
        "--report",
        str(report),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    words = " ".join(done.stdout.split())
    right, of = map(int, re.search(r"(\d+) of (\d+) iterations have the results", words).groups())
    assert right == of >= 15 and "and so has the plate in the end" in words
    assert "spectrum became 10 times slower. From iteration" in words
    assert "With all in situ," in words and "With all in transit," in words
    page = report.read_text()
    assert page.count('class="partition"') >= 2 and "<td>placement</td>" in page
