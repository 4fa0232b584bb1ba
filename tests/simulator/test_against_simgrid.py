"""Our simulator against SimGrid's own models, as recorded in ``simgrid/recorded``.

What plays the same jobs there, as ElastiSim does, is ``simgrid/reference.cpp``, and
``simgrid/run_reference.py`` says how it is run again. Here is only compared: SimGrid need not be there.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest
from simgrid.crossbar import CASES, drawn, write

from dask_hpc import Policy
from dask_hpc.simulator import Machine, Record
from dask_hpc.simulator.readers.elastisim import load_elastisim
from dask_hpc.strategies.malleability.fcfs_malleable import FcfsMalleable
from dask_hpc.strategies.queue.moldable import Moldable
from dask_hpc.strategies.strategy import QueueStrategy

RECORDED = Path(__file__).parent / "simgrid" / "recorded"


@dataclass(frozen=True)
class AtSubmissionsAndEnds(QueueStrategy):
    """As ElastiSim's example has it: jobs start, on as many nodes as there are, when one is submitted or has
    ended, and at no other event."""

    name: ClassVar[str] = "at submissions and ends"

    def decide(self, snapshot, memory):
        jobs = {*snapshot.running, *(job.id for job in snapshot.waiting)}
        return () if jobs == memory else Moldable().decide(snapshot, None)[0], jobs


MOLDABLE = "queue: {strategy: moldable}\nmalleability: {strategy: fcfs-malleable"
#: the rules of the reference
RULES = {
    "example": Policy("example", AtSubmissionsAndEnds(), FcfsMalleable(hold=False)),
    "point": Policy.parse(MOLDABLE + ", hold: false}"),
    "hold": Policy.parse(MOLDABLE + "}"),
}


def recorded(name):
    """What came of it on SimGrid: a row per job."""
    return pd.read_csv(RECORDED / f"{name}.csv", comment="#")


def played(folder, case, rule="point"):
    """The same here."""
    workload = load_elastisim(write(folder, case), start="most")
    record = Record()
    Machine(replace(workload.platform, decide="event"), RULES[rule], record).run(workload)
    return pd.DataFrame({key: list(getattr(record, key)) for key in ("submit", "start", "end")})


def figures(jobs):
    """What of many jobs is compared."""
    wait, turnaround = jobs["start"] - jobs["submit"], jobs["end"] - jobs["submit"]
    return {"end": jobs["end"].max(), "wait": wait.mean(), "turnaround": turnaround.mean()}


ONE_BY_ONE = recorded("cases").set_index("case")


@pytest.mark.parametrize("name", CASES)
def test_effects_one_by_one(tmp_path, name):
    """Each job starts and ends when it does there."""
    found, wanted = played(tmp_path, CASES[name]), ONE_BY_ONE.loc[[name]]
    for key in found:
        assert list(found[key]) == pytest.approx(list(wanted[key]), rel=1e-8, abs=1e-8), key


@pytest.mark.parametrize(("kinds", "rule"), [("rigid", "example"), *(("mixed", rule) for rule in RULES)])
def test_who_is_in_nobodys_way_is_the_same_to_the_last_job(tmp_path, kinds, rule):
    """500 jobs start and end when they do there, on a machine whose file system serves all at once."""
    case = drawn(("rigid",)) if kinds == "rigid" else drawn()
    found = played(tmp_path, case.widened, rule)
    wanted = recorded("rigid_wide" if kinds == "rigid" else f"mixed_wide_{rule}")
    assert len(found) == len(wanted) == 500
    for key in found:
        assert list(found[key]) == pytest.approx(list(wanted[key]), rel=1e-8), key


@pytest.mark.parametrize(("kinds", "rule"), [("rigid", "example"), *(("mixed", rule) for rule in RULES)])
def test_who_shares_a_file_system(tmp_path, kinds, rule):
    """The same with a file system that is busy now and then.

    Who comes a moment later there finds others at work, and ends more than a moment later: a difference
    doubles within half an hour or so. Jobs are the same to 1e-6 for eight hours, by which time the tenth
    digit has grown so far; from then on only their figures are compared.
    """
    found = played(tmp_path, drawn(("rigid",)) if kinds == "rigid" else drawn(), rule)
    wanted = recorded("rigid" if kinds == "rigid" else f"mixed_{rule}")
    for key in found:
        early = wanted[key] < 8 * 3600
        assert early.sum() > 100
        assert list(found[key][early]) == pytest.approx(list(wanted[key][early]), rel=1e-6), key
    assert figures(found) == pytest.approx(figures(wanted), rel=0.02)


@pytest.mark.slow
def test_simgrid_is_as_far_from_itself(tmp_path):
    """Ten other workloads, by the rule of ElastiSim's example: on average there is no difference, and in one
    of them it is no larger than between two runs of SimGrid that differ in what they take for nothing."""
    there = (
        recorded("figures")
        .query("rule == 'example'")
        .set_index(["precision", "seed"])[["end", "wait", "turnaround"]]
    )
    one, other = there.loc["as it is"], there.loc["finer"]
    here = pd.DataFrame(
        {seed: figures(played(tmp_path, drawn(seed=seed), "example")) for seed in one.index}
    ).T
    ours, theirs = here / one - 1, other / one - 1
    assert (ours[["wait", "turnaround"]].mean().abs() < 0.01).all() and abs(ours["end"].mean()) < 0.02
    assert (ours.abs().mean() < 2 * theirs.abs().mean()).all()
    assert (theirs.abs().max() > 0.01).all()  # or this would say nothing
