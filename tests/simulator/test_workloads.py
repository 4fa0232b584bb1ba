"""Built-in workloads: the figures their sources print come out, and every parameter is checked."""

import pickle
from collections import Counter

import numpy as np
import pytest

from dask_hpc import InputError
from dask_hpc.model.speedup import is_legal
from dask_hpc.simulator import simulate
from dask_hpc.simulator.built_in import BUILT_IN, built_in, describe, parameters
from dask_hpc.simulator.built_in.published import TYPES
from dask_hpc.simulator.readers import load_workload

SMALL = {
    "synthetic": {"jobs": 50},
    "io-intensity": {"jobs": 60},
    "exascale": {"jobs": 5},
    "production": {"jobs": 50},
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_one_is_described_repeatable_and_can_be_sent(name):
    line = describe()[name]
    assert line.endswith((".", ")", ").")) and len(line) < 110
    one, other = (built_in(name, **SMALL.get(name, {})) for _ in range(2))
    assert one == other == pickle.loads(pickle.dumps(one)) and one.platform is not None
    assert one == load_workload(
        f"builtin:{name}" + "".join(f"?{k}={v}" for k, v in SMALL.get(name, {}).items())
    )
    for key, default in parameters(name).items():
        if key == "seed":
            assert built_in(name, **{**SMALL.get(name, {}), "seed": default + 1}) != one


def test_esp_is_the_printed_mix():
    workload = built_in("esp")
    assert len(workload) == 230 and workload.nodes == 32
    assert sum(a.job.nodes * a.runtime for a in workload) == 351_238
    assert [a.job.submitted for a in workload] == [30.0 * i for i in range(230)]
    assert Counter(a.job.user for a in workload) == {kind: count for kind, _, count, _, _ in TYPES}
    assert len({a.job.id for a in workload}) == 230


def test_esp_ranges_follow_the_constraints():
    ranges = {a.job.user: (a.job.min_nodes, a.job.max_nodes) for a in built_in("esp", malleable=1.0)}
    assert ranges["A"] == (1, 32) and ranges["B"] == (1, 32) and ranges["D"] == (2, 32)
    assert ranges["H"] == (1, 31)
    for arrival in built_in("esp", malleable=1.0):
        assert is_legal(arrival.job.constraint, arrival.job.nodes)


def test_esp_choice_order_and_limits():
    half = built_in("esp", malleable=0.5, walltime="2000 s", speedup=0.8)
    assert sum(a.job.kind == "malleable" for a in half) == 115
    assert {a.job.walltime for a in half} == {2000.0}
    assert all(a.job.speedup is not None for a in half if a.job.kind == "malleable")
    tenth = built_in("esp", malleable=0.1)
    few, many = ({a.job.id for a in w if a.job.kind == "malleable"} for w in (tenth, half))
    assert few < many
    assert {a.job.walltime / a.runtime for a in built_in("esp", walltime=1.5)} == {1.5}


def test_five_jobs_make_the_printed_utilisation():
    workload = built_in("five-jobs")
    assert sum(a.job.nodes * a.runtime for a in workload) == 18_900
    assert {(a.job.min_nodes, a.job.max_nodes) for a in workload} == {(4, 16)}
    assert [a.job.nodes for a in workload] == [4, 16, 6, 10, 8]


def test_ten_jobs_in_the_reference_order():
    workload = built_in("ten-jobs")
    assert "".join(a.job.user for a in workload) == "DZJCJDCGGG"
    assert sum(a.job.nodes * a.runtime for a in workload) == 35_916
    assert {(a.job.min_nodes, a.job.max_nodes) for a in workload} == {(1, 16)}


def test_node_stealing_has_its_failure():
    assert built_in("node-stealing").platform.failures.trace == ((1.0, 2),)
    assert built_in("node-stealing", failure=False).platform.failures is None


def test_io_intensity_has_the_printed_distributions():
    workload = built_in("io-intensity")
    assert len(workload) == 4000 and workload.nodes == 500
    kinds = Counter(a.job.kind for a in workload)
    assert kinds == {"rigid": 3200, "malleable": 800}
    assert {a.application.phases[0].iterations for a in workload} == set(range(10, 26))
    assert {a.job.nodes for a in workload} <= set(range(2, 21))
    writes = np.array([a.application.phases[0].tasks[1].amount(1) for a in workload]) / (256 * 2**30)
    peak = np.zeros(4000, bool)
    for first in (447, 1283, 2414, 3355):
        peak[first : first + 200] = True
    assert abs(writes[~peak].mean() - 0.2) < 0.01  # Beta(2, 8)
    assert abs(writes[peak].mean() - 1 / 1.1) < 0.02  # Beta(1, 0.1)
    computes = np.array([a.application.phases[0].tasks[0].amount(1) for a in workload]) / 200e12
    assert abs(computes.mean() - 0.5) < 0.02
    assert all(0 < a.job.io_intensity.intensity(a.job.nodes) < 1 for a in workload)


def test_io_intensity_draws_are_independent_of_each_other():
    one, other = (
        built_in("io-intensity", jobs=400),
        built_in("io-intensity", jobs=400, malleable=0.5, gap=30.0),
    )
    assert [a.job.nodes for a in one] == [a.job.nodes for a in other]
    ids = [{a.job.id for a in w if a.job.kind == "malleable"} for w in (one, other)]
    assert ids[0] < ids[1] and len(ids[1]) == 200
    assert other.arrivals[-1].job.submitted > 0


@pytest.mark.parametrize("load", ["compute", "write", "read", "mixed"])
def test_mebf_kinds(load):
    workload = built_in("mebf", jobs=100, load=load)
    assert all(a.job.recorded == a.runtime for a in workload)
    kinds = Counter(a.job.user for a in workload)
    assert kinds == ({"compute": 50, "read": 25, "write": 25} if load == "mixed" else {load: 100})
    assert all(1200 <= a.runtime <= 3600 for a in workload)
    assert {a.job.submitted for a in workload} == {0.0}


def test_mebf_jobs_ask_for_more_than_they_are_made_for():
    """The same applications, whatever they ask for."""
    one, two = (
        built_in("mebf", jobs=20, smallest=2, largest=12, shrinks=1, grows=2, prefers=prefers)
        for prefers in (1, 2)
    )
    for least, most in zip(one, two, strict=True):
        job = most.job
        assert (least.job.nodes, job.nodes) == (job.min_nodes, job.max_nodes)
        assert job.nodes == 2 * job.min_nodes and least.runtime == most.runtime
    rigid = built_in("mebf", jobs=20, smallest=2, largest=12, prefers=2, malleable=0.0)
    assert [a.job.nodes for a in rigid] == [a.job.nodes for a in one]


def test_baselines_are_those_of_the_sources():
    """Figures of the digests: 001 3.4 and 3.3, 000 3.2 (means over orders of our own), 002 2.2."""
    ten = simulate(built_in("ten-jobs", malleable=0.0), policy="fcfs")
    assert round(ten.metrics["makespan"] / 60, 2) == 47.85
    five = simulate(built_in("five-jobs", malleable=0.0), policy="fcfs")
    assert five.metrics["makespan"] == 1850
    stolen = simulate(built_in("node-stealing"), policy="conservative-backfill")
    assert list(stolen.jobs["end"]) == [8, 5, 15, 25, 3]
    spans = [
        simulate(built_in("esp", seed=seed), policy="easy-backfill").metrics["makespan"] for seed in range(4)
    ]
    assert 12_000 < sum(spans) / 4 < 13_000


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("builtin:esq", "unknown workload \\(nearest: esp\\)"),
        ("builtin:", "unknown workload"),
        ("builtin:esp?malleble=1", "malleble: unknown parameter \\(nearest: malleable\\)"),
        ("builtin:esp?malleable=two", "malleable: found 'two'; allowed: 0 to 1"),
        ("builtin:esp?malleable=2", "malleable: found '2'; allowed: 0 to 1"),
        ("builtin:esp?malleable=nan", "malleable: found 'nan'"),
        ("builtin:esp?seed=1.5", "seed: found '1.5'; allowed: whole, any number"),
        ("builtin:esp?seed", "seed: has no value"),
        ("builtin:esp?seed=1&seed=2", "seed: is said twice"),
        ("builtin:esp?speedup=9", "speedup: found '9'; allowed: 0 to 1.5"),
        ("builtin:esp?walltime=0", "walltime: found 0.0"),
        ("builtin:esp?walltime=soon", "found 'soon'"),
        ("builtin:esp?constraints=maybe", "constraints: found 'maybe'; allowed: true, false"),
        ("builtin:mebf?load=heavy", "load: found 'heavy'; allowed: compute, write, read, mixed"),
        ("builtin:mebf?largest=3", "largest: found 3; allowed: a whole number, 16 to 500"),
        ("builtin:io-intensity?jobs=0", "jobs: found '0'"),
        ("builtin:io-intensity?seed=-1", "seed: found '-1'"),
        ("builtin:synthetic?nodes=0", "nodes: found '0'"),
        ("builtin:synthetic?rule=x", "rule: found 'x'"),
    ],
)
def test_complaints(text, complaint):
    with pytest.raises(InputError, match=complaint) as caught:
        load_workload(text)
    assert str(caught.value).startswith("builtin:")


def test_parameters_from_python_are_checked_too():
    for values in ({"malleable": "half"}, {"seed": 1.0}, {"constraints": 1}, {"malleable": None}):
        with pytest.raises(InputError, match="builtin:esp"):
            built_in("esp", **values)


def test_power_batch():
    """Digest 3.3.3: what the source gives, and lengths with which backfilling needs what it printed."""
    workload = built_in("power-batch", seed=3)
    jobs = [arrival.job for arrival in workload]
    assert [job.submitted for job in jobs] == [2.0 * n for n in range(20)]
    assert sorted(job.user for job in jobs) == ["heat"] * 10 + ["pi"] * 10
    assert {(job.user, job.power) for job in jobs} == {("pi", (170, 170)), ("heat", (250, 250))}
    assert all(1 <= job.nodes <= 4 and (job.min_nodes, job.max_nodes) == (1, 14) for job in jobs)
    for seed in range(3):
        static = simulate(built_in("power-batch", seed=seed), policy="easy-backfill").metrics
        # printed in quarters of a minute; starts at passes allow no more than to come near
        assert static["makespan"] == pytest.approx(13.75 * 60, abs=7.5)
        assert static["resizes"] == 0
    longer = built_in("power-batch", seed=3, speedup=1.0)
    assert [a.runtime for a in longer] == [a.runtime for a in workload], "scaling does not touch start sizes"
    with pytest.raises(InputError, match="0 < second < third"):
        built_in("power-batch", second=900.0)
