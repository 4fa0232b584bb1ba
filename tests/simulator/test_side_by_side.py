"""Two runs on one clock."""

import re

import pytest

from dask_hpc import InputError, Policy, side_by_side, simulate
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival, Machine, Record, Workload, synthetic_day


def workload(begin=0.0, lengths=(10.0, 20.0, 30.0)):
    jobs = [
        Arrival(Job(id=str(i), nodes=2, walltime=one, submitted=begin), one) for i, one in enumerate(lengths)
    ]
    return Workload("three", jobs, 4)


def run(policy="fcfs", allotments=True, **given):
    return simulate(workload(**given), policy=policy, allotments=allotments)


def row(found, name):
    return next(one for one in found.table if one[0] == name)


def test_two_results():
    found = side_by_side(run(), run(lengths=(10.0, 20.0, 40.0)))
    assert found.names == ["fcfs (1)", "fcfs (2)"]
    assert row(found, "makespan") == ["makespan", "40 s", "50 s", "+10 s", ""]
    assert row(found, "mean wait")[3] == "±0 s"
    assert "killed" not in [one[0] for one in found.table]
    assert re.search(r"makespan +40 s +50 s +\+10 s", repr(found))
    assert side_by_side(run(), run("ljf"), names=("mine", "other")).names == ["mine", "other"]


def test_what_has_no_time_in_common_begins_together():
    first, later = run(), run(begin=5000.0)
    found = side_by_side(first, later)
    assert found.shift == -5000.0 and "moved by" in found.about
    one, other = found.courses
    assert other["changes"] == one["changes"]
    assert other["head"]["time"] == one["head"]["time"] == 40.0
    assert [job["ended"] for job in other["jobs"]] == [job["ended"] for job in one["jobs"]]
    assert later.course()["head"]["time"] == 5040.0  # as it was
    assert side_by_side(first, run(begin=30.0)).shift == 0.0


def test_the_same_job_has_the_same_colour_in_both():
    first = run()
    second = run().course()
    second["order"] = {"new": 0, "2": 1, "0": 2}
    assert side_by_side(first, second).courses[1]["order"] == {"2": 2, "0": 0, "new": 3}


def test_a_prediction_is_on_the_clock_of_what_it_predicts():
    jobs = workload(lengths=(10.0, 20.0, 30.0))
    machine = Machine(4, Policy.load("fcfs"), Record())
    machine.run(jobs, until=5.0)
    predicted = simulate(snapshot=machine.snapshot.freeze(), policy="fcfs", allotments=True)
    found = side_by_side(run(), predicted, names=("was", "predicted"))
    assert found.shift == 0.0
    was, then = ({job["id"]: job["ended"] for job in one["jobs"]} for one in found.courses)
    assert was == then


class Watched:
    """What a manager shows of its cluster."""

    def __init__(self, course):
        course["head"]["state"] = "on"
        self.watch = self.course = self
        self.whole = lambda: course


def test_of_a_cluster_the_jobs_that_are_over_in_both_are_compared():
    course = run().course()
    course["jobs"][2]["ended"] = None  # goes on
    found = side_by_side(Watched(course), run(lengths=(10.0, 25.0, 30.0)))
    assert found.names == ["the cluster", "fcfs"]
    assert row(found, "jobs that are over") == ["jobs that are over", "2", "3", "2 in both", ""]
    assert row(found, "response, mean") == ["response, mean", "15 s", "17.5 s", "+2.5 s", ""]
    assert "over in both" in found.about


def test_studies_are_paired_where_their_seeds_are_the_same():
    def studied(policy, seeds):
        return simulate(days, policy=[policy], seeds=seeds, malleable=0.5)

    days = Workload("days", list(synthetic_day(60, 32, load=1.0, seed=1)), 32)
    few = [studied("fcfs", 3), studied("elastic", 3)]
    found = side_by_side(*few)
    assert found.courses == [None, None] and "same 3 seeds" in found.about
    wait = row(found, "waiting, mean")
    assert "±" in wait[3] and wait[4] in ("better", "worse", "undecided")
    other = side_by_side(few[0], studied("elastic", 2))
    assert "Other seeds" in other.about and row(other, "waiting, mean")[4] == ""
    with pytest.raises(InputError, match="two studies, or two runs"):
        side_by_side(few[0], run())
    with pytest.raises(InputError, match="one policy in each"):
        side_by_side(simulate(workload(), policy=["fcfs", "ljf"], seeds=2), few[0])


@pytest.mark.parametrize("wrong", [3, "fcfs", None, {"head": 1}])
def test_what_is_no_run(wrong):
    with pytest.raises(InputError, match="courses, or a managed cluster"):
        side_by_side(run(), wrong)


def test_names_are_two():
    with pytest.raises(InputError, match="one for each"):
        side_by_side(run(), run(), names=("a", "b", "c"))


def test_a_page_of_its_own(tmp_path):
    side_by_side(run(), run("ljf"), names=("<b>mine", "other")).save(tmp_path / "two.html")
    page = (tmp_path / "two.html").read_text()
    assert page.count("daskHpc.show(") == 1 and "<b>mine" not in page
    assert "views.compare" in page and "views.allotment_map" in page
