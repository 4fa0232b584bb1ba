"""Who could start is not forgotten: by those who end at once, and by those who only wait."""

import json

import pytest

from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.policy import ready_made
from dask_hpc.simulator import Machine, Record
from dask_hpc.simulator.workload import Arrival

POLICIES = sorted(ready_made())


def malleable(name, nodes, runtime, least=1, walltime=1e6, **others):
    job = Job(
        id=name, nodes=nodes, kind="malleable", min_nodes=least, max_nodes=nodes, walltime=walltime, **others
    )
    return Arrival(job, runtime)


def rigid(name, nodes, runtime, walltime=1e6, **others):
    return Arrival(Job(id=name, nodes=nodes, walltime=walltime, **others), runtime)


def starts(policy, arrivals, nodes, **changes):
    policy = Policy.load(policy).with_(**changes) if changes else Policy.load(policy)
    record = Record()
    Machine(nodes, policy, record).run(arrivals)
    return dict(zip(record.id, record.start, strict=True))


def sizes(policy, arrivals, nodes, **changes):
    """When which job had how many nodes."""
    record, found = Record(allotments=True), {}
    Machine(nodes, Policy.load(policy).with_(**changes), record).run(arrivals)
    for when, row, names in record.allotments:
        found.setdefault(row, []).append((when, len(names)))
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_who_has_nothing_to_do_leaves_its_nodes_to_others_at_once(policy):
    """A malleable job of no length is over within the decision that starts it."""
    found = starts(policy, [malleable("a", 2, 0.0), rigid("b", 2, 5.0), rigid("c", 2, 5.0)], 2)
    assert found["a"] in (0.0, 5.0, 10.0) and {found["b"], found["c"]} in ({0.0, 5.0}, {5.0, 10.0})


def test_no_phases_are_over_at_once(tmp_path):
    """In the format of ElastiSim."""
    both = {"submit_time": 0, "walltime": 9, "application_model": "empty.json"}
    jobs = [
        {"type": "malleable", "num_nodes_min": 1, "num_nodes_max": 2} | both,
        {"type": "rigid", "num_nodes": 2} | both,
    ]
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": jobs}))
    (tmp_path / "empty.json").write_text('{"phases": []}')
    found = simulate(tmp_path / "jobs.json", policy="easy-backfill", nodes=2).jobs
    assert list(found["state"]) == ["completed", "completed"]


class Forgetful(Machine):
    """As if nobody heard of nodes that come free within a decision."""

    def decide_soon(self):
        pass


def test_a_run_that_forgets_somebody_is_no_result():
    machine = Forgetful(2, Policy.load("fcfs"), Record())
    with pytest.raises(RuntimeError, match="over at 0 s, and policy fcfs would start job b on 2 nodes"):
        machine.run([malleable("a", 2, 0.0), rigid("b", 2, 5.0)])


def test_patience_is_kept_where_nothing_happens():
    """A job of which nodes are worth little waits behind one that uses the whole machine, and there is no
    room for all who wait."""
    arrivals = [
        malleable("big", 1152, 73_436.0, walltime=80_000.0),
        rigid("small", 1, 849_066.0, walltime=900_000.0, submitted=100.0),
        rigid("wide", 1152, 849_066.0, walltime=900_000.0, submitted=100.0),
    ]
    assert starts("elastic", arrivals, 1152)["small"] == 14_500.0
    less = {f"{concern}.patience": 60.0 for concern in ("queue", "malleability")}
    assert starts("elastic", arrivals, 1152, **less)["small"] == 160.0


def test_who_rests_between_resizes_is_thought_of_when_that_is_over():
    arrivals = [malleable("a", 4, 1e5)] + [rigid(f"b{i}", 1, 1e5, submitted=10.0 * i) for i in (1, 2)]
    found = starts("elastic", arrivals, 4, **{f"{one}.dwell": 1000.0 for one in ("queue", "malleability")})
    assert found == {"a": 0.0, "b1": 10.0, "b2": 1010.0}


def test_nodes_are_idle_for_no_longer_than_they_may_be():
    """Parsl's rule asks nothing of those who wait."""
    found = sizes(
        "parsl-simple", [malleable("a", 4, 1000.0, walltime=1000.0)], 4, **{"malleability.task": 2000.0}
    )
    assert found[0][1] == (120.0, 2)
