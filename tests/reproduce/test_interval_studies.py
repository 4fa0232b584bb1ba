"""Published studies of intervals: our figures are those that the digest of 003 has (6.1, 6.2, 6.4)."""

import pytest

from dask_hpc.planning.interval import MOODY, Pattern, best_pattern, efficiency
from dask_hpc.reproduce import energy_intervals as energy
from dask_hpc.reproduce import multilevel
from dask_hpc.reproduce.claim import claim

MINUTE = 60.0


@pytest.mark.parametrize(
    "percent, way, fast, frugal, saving",
    [
        (1.0, energy.ONE, 0.987, 0.984, 0.2),
        (10.0, energy.ONE, 0.871, 0.846, 1.5),
        (25.0, energy.ONE, 0.680, 0.641, 3.3),
        (50.0, energy.ONE, 0.402, 0.372, 4.8),
        (100.0, energy.ONE, 0.089, 0.085, 3.8),
    ],
)
def test_energy_of_one_level_is_that_of_the_specification(percent, way, fast, frugal, saving):
    machine = energy.PlannedMachine(percent=percent)
    found = energy.planned(machine, way)
    assert [round(one.efficiency, 3) for one in found] == [fast, frugal]
    assert round(energy._saved(machine, way), 1) == saving


@pytest.mark.parametrize(
    "machine, fast, frugal, dear, cheap",
    [
        (energy.PlannedMachine(percent=1.0), 0.988, 0.985, 1.008, 1.006),
        (energy.PlannedMachine(percent=10.0), 0.936, 0.920, 1.043, 1.034),
        (energy.PlannedMachine(percent=50.0), 0.754, 0.720, 1.196, 1.165),
        (energy.PlannedMachine(percent=75.0), 0.635, 0.587, 1.348, 1.288),
        (energy.PlannedMachine(), 0.510, 0.462, 1.536, 1.480),
        (energy.PlannedMachine(memory=48.0), 0.379, 0.364, 1.921, 1.795),
        (energy.PlannedMachine(memory=64.0), 0.274, 0.247, 2.421, 2.263),
    ],
)
def test_energy_of_several_levels(machine, fast, frugal, dear, cheap):
    """The digest's are from a coarse grid: within 0.01, and ours is at least as good."""
    for_time, for_energy = energy.planned(machine, energy.SEVERAL)
    assert fast - 6e-4 <= for_time.efficiency <= fast + 0.01
    assert cheap * 0.99 <= for_energy.energy <= cheap * 1.001
    assert for_energy.efficiency == pytest.approx(frugal, abs=0.02)
    assert for_time.energy == pytest.approx(dear, rel=0.02)


def test_commits_of_the_machine():
    """Digest 2.5.3."""
    local, partner, store = energy.PlannedMachine().levels(energy.SEVERAL)
    assert (local.commit, store.commit) == (0.8, pytest.approx(533.33, abs=0.01))
    assert partner.commit == pytest.approx(3.2, abs=1e-5)
    assert 1 / sum(one.failures for one in (local, partner, store)) == pytest.approx(10.96 * MINUTE, rel=1e-3)
    assert local.failures < partner.failures > store.failures
    small = energy.PlannedMachine(percent=0.5).levels(energy.SEVERAL)
    assert small[2].commit == small[1].commit


#: commits to the last level, failures: the document's prediction, exact, with Moody's rule at the same
#: intervals, and two levels (digest 6.2)
SCENARIOS = {
    (10, 26): (0.6442, 0.6406, 0.6390, 0.6163),
    (10, 9): (0.4053, 0.3908, 0.3844, 0.3563),
    (20, 15): (0.4230, 0.4108, 0.4056, 0.3854),
    (30, 20): (0.4214, 0.4108, 0.4067, 0.3898),
    (40, 9): (0.0232, 0.0178, 0.0160, 0.0161),
    (40, 3): (0.0, 0.0, 0.0, 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("at", SCENARIOS)
def test_scenarios_of_an_exascale_machine(at):
    predicted, exact, moody, two = SCENARIOS[at]
    found = multilevel._in(*at)
    assert found.predicted == pytest.approx(predicted, abs=0.001)
    assert found.efficiency == pytest.approx(exact, abs=0.001)
    with_rule = efficiency(found.levels, found.pattern, 1440 * MINUTE, MOODY)
    assert with_rule == pytest.approx(moody, abs=0.001)
    assert multilevel._in(*at, "Di").efficiency == pytest.approx(two, abs=0.001)


NONE = {10: (0.7686, 0.7295, 0.6791, 0.5639, 0.1578), 20: (0.7534, 0.7075, 0.6447, 0.4806, 0.0117)}
SOME = {10: (0.5643, 0.5302, 0.4833, 0.3789, 0.0590), 20: (0.3930, 0.3471, 0.2895, 0.1592, 0.0002)}


@pytest.mark.slow
@pytest.mark.parametrize("commit", NONE)
def test_short_runs_without_and_with_a_commit_to_the_last_level(commit):
    for commits, known in ((False, NONE), (True, SOME)):
        ours = [multilevel._worth(commit, mtbf, 30.0, commits=commits) for mtbf in multilevel.MTBFS]
        assert ours == pytest.approx(known[commit], abs=0.0015)
        plans = [multilevel._best(commit, mtbf, 30.0, commits) for mtbf in multilevel.MTBFS]
        assert all((one.work * one.commits < 30 * MINUTE * (1 - 1e-9)) is commits for one in plans)


def test_parts_of_the_hardest_systems():
    """Each sums to a hundred, and the share of work is the efficiency."""
    for system in ("D7", "D8", "D9"):
        shares = multilevel._shares(system)
        assert sum(shares.values()) == pytest.approx(100)
        assert shares["work"] == pytest.approx(100 * multilevel._on(system, "Dauwe").efficiency)


def test_system_b_is_made_to_sum_to_one():
    levels = multilevel.levels_of(*multilevel.SYSTEMS["B"][:3])
    assert 1 / sum(one.failures for one in levels) == pytest.approx(333.33 * MINUTE)
    harder = multilevel.scenario(40, 3)
    assert [one.commit for one in harder[:-1]] == [one.commit for one in levels[:-1]]
    assert harder[-1].commit == 40 * MINUTE
    assert 1 / sum(one.failures for one in harder) == pytest.approx(3 * MINUTE)


def test_as_much_as_is_not_rounded_in_our_favour():
    band = multilevel.as_much_as(20)
    reached = [claim("gain", 20.0, ours, band).reached for ours in (20.4, 20.0, 10.0, 9.9)]
    assert reached == [False, True, True, False]


def test_the_missing_one_of_the_equation_decides_on_system_m():
    """Digest G13: with it 0.978, without it a run would be a period longer."""
    levels, run = multilevel.levels_of(*multilevel.SYSTEMS["M"][:3]), 1440 * MINUTE
    assert efficiency(levels, best_pattern(levels, run), run) == pytest.approx(0.9782, abs=1e-4)
    assert efficiency(levels, Pattern(38.92 * MINUTE, (0, 36)), run) == pytest.approx(0.9782, abs=2e-4)
