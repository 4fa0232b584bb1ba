"""Published studies of reservations: our figures are those of an exact evaluation (digest 004, 5 and 8)."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from dask_hpc.planning.reservation.cost import CLOUD, Cost
from dask_hpc.planning.reservation.law import read_law
from dask_hpc.planning.reservation.rules import by_rule
from dask_hpc.planning.reservation.sequence import Setting
from dask_hpc.reproduce import reservation_checkpoints as checkpoints
from dask_hpc.reproduce import reservation_costs as costs
from dask_hpc.reproduce import reservation_memory as memory
from dask_hpc.reproduce import reservation_neuro as neuro

EXACT = yaml.safe_load(Path(__file__).with_name("reservations_exact.yaml").read_text(encoding="utf-8"))
HOUR = 3600.0


def test_the_tables_are_whole():
    shapes = {"equal-time": 7, "equal-probability": 7, "heuristics": 6, "first-requests": 10}
    shapes |= dict.fromkeys(checkpoints.PRINTED, 16)
    assert set(costs.TABLES) == set(shapes)
    for table, rows in costs.TABLES.items():
        assert set(rows) == set(costs.LAWS) and {len(row) for row in rows.values()} == {shapes[table]}


@pytest.mark.parametrize("name", costs.LAWS)
def test_requests_without_commits_cost_what_they_do_exactly(name):
    """Table 11.2 and 11.3 (digest 5.3), to the last digit that is given."""
    law = read_law(costs.LAWS[name])
    for place, number in enumerate(costs.SIZES):
        for kind, grid in costs.grids(law, number).items():
            ours = costs.normalised(costs.best_on(grid, law), law)
            assert ours == pytest.approx(EXACT[kind][name][place], abs=0.0051), (kind, number)
    best, *rules = EXACT["heuristics"][name]
    assert costs.best(costs.LAWS[name]) == pytest.approx(best, abs=0.0011)
    for rule, exact in zip(costs.RULES, rules, strict=True):
        ours = costs.normalised(by_rule(rule, law, (), Setting(CLOUD)), law)
        assert ours == pytest.approx(exact, abs=0.00051), rule


@pytest.mark.parametrize("setting", EXACT["hpc"])
def test_the_scenario_of_a_batch_system(setting):
    """Figure 11.2 (digest 5.3)."""
    best, first, *rules = EXACT["hpc"][setting]
    ours = costs.scaled(*map(float, setting.split(",")))
    assert min(ours["equal-time"], ours["equal-probability"]) == pytest.approx(best, abs=0.0011)
    assert ours["first"] == pytest.approx(first, abs=0.005)
    assert [ours[rule] for rule in costs.RULES] == pytest.approx(rules, abs=0.0011)


def test_requests_that_follow_from_the_first_one():
    law = read_law("exponential mean=1h")
    first = 0.7465420140272309 * HOUR
    works = [one.work / HOUR for one in costs.from_first(law, first * (1 + 1e-9))[:6]]
    assert works == pytest.approx([0.746542, 2.109692, 3.908486, 6.042355, 8.44749, 11.07993], rel=1e-3)
    assert costs.from_first(law, 0.7 * HOUR) == ()


def row_of(costs):
    return [costs.best / HOUR, costs.always / costs.best, costs.never / costs.best]


#: every law once, in one of the four settings: all of them take a minute
CLEAN = list(zip(checkpoints.BOUNDED, [*checkpoints.PRINTED.values()] * 3, strict=False))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "setting"), CLEAN)
def test_the_best_plans_cost_what_they_do_exactly(name, setting):
    """Digest 5.4, its clean reference."""
    seconds, beta = setting
    exact = EXACT[f"{seconds / HOUR:g} h, {'used' if beta else 'cloud'}"][name]
    found = checkpoints.plan_costs(checkpoints.BOUNDED[name], seconds, beta)
    assert row_of(found) == pytest.approx(exact[:3], abs=0.00051)
    if not beta:
        ours = [found.always_periodic / found.best, found.never_periodic / found.best]
        assert ours == pytest.approx([exact[4], exact[9]], abs=0.0051)


QUICK = [
    ("Beta", 360.0, 0.0, 0.8519),
    ("BoundedPareto", HOUR, 1.0, 5.9102),
    ("Exponential", HOUR, 0.0, 2.3641),
]


@pytest.mark.parametrize(("name", "seconds", "beta", "best"), QUICK)
def test_a_few_of_them_on_fewer_times(name, seconds, beta, best):
    found = checkpoints.plan_costs(checkpoints.BOUNDED[name], seconds, beta, 300, 50)
    assert found.best / HOUR == pytest.approx(best, rel=2e-3)
    assert found.best <= min(found)


@pytest.mark.parametrize("setting", ["0, 12 h", "1, 12 h"])
def test_the_second_scenario(setting):
    """Digest 5.5, where a mix is better than both pure plans."""
    beta = float(setting[0])
    found = checkpoints.plan_costs(checkpoints._SCENARIO, 12 * HOUR, beta)
    mean = Cost(1.0, beta).omniscient(21.4 * HOUR)
    assert [one / mean for one in found] == pytest.approx(EXACT["scenario-2"][setting], abs=0.00051)


def test_the_exponential_row_of_the_first_table():
    """Digest 8, 14: within two of the last digit."""
    ours = checkpoints.printed_row("11.5", "Exponential")
    printed = costs.TABLES["11.5"]["Exponential"]
    assert ours[0] == 27 and ours[8] == 14
    assert ours == pytest.approx([float(one) for one in printed], abs=0.01)
    assert ours[7] == pytest.approx(9.20, abs=0.005), "9.19 is printed"


@pytest.mark.slow
@pytest.mark.parametrize(("table", "name"), [("11.5", "Gamma"), ("C.1", "Uniform"), ("C.2", "BoundedPareto")])
def test_rows_of_the_tables_are_printed_so(table, name):
    """Within 0.05 %, that is two of the last digit; never committing, each request but the first is printed
    without the law's begin, in what is asked for and in what is used."""
    ours, printed = checkpoints.printed_row(table, name), costs.TABLES[table][name]
    assert ours == pytest.approx([float(one) for one in printed], rel=5e-4, abs=0.0101)


def test_a_row_that_is_off_by_one_factor_says_so():
    printed = [float(one) for one in costs.TABLES["11.6"]["Weibull"][:8]]
    ours = [printed[0], *(1.06 * one for one in printed[1:])]
    said = checkpoints._off("11.6", "Weibull", printed, ours)
    assert "1.060 times what is printed" in said and said.endswith("does not tell which")
    apart = [printed[0], *(1.2 * one for one in printed[1:-1]), 1.12 * printed[-1]]
    assert checkpoints._off("11.6", "Weibull", printed, apart) == "", "not by the same"
    assert checkpoints._off("11.6", "Weibull", printed, [1.04 * one for one in printed]) == "", "in the band"


def test_a_coarse_grid_gives_the_printed_costs():
    """The rows of Weibull with commits of 1 h, to a digit more than the band asks for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "_NUMBER", 232)
        for table in ("11.6", "C.2"):
            printed = [float(one) for one in costs.TABLES[table]["Weibull"]]
            assert checkpoints.printed_row(table, "Weibull") == pytest.approx(printed, rel=5e-3)


@pytest.mark.parametrize(("name", "seconds"), [("Weibull", 3000), ("Beta", 360)])
def test_a_mix_gains(name, seconds):
    found = checkpoints.plan_costs(checkpoints.BOUNDED[name], seconds, 0.0, 600, 1)
    assert EXACT["mixing"][name] == [pytest.approx(checkpoints._gain(found), abs=0.06), seconds]


def test_a_mix_is_compared_with_the_better_of_both():
    gains = [
        checkpoints._gain(checkpoints.PlanCosts(2.0, *pure, 0.0, 0.0)) for pure in ((3.0, 2.5), (2.2, 9.0))
    ]
    assert gains == pytest.approx([25, 10])


def test_the_worked_example():
    """Digest 8, 10: the last one is 42.32, not 43.92."""
    assert [round(one.ours, 2) for one in checkpoints._worked_example()] == [80, 47.2, 41.54, 42.32]
    assert [one.reached for one in checkpoints._worked_example()] == [True, True, True, False]


def test_laws_of_three_applications_lie_where_the_source_says():
    lows = {name: (one.law.low, one.law.high) for name, one in neuro.APPLICATIONS.items()}
    assert lows == {"Qball": (146, 407), "SD": (46 * 60, 138 * 60), "FCA": (165, 1003)}
    means = {name: one.law.mean for name, one in neuro.APPLICATIONS.items()}
    assert means["FCA"] == pytest.approx(424, abs=2) and means["Qball"] == pytest.approx(186, abs=1)
    sd = neuro.APPLICATIONS["SD"].law
    assert sd.mean == pytest.approx(95 * 60, abs=60), "92 min, if nothing were cut off at the lower end"
    assert 1000 < sd.std < 1443
    random = np.random.default_rng(0)
    for one in neuro.APPLICATIONS.values():
        drawn = neuro.drawn(one, 2000, random)
        assert one.law.low <= min(drawn) and max(drawn) <= one.law.high
        assert np.mean(drawn) == pytest.approx(one.law.mean, rel=0.03)


def test_a_law_that_is_mirrored_lies_in_the_same_range():
    law, other = neuro.APPLICATIONS["SD"].law, neuro.mirrored().law
    assert law.low <= other.low and other.high <= law.high
    assert other.mean == pytest.approx(law.low + law.high - law.mean, rel=1e-3)
    assert other.std == pytest.approx(law.std, rel=0.01)


def test_no_commit_pays_for_any_of_three_applications():
    """What varies with commits cannot be seen in the best plans; plans that always commit cost more."""
    for one in neuro.APPLICATIONS.values():
        best, always = (neuro.plan_of(one, way, (), 150) for way in ("discrete-ckpt", "all-checkpoint"))
        assert not any(request.commit for request in best.requests)
        assert always.over_omniscient > 1.02 * best.over_omniscient


def test_commits_that_vary_are_never_lost():
    """Reservations are as long as these take: a plan that commits costs what it did, on average."""
    found = neuro.by_application(1)
    for name in ("Qball", "FCA"):
        for share in (0.15, 0.3):
            for metric in ("utilisation", "stretch"):
                varied, planned = found[f"{name} ALL {share:g} {metric}"], found[f"{name} ALL {metric}"]
                assert varied != planned and varied == pytest.approx(planned, rel=0.01)
                assert found[f"{name} DPC {share:g} {metric}"] == found[f"{name} DPC {metric}"]


def test_each_job_has_its_own_five_runs_before_it():
    one = neuro.APPLICATIONS["FCA"]
    stays = neuro._by_own_runs(one, [200.0, 300.0, 400.0, 500.0, 600.0], [900.0, 180.0, 300.0])
    firsts = [each.reservations[0].length for each in stays]
    assert firsts == [400, 540, 516]
    assert stays[0].reservations[1].length == 600 and stays[0].reservations[2].length == 900


def test_gains_are_as_printed():
    """The first row of Table 11.8: 67 over 55 and 2.34 over 2.04."""
    row = {"DPC utilisation": 67.0, "HPC utilisation": 55.0, "DPC stretch": 2.04, "HPC stretch": 2.34}
    found = neuro.gains({name: np.array([value]) for name, value in row.items()}, "DPC", "HPC")
    assert [round(float(one[0])) for one in found.values()] == [22, 15], "21 is printed"


def test_what_is_drawn_is_the_same_for_every_way():
    first, again = neuro.mixed(5), neuro.mixed(5)
    assert first == again and first != neuro.mixed(6)
    for way in ("DPC", "ALL", "HPC"):
        assert 0 < first[f"{way} utilisation"] < first[f"{way} utilisation, used"] <= 100
        assert first[f"{way} stretch, with the queue"] > first[f"{way} stretch, used"] >= 1
    assert first["DPC utilisation"] > first["ALL utilisation"]
    assert 0.9 < first["mirrored DPC utilisation"] / first["DPC utilisation"] < 0.97, "long jobs are rare"


def test_a_miss_says_what_it_comes_from():
    row = neuro.claim("one", 1.0, 2.0, (0.0, 1.0), note="a bound")
    assert neuro._told(row, "as it is\nnot given").note == "a bound; as it is not given"
    assert neuro._told(row, "") is row
    reached = neuro.claim("one", 1.0, 0.5, (0.0, 1.0), note="a bound")
    assert neuro._told(reached, "as it is not given") is reached


def test_memory_that_is_known_saves_memory():
    """Digest 5.8: V2 asks for a quarter less, commits are hardly ever lost."""
    found = memory.trial(0)
    plain, aware, cut = (
        found[f"{way} 50 memory"] for way in ("ALL-CHECKPOINT", "MEM-ALL-CKPT", "MEM-ALL-CKPTV2")
    )
    assert plain == 55 and 0.03 < 1 - aware / plain < 0.2 and 0.15 < 1 - cut / plain < 0.35
    assert found["ALL-CHECKPOINT 50 lost"] == 0 <= found["MEM-ALL-CKPT 50 lost"] < 0.2
    assert found["MEM-ALL-CKPT 50 time"] < found["ALL-CHECKPOINT 50 time"] < found["NEURO 50 time"]
    assert found["ours 50 use"] > 85


def test_known_runs_make_their_own_chain():
    known = memory._drawn(np.random.default_rng(1), 8)
    assert known.shape == (8, 7) and known.min() >= 10
    ways = memory.ways(known)
    totals = known.sum(axis=1)
    assert ways["NEURO"].until[:2] == pytest.approx([totals.max(), 1.5 * totals.max()])
    assert ways["NEURO-AVG"].until[0] == pytest.approx(totals.mean())
    assert ways["NEURO"].steps[1].work == pytest.approx(0.5 * totals.max())
    assert ways["NEURO"].until[3] == pytest.approx(1.5**3 * totals.max())
    assert sum(step.work for step in ways["NEURO"].steps) == pytest.approx(ways["NEURO"].until[-1])
    assert ways["MEM-ALL-CKPTV2"].until[0] == 1500
    restarts = {step.restart for plan in ways.values() for step in plan.steps[1:]}
    assert restarts == {0.6 + 50 * 1.91}, "the source has the same for every state"
