"""The workload that looks like a production log: what was published of sizes, times and users comes out."""

from collections import Counter
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError
from dask_hpc.model.speedup import is_legal
from dask_hpc.simulator import load_workload, offered_load, simulate
from dask_hpc.simulator.built_in import built_in
from dask_hpc.simulator.built_in.batch_model import (
    LONGEST,
    Calendar,
    day_weights,
    draw_gaps,
    draw_runtimes,
    draw_sizes,
    week_weights,
)
from dask_hpc.simulator.built_in.estimates import MOST, POPULAR, assign, draw_values, popularity
from dask_hpc.simulator.built_in.sessions import draw_offsets, draw_sessions

_DAY, _WEEK = 86_400.0, 604_800.0


class Columns:
    """A workload as arrays."""

    def __init__(self, **values):
        self.workload = built_in("production", **values)
        jobs = [a.job for a in self.workload]
        self.sizes = np.array([job.nodes for job in jobs])
        self.runtimes = np.array([a.runtime for a in self.workload])
        self.estimates = np.array([job.walltime for job in jobs])
        self.times = np.array([job.submitted for job in jobs])
        self.users = np.array([job.user for job in jobs])


@pytest.fixture(scope="module")
def large():
    return Columns(jobs=60_000, nodes=512, load=0.8, seed=1)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


class TestSizes:
    def test_shares_are_the_published_ones(self, rng):
        sizes = draw_sizes(200_000, 128, rng)
        assert abs((sizes == 1).mean() - 0.244) < 0.004
        parallel = sizes[sizes > 1]
        is_power = (parallel & (parallel - 1)) == 0
        # all of 57.6 % of the jobs, and those of the others that are powers of two by chance
        assert 0.576 / 0.756 < is_power.mean() < 0.576 / 0.756 + 0.08
        # two stages: 86 % between 0.8 and 4.5, the others up to 7
        logs = np.log2(parallel)
        assert abs(logs.mean() - (0.86 * (0.8 + 4.5) / 2 + 0.14 * (4.5 + 7) / 2)) < 0.03
        assert abs((logs < 4.5).mean() - 0.86) < 0.01
        assert sizes.max() == 128 and sizes.min() == 1

    @pytest.mark.parametrize("nodes", [100, 1024, 10_000])
    def test_the_largest_follow_the_machine(self, nodes, rng):
        sizes = draw_sizes(50_000, nodes, rng)
        assert 0.99 * nodes < sizes.max() <= nodes
        large = sizes > nodes / 2**2.5
        assert abs(large.mean() - 0.14 * 0.756) < 0.03
        assert abs((sizes == 1).mean() - 0.244) < 0.01

    @given(st.integers(2, 20_000), st.integers(0, 300), st.integers(0, 9))
    @settings(max_examples=40, deadline=None)
    def test_they_fit_any_machine(self, nodes, count, seed):
        sizes = draw_sizes(count, nodes, np.random.default_rng(seed))
        assert len(sizes) == count and all(1 <= size <= nodes for size in sizes)


class TestRuntimes:
    def test_both_kinds_have_the_published_means_of_logarithms(self, rng):
        short = np.log(draw_runtimes(np.ones(100_000, int), 10**9, rng))
        # 78 % gamma(4.2, 0.94), 22 % gamma(312, 0.03)
        assert abs(short.mean() - (0.78 * 4.2 * 0.94 + 0.22 * 312 * 0.03)) < 0.03
        long = np.log(draw_runtimes(np.full(100_000, 300), 128, rng))  # their share is past the line's end
        assert abs(long.mean() - 9.36) < 0.02 and abs(long.std() - 0.03 * 312**0.5) < 0.01

    @pytest.mark.parametrize("nodes", [128, 1024, 10_000])
    def test_large_jobs_are_long_on_every_machine(self, nodes, rng):
        """The chance of a short one falls with the share of the machine: 0.78, 0.43, 0.09."""
        for share, chance in ((1 / 128, 0.775), (0.5, 0.434), (1.0, 0.089)):
            times = draw_runtimes(np.full(40_000, int(share * nodes)), nodes, rng)
            # of the short ones one in 360 is longer than e ** 8.3, of the long ones one in 50 is not
            assert abs((times < np.exp(8.3)).mean() - chance) < 0.02
            assert times.max() <= LONGEST

    def test_none_is_longer_than_the_longest(self, rng):
        assert draw_runtimes(np.full(300_000, 64), 64, rng).max() <= LONGEST == pytest.approx(np.exp(12))


class TestCalendar:
    def test_the_day_is_the_published_one(self):
        day = day_weights()
        assert len(day) == 48 and day.mean() == pytest.approx(1.0)
        # the gamma distribution's mode is (8.1737 - 1) * 3.9631 = 28.4 half hours
        assert 26 <= np.argmax(day) <= 28
        assert day[:12].max() < 0.8 and day[8:12].min() == day.min()
        assert day.max() > 5 * day.min()

    def test_a_weekend_is_half_as_busy(self):
        days = week_weights().reshape(7, 48).sum(axis=1)
        assert days[5:] == pytest.approx(days[0] / 2) and days[:5] == pytest.approx(days[0])

    @given(st.lists(st.floats(0, 10 * _WEEK), min_size=1, max_size=50))
    @settings(deadline=None)
    def test_the_clocks_agree(self, times):
        calendar, wall = Calendar(), np.sort(times)
        people = calendar.people(wall)
        assert (np.diff(people) >= 0).all()
        assert calendar.wall(people) == pytest.approx(wall, abs=1e-3)
        whole = np.array([0.0, _WEEK, 2 * _WEEK])
        assert calendar.people(whole) == pytest.approx(whole)


def test_gaps_have_the_published_spread_and_an_end(rng):
    gaps = draw_gaps(100_000, rng)
    assert gaps.max() <= 60.0
    usual = np.log(gaps[gaps < 30])
    assert abs(usual.std() - 0.4871 * (10.2303 * 1.0225) ** 0.5) < 0.05


class TestSessions:
    def test_jobs_are_repeated_by_a_power_law(self, rng):
        sessions = draw_sessions(100_000, rng)
        lengths = np.bincount(sessions.of_job)
        shares = np.array([(lengths == n).mean() for n in (1, 2, 4)])
        # 1 / zeta(2.5) = 0.745
        assert shares == pytest.approx(0.745 * np.array([1.0, 2.0, 4.0]) ** -2.5, abs=0.01)
        assert lengths.max() > 50

    def test_few_users_have_most_sessions_and_do_the_same_again(self, rng):
        sessions = draw_sessions(40_000, rng)
        counts = np.sort(np.bincount(sessions.user))[::-1]
        assert len(counts) <= 300 and counts[:10].sum() > 0.35 * sessions.count > counts[0]
        again = sessions.application != np.arange(sessions.count)
        assert 0.4 < again.mean() < 0.5
        assert (sessions.user == sessions.user[sessions.application]).all()
        assert (sessions.application[sessions.application] == sessions.application).all()

    @given(st.integers(1, 400), st.integers(0, 20))
    @settings(max_examples=60, deadline=None)
    def test_every_job_is_in_a_session(self, jobs, seed):
        rng = np.random.default_rng(seed)
        sessions = draw_sessions(jobs, rng)
        assert len(sessions.of_job) == jobs and (np.diff(sessions.of_job) >= 0).all()
        assert (sessions.of_job[sessions.first] == np.arange(sessions.count)).all()
        offsets = draw_offsets(sessions, rng.exponential(1000, jobs), rng)
        assert offsets[sessions.first] == pytest.approx(0.0) and (offsets >= -1e-6).all()
        inside = np.diff(sessions.of_job) == 0
        assert (np.diff(offsets)[inside] >= 0).all()

    def test_who_waits_for_a_job_comes_after_it(self, rng):
        sessions = draw_sessions(50_000, rng)
        offsets = draw_offsets(sessions, np.full(50_000, 1000.0), rng)
        gaps = np.diff(offsets)[np.diff(sessions.of_job) == 0]
        waits = gaps > 1000.0
        assert abs(waits.mean() - 0.4) < 0.02
        assert np.median(gaps[waits]) == pytest.approx(1180, abs=15) and gaps.max() <= 2200
        assert gaps[~waits].mean() == pytest.approx(5.0, abs=0.2)


class TestEstimates:
    def test_twenty_values_are_those_of_89_per_cent(self, rng):
        shares = popularity()
        assert len(POPULAR) == len(set(POPULAR)) == len(shares) == 20
        assert shares.sum() == pytest.approx(0.89) and shares[0] == pytest.approx(0.217, abs=0.002)
        assert shares[1] == pytest.approx((14.0491 * np.exp(-0.355062) + 0.462513) / 100)
        values = draw_values(50_000, 50_000, rng)
        counts = Counter(values.tolist()).most_common(20)
        assert {round(value) for value, _ in counts} == {round(3600 * hours) for hours in POPULAR}
        assert values.max() == MOST and values.min() > 0

    def test_each_value_is_given_to_a_time_that_it_allows(self):
        times = np.array([30.0, 10.0, 20.0])
        for seed in range(20):
            found = assign(np.array([30.0, 20.0, 10.0]), times, np.random.default_rng(seed))
            assert found.tolist() == [30.0, 10.0, 20.0]  # there is only one way
        ways = {
            tuple(assign(np.array([40.0, 40.0, 50.0]), times, np.random.default_rng(seed)))
            for seed in range(20)
        }
        assert len(ways) == 3
        assert assign(np.array([5.0]), np.array([10.0]), np.random.default_rng(0)).tolist() == [MOST]

    @given(st.lists(st.floats(1, LONGEST), max_size=60), st.integers(0, 9))
    @settings(deadline=None)
    def test_none_is_below_the_time(self, times, seed):
        rng, times = np.random.default_rng(seed), np.array(times)
        found = assign(draw_values(len(times), 100, rng), times, rng)
        assert (found >= times).all() and len(found) == len(times)


class TestWorkload:
    def test_its_sizes_are_those_of_the_model(self, large):
        assert abs((large.sizes == 1).mean() - 0.244) < 0.04
        parallel = large.sizes[large.sizes > 1]
        assert ((parallel & (parallel - 1)) == 0).mean() > 0.72
        assert abs(np.log2(parallel).mean() - (0.86 * (0.8 + 6.5) / 2 + 0.14 * (6.5 + 9) / 2)) < 0.25

    def test_large_jobs_are_longer(self, large):
        together = np.corrcoef(np.log(large.sizes), np.log(large.runtimes))[0, 1]
        assert 0.08 < together < 0.35
        medians = [np.median(large.runtimes[large.sizes >= least]) for least in (1, 64, 256)]
        assert medians[0] < medians[1] < medians[2]

    @pytest.mark.parametrize(("nodes", "load"), [(100, 0.5), (1024, 0.9), (10_000, 1.2)])
    @pytest.mark.parametrize("seed", [0, 1_000_000])
    def test_the_load_is_what_was_asked(self, nodes, load, seed):
        workload = built_in("production", jobs=2000, nodes=nodes, load=load, seed=seed)
        assert offered_load(workload) == pytest.approx(load, rel=0.02)
        assert workload.nodes == nodes and len(workload) == 2000

    def test_the_load_is_that_of_short_ones_too(self):
        """Whatever the last gap would have been: a machine is not idle at the end of a workload."""
        found = [offered_load(built_in("production", jobs=60, nodes=64, seed=seed)) for seed in range(20)]
        assert min(found) > 0.899 and fmean(found) < 0.91

    def test_days_and_weeks(self, large):
        hours = np.bincount((large.times % _DAY // 3600).astype(int), minlength=24)
        assert hours[12:16].mean() > 3 * hours[3:6].mean()
        days = np.bincount((large.times % _WEEK // _DAY).astype(int), minlength=7)
        assert 0.3 < days[5:].mean() / days[:5].mean() < 0.7

    def test_a_day_stays_a_day_at_another_load(self):
        for load in (0.3, 1.2):
            times = Columns(jobs=20_000, nodes=128, load=load, seed=2).times
            hours = np.bincount((times % _DAY // 3600).astype(int), minlength=24)
            assert hours[12:16].mean() > 2.5 * hours[3:6].mean()

    def test_estimates_are_round_and_wrong(self, large):
        assert (large.estimates >= large.runtimes).all()
        values = Counter(large.estimates.tolist())
        top = sum(count for _, count in values.most_common(20)) / 60_000
        assert 0.85 < top < 0.97 and all(value % 300 == 0 for value in values)
        assert max(values, key=values.get) == MOST and 0.1 < values[MOST] / 60_000 < 0.35
        used = large.runtimes / large.estimates
        assert 0.05 < (used == 1.0).mean() < 0.15  # ended at their limits
        assert (used < 0.1).mean() > 0.3  # ended early
        long = used[(large.runtimes > 7200) & (used < 1.0)]
        parts = np.histogram(long, 4, (0.0, 1.0))[0] / len(long)
        assert (parts > 0.02).all() and parts[0] < 0.75  # and anything between

    def test_a_few_users_have_most_of_the_work(self, large):
        work = Counter()
        for user, amount in zip(large.users, large.sizes * large.runtimes, strict=True):
            work[user] += amount
        assert 200 < len(work) < 400
        first = sum(amount for _, amount in work.most_common(len(work) // 10))
        assert 0.5 < first / sum(work.values()) < 0.95

    def test_users_repeat_their_jobs(self, large):
        last, same, total = {}, 0, 0
        for user, size, estimate in zip(large.users, large.sizes, large.estimates, strict=True):
            same += last.get(user) == (size, estimate)
            total += user in last
            last[user] = (size, estimate)
        assert same / total > 0.4

    def test_jobs_come_in_clusters(self, large):
        gaps = np.diff(large.times)
        assert gaps.std() / gaps.mean() > 1.5

    def test_seeds_differ_and_shares_are_nested(self):
        one, other = (built_in("production", jobs=300, seed=seed) for seed in (0, 1))
        assert one != other
        few, many = (
            {a.job.id for a in built_in("production", jobs=300, malleable=share) if a.job.resizable}
            for share in (0.2, 0.5)
        )
        assert few < many and len(few) == 60

    @given(
        st.integers(1, 120),
        st.integers(2, 3000),
        st.floats(0.05, 3),
        st.integers(0, 2**40),
        st.sampled_from(["half-double", "wide", "0.5:4"]),
        st.sampled_from(["linear", "power", "amdahl", "io", "mixed", "unchanged"]),
        st.booleans(),
    )
    @settings(max_examples=60, deadline=None)
    def test_every_one_can_be_played(self, jobs, nodes, load, seed, rule, law, declared):
        workload = built_in(
            "production",
            jobs=jobs,
            nodes=nodes,
            load=load,
            seed=seed,
            malleable=0.7,
            rule=rule,
            law=law,
            declared=declared,
        )
        assert len(workload) == jobs
        for arrival in workload:
            job = arrival.job
            assert 1 <= job.min_nodes <= job.nodes <= job.max_nodes <= nodes
            assert 1.0 <= arrival.runtime <= job.walltime <= MOST and job.submitted >= 0.0
            assert is_legal(job.constraint, job.min_nodes) and is_legal(job.constraint, job.max_nodes)

    @pytest.mark.parametrize("policy", ["easy-backfill", "elastic"])
    @pytest.mark.parametrize("declared", [True, False])
    def test_nobody_is_killed(self, policy, declared):
        workload = built_in("production", jobs=400, nodes=64, malleable=0.8, rule="wide", declared=declared)
        found = simulate(workload, policy=policy).metrics
        assert found["completed"] == 400

    def test_means_over_seeds_are_those_of_the_model(self):
        """Users who repeat themselves make each workload one-sided, and all of them together not."""
        found = [Columns(jobs=1000, nodes=128, seed=seed) for seed in range(30)]
        assert abs(fmean((one.sizes == 1).mean() for one in found) - 0.244) < 0.03

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("jobs=0", "jobs: found '0'; allowed: 1 to 1000000"),
            ("nodes=1", "nodes: found '1'"),
            ("load=0", "load: found '0'"),
            ("law=linaer", "law: found 'linaer'"),
            ("rule=wise", "rule: found 'wise' \\(nearest: wide\\)"),
            ("lode=1", "unknown parameter \\(nearest: load\\)"),
        ],
    )
    def test_bad_input_is_one_line(self, text, complaint):
        with pytest.raises(InputError, match=complaint) as error:
            load_workload(f"builtin:production?{text}")
        assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_hundred_thousand_jobs_take_seconds():
    from time import process_time

    begun = process_time()
    assert len(built_in("production", jobs=100_000)) == 100_000
    assert process_time() - begun < 10.0  # 2 s and less on a quiet machine
