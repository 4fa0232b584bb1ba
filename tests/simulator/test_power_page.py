"""The page of a run whose power was followed shows the corridor, what left it, and who was changed for it."""

import json
import re

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
    course = json.loads(re.search(r"previousElementSibling, (.*?)\)</script>", text)[1])["course"]
    return text, course, result


def test_a_run_that_kept_its_corridor():
    _, course, result = page("power-corridor-queue-aware")
    bounds = [sample[2:4] for sample in course["samples"]]
    assert bounds[0] == [100, 440] and bounds[-1] == [100, 900]
    assert not course["outside"] and not result.power.violations
    (mark,) = (mark for mark in course["marks"] if mark[1] == "more")
    assert mark[0] == 0 and mark[2].startswith("b on 2 nodes: ")
    told = [row for row in course["story"] if row[2] == "corridor"]
    assert len(told) == sum(plan.verdict is not None for plan in result.story)


def test_one_that_left_it():
    text, course, result = page("easy-backfill")
    assert course["outside"] == [list(one) for one in result.power.violations] and not course["marks"]
    assert len(course["outside"]) == 1
    assert text.index("violations") < text.index("makespan")


def test_without_a_corridor_power_is_a_plain_curve():
    jobs = Workload("one", [Arrival(Job(id="a", nodes=2, submitted=0.0), 300.0)])
    followed = Platform(8, idle_power=10.0, active_power=100.0, metering=Metering())
    result = simulate(jobs, 8, "easy-backfill", platform=followed, allotments=True)
    assert all(sample[2:4] == [0.0, None] for sample in result.course()["samples"])
    assert '"name":"power"' not in report_page([result])
    plain = Platform(8, idle_power=10.0, active_power=100.0)
    result = simulate(jobs, 8, "easy-backfill", platform=plain, allotments=True)
    assert '"name":"power","unit":"kW"' in report_page([result])
