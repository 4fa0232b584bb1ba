"""Joules of jobs: power between two looks goes straight from one to the other."""

from types import SimpleNamespace

import pytest

from dask_hpc.power.scheduler import job_power
from dask_hpc.power.scheduler.job_power import JobEnergies


def running(**jobs):
    return {name: SimpleNamespace(nodes=nodes, started=at) for name, (at, nodes) in jobs.items()}


def test_energy_is_power_over_time_by_the_nodes_that_a_job_has():
    energies = JobEnergies()
    energies.look(10.0, {"n": 100.0, "m": 50.0}, running(a=(0.0, "n"), b=(0.0, "m")))
    assert energies.of("a") == 0.0 and energies.of("c") is None  # what was before nobody has seen
    energies.look(12.0, {"n": 200.0, "m": 50.0}, running(a=(0.0, "n"), b=(0.0, "m"), c=(11.5, "mn")))
    assert (energies.of("a"), energies.of("b"), energies.of("c")) == (300.0, 100.0, 125.0)
    energies.ends("a", 12.5)
    energies.ends("a", 13.0)  # once
    energies.look(14.0, {"n": 0.0, "m": 50.0}, running(b=(0.0, "m")))
    assert (energies.of("a"), energies.of("b"), energies.of("c")) == (400.0, 200.0, 125.0)


def test_while_nobody_watches_nothing_is_drawn():
    energies = JobEnergies()
    energies.look(0.0, {"n": 100.0}, running(a=(0.0, "n")))
    energies.look(1.0, {"n": 100.0}, running(a=(0.0, "n")))
    energies.stop()
    energies.look(100.0, {"n": 100.0}, running(a=(0.0, "n")))
    energies.look(101.0, {"n": 100.0}, running(a=(0.0, "n")))
    assert energies.of("a") == 200.0


def test_the_newest_are_kept(monkeypatch):
    monkeypatch.setattr(job_power, "_KEPT", 2)
    energies = JobEnergies()
    for time in (0.0, 1.0):
        energies.look(time, {"n": 1.0}, running(a=(0.0, "n"), b=(0.0, "n"), c=(0.0, "n")))
    assert energies.of("c") == 1.0 and energies.of("a") is None and energies.of("b") == pytest.approx(1.0)
