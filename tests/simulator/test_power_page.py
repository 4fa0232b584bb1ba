"""The page of a run whose power was followed shows the corridor, what left it, and who was changed for it."""

import json
import re

import pytest

from dask_hpc import Policy
from dask_hpc.model.job import Job
from dask_hpc.model.power import Corridor
from dask_hpc.simulator import Arrival, Platform, Workload, simulate
from dask_hpc.simulator.platform import Metering
from dask_hpc.simulator.report import report_page

MACHINE = Platform(
    8, idle_power=10.0, active_power=100.0, tick=5.0,
    metering=Metering(corridor=Corridor(((0.0, 100.0, 80 + 4 * 90.0), (200.0, 100.0, 900.0)))),
)  # fmt: skip


def page(policy):
    jobs = [
        Arrival(Job(id="a", nodes=2, submitted=0.0), 300.0),
        Arrival(Job(id="b", nodes=6, min_nodes=1, max_nodes=6, kind="moldable", submitted=0.0), 100.0),
    ]
    result = simulate(Workload("two", jobs), 8, Policy.load(policy), platform=MACHINE, allotments=True)
    text = report_page([result])
    data = json.loads(re.search(r"previousElementSibling, (.*?)\)</script>", text)[1])
    return text, {curve["name"]: curve for curve in data["curves"]}, result


def test_a_run_that_kept_its_corridor():
    text, curves, result = page("power-corridor-queue-aware")
    power = curves["power"]
    assert power["band"][:2] == [[0, 100, 440], [200, 100, 900]] and power["unit"] == "W"
    assert not power["outside"] and not result.power.violations
    (mark,) = (mark for mark in power["marks"] if mark[1] == "more")
    assert mark[0] == 0 and mark[2].startswith("b on 2 nodes: ")
    told = [happening for happening in text.split("<tr>") if "<td>corridor</td>" in happening]
    assert len(told) == sum(plan.verdict is not None for plan in result.story)


def test_one_that_left_it():
    text, curves, result = page("easy-backfill")
    power = curves["power"]
    assert len(power["outside"]) == len(result.power.violations) == 1 and not power["marks"]
    start, end, said = power["outside"][0]
    assert (start, end) == pytest.approx(result.power.violations[0]) and "above" in said
    assert text.index("violations") < text.index("makespan")


def test_without_a_corridor_power_is_a_plain_curve():
    jobs = Workload("one", [Arrival(Job(id="a", nodes=2, submitted=0.0), 300.0)])
    followed = Platform(8, idle_power=10.0, active_power=100.0, metering=Metering())
    for platform, unit in ((followed, "W"), (Platform(8, idle_power=10.0, active_power=100.0), "kW")):
        result = simulate(jobs, 8, "easy-backfill", platform=platform, allotments=True)
        text = report_page([result])
        assert f'"name":"power","unit":"{unit}"' in text and '"band":[[' not in text
