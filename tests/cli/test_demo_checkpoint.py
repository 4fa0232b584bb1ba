"""The demo of checkpoints: what it shows of states that were recorded, and as a person runs it."""

import re
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from dask_hpc.cli import cli
from dask_hpc.cli.demo import picture, print_end, report_page
from dask_hpc.examples import heat
from dask_hpc.examples.checkpoint import NODES, Death, LosesAll, Moment, advanced
from dask_hpc.policy import Policy

FOUND = {
    "nodes": [
        {"name": "0", "own": 2000, "kept": {"1": 1000}},
        {"name": "1", "own": 1000, "kept": {"0": 2000}},
    ]
}
ROW = {"id": 0, "job": "", "nodes": [], "decision": "recovery", "time": 3.0}


def recorded():
    run = LosesAll(Policy.load("fcfs"), 30)
    run.field = np.linspace(0, 1, 200).reshape(10, 20)
    run.status = {"time": 4.0, "jobs": [], "nodes": [], "checkpoint": FOUND}
    run.story = [ROW | {"reason": "3 results, lost with <0>, loaded from copies"}]
    run.course = [(1.0, 1), (2.0, 2), (3.0, 3), (9.0, 3), (10.0, 4)]
    run.deaths = [Death(2.5, "node 0 dies"), Death(3.5, "everything dies", ends=True)]
    run.moments = [Moment("iteration 2", run.field, FOUND)]
    run.ended_at, run.resumed_at, run.iterations, run.recovered, run.is_same = 3, 2, 4, 7, True
    run.stats = ["plate at iteration 3:\n  moved 3 MB"]
    return run


def printed(what):
    console = Console(width=120, force_terminal=False)
    with console.capture() as capture:
        what(console)
    return capture.get()


def test_before_the_first_iteration_there_is_a_word():
    run = LosesAll(Policy.load("fcfs"), 30)
    assert "waiting for the first" in printed(lambda console: console.print(picture(run)))


def test_the_picture_says_what_nodes_hold_and_keep_and_who_died():
    shown = printed(lambda console: console.print(picture(recorded())))
    assert "iteration 4 of 4" in shown and "node 0 dies; everything dies" in shown
    assert re.search(r"node 0\s+█+ 2 kB\s+█+ 1 kB", shown) and "loaded from copies" in shown


def test_the_summary_says_what_was_lost_done_twice_and_right():
    shown = " ".join(printed(lambda console: print_end(console, recorded())).split())
    assert "1 worker died; 7 results that were lost with it were loaded" in shown
    assert f"on {NODES[1]} nodes instead of {NODES[0]}, went on from iteration 2" in shown
    assert "1 of 4 iterations was done twice" in shown and "is that of a plain loop" in shown


def test_the_report_is_one_page_that_needs_no_other():
    page = report_page(recorded())
    assert page.count('class="course"') == page.count('class="copies"') == 1
    assert "<0>" not in page and "data:image/png;base64," in page
    assert "http://" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "") and "https://" not in page


def test_in_blocks_the_plate_is_what_it_is_as_a_whole():
    state = heat.plate(64, 32, 4)
    names = ("temperature", "heating", "conductivity")
    found = advanced(*(state[name].data for name in names)).compute(scheduler="sync")
    np.testing.assert_array_equal(found, heat.advance(state.compute())["temperature"].values)


def test_one_demo_at_a_time():
    done = CliRunner().invoke(cli, ["demo", "--checkpoint", "--corridor"])
    assert done.exit_code == 2 and "one of both" in done.output


@pytest.mark.slow
@pytest.mark.timed
def test_the_demo_loses_everything_and_the_plate_is_right(tmp_path, forked_workers):
    report = tmp_path / "plate.html"
    command = [sys.executable, "-m", "dask_hpc", "demo", "--checkpoint", "--seconds", "20"]
    done = subprocess.run([*command, "--report", str(report)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert "3 workers died" in words and "is that of a plain loop to the last bit" in words
    again = re.search(r"(\d+) of \d+ iterations were done twice|(\d+) of \d+ iterations was", words)
    assert again and "node-left" in words and "recovery" in words
    page = report.read_text()
    assert page.count('class="copies"') >= 4 and page.count('class="course"') == 1
