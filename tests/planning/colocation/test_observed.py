"""Who slows whom is found from what workers tell, whatever the law and whoever tells when."""

import random
from collections import Counter
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.colocation.observed import Observations, about

CPU = "Some Processor"


def word(number, since, until, tasks=(), running=(), ended=None, cpu=CPU, names=None):
    """What a worker's heartbeat says; ``tasks`` are (kind, start, stop) or longer rows."""
    rows = {}
    for kind, *row in tasks:
        rows.setdefault(kind, []).append([*row, *[None, 10, None][len(row) - 2 :]])
    starts = {}
    for kind, start in running:
        starts.setdefault(kind, []).append(start)
    return {
        "number": number, "since": since, "until": until, "host": {"cpu": cpu, "cores": 4, "limit": 0},
        "tasks": rows, "ended": ended or {}, "running": starts, "counters": names, "why_not": "",
        "peaks": None,
    }  # fmt: skip


class Learned(Observations):
    """Notes what it learns from."""

    def __init__(self, **how):
        super().__init__(**{"most_learned": 100_000, **how})
        self.seen = []

    def _learn_one(self, cpu, one, company, names):
        self.seen.append((one.kind, one.start, one.stop, company))
        super()._learn_one(cpu, one, company, names)


def told(observations, node, runs, ends):
    """All workers of a node tell of their runs (worker -> (kind, start, stop)), at these times (worker,
    until), in that order, and all at the end."""
    workers = list(runs)
    last = dict.fromkeys(workers, 0.0)
    finish = max((stop for some in runs.values() for *_, stop in some), default=0.0) + 1
    ends = sorted(ends, key=lambda one: one[1]) + [(worker, finish) for worker in workers]
    for worker in workers:
        observations.hear(node, worker, word(0, 0.0, 0.0))
    for number, (worker, until) in enumerate(ends, 1):
        since = last[worker]
        done = [one for one in runs[worker] if since < one[2] <= until]
        on = [(kind, start) for kind, start, stop in runs[worker] if start <= until < stop]
        observations.hear(node, worker, word(number, since, until, done, on))
        last[worker] = until


def simulated(law, base, slots, order, noise=0.0, rng=None):
    """(kind, start, stop) of tasks in this order on a node of so many slots: how fast one goes depends on
    what is beside it at each moment. ``law``: (kind, neighbour) -> what one such neighbour adds."""
    rng = rng or random.Random(0)
    waiting, now, done, on = list(order), 0.0, [], []
    while waiting or on:
        while waiting and len(on) < slots:
            kind = waiting.pop(0)
            on.append([kind, now, base[kind] * (1 + noise * rng.gauss(0, 1))])
        there = Counter(kind for kind, *_ in on)
        rates = [
            1 / (1 + sum(law[kind, other] * (n - (other == kind)) for other, n in there.items()))
            for kind, *_ in on
        ]
        step = min(left / rate for (*_, left), rate in zip(on, rates, strict=True))
        now += step
        for one, rate in zip(on, rates, strict=True):
            one[2] -= step * rate
        done += [(kind, start, now) for kind, start, left in on if left <= 1e-9]
        on = [one for one in on if one[2] > 1e-9]
    return done


spans = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 400), st.integers(1, 200)), min_size=1, max_size=12
)


@given(
    st.dictionaries(st.sampled_from(["w0", "w1", "w2"]), spans, min_size=1),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 600)), max_size=10),
)
def test_company_is_what_ran_beside_whoever_tells_when(runs, ends):
    runs = {
        w: [(kind, start / 10 + 0.01, (start + length) / 10 + 0.01) for kind, start, length in some]
        for w, some in runs.items()
    }
    workers = sorted(runs)
    found = Learned()
    told(found, "n", runs, [(workers[i % len(workers)], at / 10) for i, at in ends])
    every = [one for some in runs.values() for one in some]
    assert sorted(one[:3] for one in found.seen) == sorted(every)
    for kind, start, stop, company in found.seen:
        right = Counter()
        for other, begin, end in every:
            right[other] += max(0.0, min(stop, end) - max(start, begin)) / (stop - start)
        right[kind] -= 1
        for other in "ab":
            assert company.get(other, 0.0) == pytest.approx(right[other], abs=0.011)


def test_a_task_is_learned_from_when_all_have_told():
    found = Learned()
    found.hear("n", "w0", word(1, 0.0, 1.0))
    found.hear("n", "w1", word(1, 0.0, 1.0))
    assert found.hear("n", "w0", word(2, 1.0, 3.0, [("a", 1.5, 2.5)])) == 0
    assert found.hear("n", "w1", word(2, 1.0, 2.0, [("b", 1.0, 1.75)])) == 1, "its own, told of by both"
    assert found.hear("n", "w1", word(3, 2.0, 3.0, [], [("b", 2.0)])) == 1
    (_, first), (_, second) = ((one[0], one[3]) for one in found.seen)
    assert first == pytest.approx({"a": 1 / 3}, abs=1e-9)
    assert second == pytest.approx({"b": 0.75}), "one that ended, and one that runs"


def test_nobody_waits_for_who_is_gone_nor_for_other_nodes():
    found = Learned()
    found.hear("n", "w0", word(1, 0.0, 1.0))
    found.hear("n", "w1", word(1, 0.0, 1.0))
    found.hear("other", "w2", word(1, 0.0, 1.0, [], [("z", 0.0)]))
    assert found.hear("n", "w0", word(2, 1.0, 3.0, [("a", 1.5, 2.5)])) == 0
    found.forget_worker("n", "w1")
    assert found.hear("n", "w0", word(3, 3.0, 4.0)) == 1
    assert found.seen[0][3] == {}
    found.forget_worker("n", "w0")
    found.forget_worker("n", "w0")


def test_a_word_is_heard_once():
    found = Learned()
    one = word(1, 0.0, 1.0, [("a", 0.25, 0.75)])
    assert found.hear("n", "w", one) == 1
    assert found.hear("n", "w", one) == 0
    assert found.hear("n", "w", word(1, 1.0, 2.0, [("a", 1.25, 1.75)])) == 1, "the worker counts anew"
    assert found.kinds()["a"].tasks == 2


def test_tasks_with_a_gap_in_what_is_told_are_left_out():
    found = Learned()
    found.hear("n", "w0", word(1, 0.0, 1.0))
    assert found.hear("n", "w0", word(2, 5.0, 7.0, [("a", 2.0, 6.0)])) == 0, "most of its time is not known"
    assert found.hear("n", "w0", word(3, 7.0, 8.0, [("a", 4.0, 7.5)])) == 1


def test_of_some_tasks_each_counts_for_several():
    found = Learned()
    found.hear("n", "w0", word(1, 0.0, 1.0))
    found.hear("n", "w1", word(1, 0.0, 1.0))
    short = [("b", 1 + i / 10, 1.05 + i / 10) for i in range(0, 10, 2)]
    found.hear("n", "w1", word(2, 1.0, 2.0, short, ended={"b": 10}))
    found.hear("n", "w0", word(2, 1.0, 2.0, [("a", 1.0, 2.0)]))
    company = next(company for kind, _, _, company in found.seen if kind == "a")
    assert company == pytest.approx({"b": 0.5})
    alone = [company for kind, _, _, company in found.seen if kind == "b"]
    assert all("b" not in company for company in alone), "those it stands for ran before and after"


@settings(max_examples=15)
@given(
    st.fixed_dictionaries({(a, b): st.sampled_from([0.0, 0.2, 0.5, 1.0]) for a in "xy" for b in "xy"}),
    st.integers(2, 4),
    st.integers(0, 10**6),
)
def test_a_law_of_interference_is_found(law, slots, seed):
    rng = random.Random(seed)
    base = {"x": 1.0, "y": 0.6}
    found = Observations(most_learned=100_000)
    order = [k for _ in range(80) for k in [rng.choice("xy")] * rng.randrange(1, 2 * slots)]
    runs = [one for k in "xy" for one in simulated(law, base, 1, [k] * 20)]  # alone
    gap = 20.0
    runs = [(k, s + (gap if k == "y" else 0), e + (gap if k == "y" else 0)) for k, s, e in runs]
    at = max(e for *_, e in runs) + 1
    mixed = simulated(law, base, slots, order, noise=0.02, rng=rng)
    runs += [(k, s + at, e + at) for k, s, e in mixed]
    told(found, "n", {"w0": runs[::2], "w1": runs[1::2]}, [(f"w{i % 2}", i / 2) for i in range(1, 200)])
    for kind, seconds in base.items():
        seen = found.kinds()[kind]
        assert seen.how == "alone" and seen.baseline == pytest.approx(seconds, rel=0.05)
    for (kind, other), more in law.items():
        one = found.slowdown(kind, {other: 1})
        if one.tasks >= 30:
            assert one.ratio == pytest.approx(1 + more, rel=0.12, abs=0.06 + 3 * min(1.0, one.stderr))
    assert found.mpe() < 15


def filled(base=1.0, beside=1.5, tasks=40, cpu=CPU, other="b"):
    """Tasks of a alone, and as many beside one of b each."""
    found = Learned()
    found.hear("n", "w", word(0, 0.0, 0.0, cpu=cpu))
    rows, at = [], 0.0
    for i in range(tasks):
        wobble = 1 + 0.02 * (-1) ** i
        rows += [("a", at, at + base * wobble)]
        at += 2 * base
        rows += [("a", at, at + beside * wobble), (other, at, at + beside * wobble)]
        at += 2 * beside
    found.hear("n", "w", word(1, 0.0, at, rows, cpu=cpu))
    return found


def test_ratio_and_error_of_a_pair():
    found = filled()
    one = found.slowdown("a", {"b": 1})
    assert one.ratio == pytest.approx(1.5, rel=0.01)
    sd = 0.02 * (40 / 39) ** 0.5
    expected = 1.5 * (2 * (sd / 40**0.5) ** 2) ** 0.5  # both means are equally sure
    assert one.stderr == pytest.approx(expected, rel=0.05)
    assert one.tasks == pytest.approx(40, rel=0.01)
    assert found.slowdown("a", {}) == pytest.approx((1.0, sd / 40**0.5, 40), rel=0.05)


def test_what_was_not_seen_together_is_linear_in_its_number():
    found = filled()
    two = found.slowdown("a", {"b": 2})
    assert two.ratio == pytest.approx(2.0, rel=0.02) and two.stderr < 0.2
    stranger = found.slowdown("a", {"c": 3})
    assert stranger.ratio == 1.0 and stranger.stderr == inf and stranger.tasks == 0
    assert found.slowdown("nobody", {"a": 1}) == (1.0, inf, 0)


def test_nobody_is_foreseen_to_be_faster_for_company():
    found = filled(beside=0.5)
    assert found.slowdown("a", {"b": 1}).ratio == pytest.approx(0.5, rel=0.01), "as measured"
    assert found.slowdown("a", {"b": 3}).ratio == 1.0


def test_until_ten_were_alone_the_fastest_count():
    found = Learned()
    found.hear("n", "w", word(0, 0.0, 0.0))
    rows = [
        row for i in range(60) for row in (("a", 4.0 * i, 4 * i + 2 + i / 60), ("b", 4.0 * i, 4.0 * i + 3))
    ]
    rows += [("a", 1000.0 + 4 * i, 1001.0 + 4 * i) for i in range(9)]
    found.hear("n", "w", word(1, 0.0, 1100.0, rows))
    seen = found.kinds()["a"]
    assert seen.how == "fastest" and seen.baseline == 1.0, "a twentieth of 69"
    assert seen.stderr == pytest.approx(seen.variance**0.5) and seen.stderr > 0.3, "and that is unsure"
    found.hear("n", "w", word(2, 1100.0, 1200.0, [("a", 1150.0, 1151.0)]))
    assert found.kinds()["a"].how == "alone"


def test_neighbours_that_miss_no_cache_do_not_count_for_the_baseline():
    found = Learned()
    names = ["misses", "accesses", "instructions"]
    found.hear("n", "w", word(0, 0.0, 0.0, names=names))
    quiet, loud = (10.0, 100.0, 1e9), (1e7, 2e7, 1e9)
    rows, at = [], 0.0
    for other, counts, seconds in [("calm", quiet, 1.0)] * 40 + [("storm", loud, 2.0)] * 40:
        rows += [("a", at, at + seconds, 10, 10, quiet), (other, at, at + seconds, 10, 10, counts)]
        at += 3
        found.hear("n", "w", word(at, at - 3, at, rows, names=names))
        rows = []
    seen = found.kinds()
    assert seen["a"].how == "no memory-bound neighbours" and seen["a"].baseline == pytest.approx(1.0)
    assert seen["storm"].intensity == pytest.approx(1e-2) and seen["storm"].by == "counters"
    assert found.slowdown("a", {"storm": 1}).ratio == pytest.approx(2.0)


def test_without_counters_bytes_a_second_stand_for_them():
    found = Learned()
    found.hear("n", "w", word(0, 0.0, 0.0))
    found.hear(
        "n", "w", word(1, 0.0, 10.0, [("a", 0.0, 2.0, 100, 300, None), ("b", 3.0, 4.0, None, 7, None)])
    )
    seen = found.kinds()
    assert seen["a"].intensity == pytest.approx(200.0) and seen["a"].by == "bytes"
    assert seen["b"].intensity is None
    assert seen["a"].mean == 2.0 and seen["a"].variance == 0.0


def test_models_of_processors_know_nothing_of_each_other():
    found = filled(beside=1.5)
    found.hear("fast", "v", word(0, 0.0, 0.0, cpu="Fast"))
    found.hear("fast", "v", word(1, 0.0, 50.0, [("a", i, i + 0.2) for i in range(50)], cpu="Fast"))
    assert found.cpus == [CPU, "Fast"]
    assert found.kinds()["a"].baseline == pytest.approx(1.0, rel=0.01)
    assert found.kinds("Fast")["a"].baseline == pytest.approx(0.2)
    assert found.slowdown("a", {"b": 1}, "Fast").tasks == 0
    assert found.kinds("Other") == {}


def test_old_tasks_are_forgotten():
    found = Learned()
    found.hear("n", "w", word(0, 0.0, 0.0))
    found.hear("n", "w", word(1, 0.0, 5000.0, [("a", 2.0 * i, 2 * i + 1.0) for i in range(1000)]))
    assert found.kinds()["a"].baseline == pytest.approx(1.0)
    rows = [("a", 5000 + 5.0 * i, 5000 + 5 * i + 3.0) for i in range(1000)]
    found.hear("n", "w", word(2, 5000.0, 10000.0, rows))
    assert found.kinds()["a"].baseline == pytest.approx(3.0, rel=0.01)


def test_what_is_not_seen_for_long_is_less_known():
    found = filled(tasks=60)
    before = found.slowdown("a", {"b": 1}).tasks
    at = 1e4
    for number in range(2, 12):
        rows = [("a", at + 2 * i, at + 2 * i + 1) for i in range(1000)]
        found.hear("n", "w", word(number, at - 1e4, at + 2000, rows))
        at += 1e4
    assert found.slowdown("a", {"b": 1}).tasks == pytest.approx(before / 4, rel=0.05)


def test_memory_is_bounded():
    found = Learned(most_kinds=5)
    found.hear("n", "w", word(0, 0.0, 0.0))
    found.hear("n", "w", word(1, 0.0, 100.0, [(f"k{i}", i, i + 0.5) for i in range(20)]))
    assert list(found.kinds()) == [f"k{i}" for i in range(15, 20)]
    long = Learned()
    long.hear("n", "w", word(0, 0.0, 0.0, [], [("slow", 0.0)]))
    for number in range(1, 50):
        rows = [("a", number + i / 200, number + (i + 1) / 200) for i in range(200)]
        long.hear("n", "w", word(number, number, number + 1.0, rows, [("slow", 0.0)]))
    (there,) = long._nodes.values()
    assert len(there.records) <= 3000 and not there.pending
    company = long.seen[-1][3]
    assert company["slow"] == pytest.approx(1.0)
    long.hear("n", "w", word(50, 50.0, 51.0, [("slow", 0.0, 50.5)]))
    assert long.seen[-1][0] == "a", "most of what ran beside the long one is not known any more"
    long.hear("n", "w", word(51, 51.0, 52.0))
    assert not there.records


def test_only_some_of_many_tasks_are_learned_from():
    found = Learned(most_learned=80)
    found.hear("n", "w", word(0, 0.0, 0.0))
    assert found.hear("n", "w", word(1, 0.0, 100.0, [("a", i, i + 0.5) for i in range(100)])) == 10
    assert [one[1] for one in found.seen] == list(range(0, 100, 10))
    for number in range(20):
        found.hear(f"n{number}", "v", word(0, 0.0, 0.0))
    rows = [("a", 100 + i, i + 100.5) for i in range(100)]
    assert found.hear("n", "w", word(2, 100.0, 200.0, rows)) == 3, "a share of 80 for each of 21 workers"
    for number in range(20):
        found.forget_worker(f"n{number}", "v")
    rows = [("a", 200 + i, i + 200.5) for i in range(100)]
    assert found.hear("n", "w", word(3, 200.0, 300.0, rows)) == 10


def test_errors_of_what_was_foreseen():
    found = Learned()
    assert found.mpe() is None and found.nrmse() is None
    found.hear("n", "w", word(0, 0.0, 0.0))
    found.hear("n", "w", word(1, 0.0, 10.0, [("a", 0.0, 1.0), ("a", 2.0, 4.0)]))
    assert found.mpe() == pytest.approx(50.0), "1 was foreseen, and it took 2"
    assert found.nrmse() is None, "of one there is no range"
    found.hear("n", "w", word(2, 10.0, 20.0, [("a", 11.0, 12.0)]))
    assert found.mpe() == pytest.approx(25.0)
    assert found.nrmse() == pytest.approx((0.5) ** 0.5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("until", None), ("until", "soon"), ("host", {}), ("tasks", [1]), ("running", None), ("number", ...),
        ("tasks", {"a": [[1.0]]}), ("tasks", {"a": [["x", 2.0, 1, 1, None]]}),
    ],
)  # fmt: skip
def test_what_is_no_word_is_said_in_one_line(key, value):
    one = word(1, 0.0, 1.0)
    if value is ...:
        del one[key]
    else:
        one[key] = value
    found = Observations()
    with pytest.raises(InputError, match="what w tells") as error:
        found.hear("n", "w", one)
    assert "\n" not in str(error.value)
    assert found.hear("n", "w", word(1, 0.0, 1.0, [("a", 0.0, 0.5)])) == 1, "nothing is half heard"


def test_tasks_of_no_time_are_left_out():
    found = Observations()
    found.hear("n", "w", word(0, 0.0, 0.0))
    assert found.hear("n", "w", word(1, 0.0, 5.0, [("a", 1.0, 1.0), ("a", 2.0, 1.5), ("a", 1.0, inf)])) == 0


@pytest.mark.parametrize(
    ("count", "expected"), [(0.4, 0), (0.5, 1), (6.6, 7), (9.1, 10), (19, 20), (61.2, 64)]
)
def test_many_neighbours_are_counted_roughly(count, expected):
    assert about(count) == expected
