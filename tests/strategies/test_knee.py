"""The search for the knee: it ends near the best, stays, follows, and costs next to nothing."""

from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.strategies.io.io_lanes import MeasuredLane, Search, step

KEEP, COST = 0.01, 0.02


def collapsing(knee, factor):
    """Served one by one as fast as by ``knee`` at once; beyond, so much slower all together."""
    return lambda level: level if level <= knee else knee / factor


def fading(knee, slope):
    return lambda level: level if level <= knee else knee / (1 + slope * (level - knee))


curves = st.one_of(
    st.tuples(st.integers(1, 64), st.floats(1.0, 10.0)).map(lambda pair: (pair[0], collapsing(*pair))),
    st.tuples(st.integers(1, 64), st.floats(0.0, 1.0)).map(lambda pair: (pair[0], fading(*pair))),
)


class Machine:
    """A file system of which endlessly many wait to read, seen in windows."""

    def __init__(self, curve, most, level=None, waiting=10**6):
        self.curve, self.most, self.waiting = curve, most, waiting
        first = most if level is None else level
        self.search = Search(first, first)
        self.done, self.seconds, self.levels, self.tries = 0, 0.0, [], 0

    def go_on(self, windows, noise=lambda: 1.0):
        for _ in range(windows):
            level = self.search.level
            reads = ceil(self.search.needed(self.curve(level)))
            rate = self.curve(level) * noise()
            self.done += reads
            self.seconds += reads / self.curve(level)
            self.levels.append(level)
            self.tries += self.search.is_trying
            found = MeasuredLane(level, reads, rate, self.done, self.waiting)
            self.search = step(self.search, found, 1, self.most, KEEP, COST)
        return self

    def is_best(self, level, knee):
        """Within one of the fewest readers with the best throughput, or as good but for what may be lost."""
        best = max(self.curve(n) for n in range(1, self.most + 1))
        return abs(level - min(knee, self.most)) <= 1 or self.curve(level) >= (1 - KEEP) ** 2 * best


@given(curves, st.integers(2, 64))
def test_it_ends_near_the_best_and_stays(pair, most):
    knee, curve = pair
    machine = Machine(curve, most).go_on(16)  # half as many, six times; and halves of the rest
    assert not machine.search.is_trying and machine.search.rest
    assert machine.is_best(machine.search.best, knee)
    best = machine.search.best
    machine.tries = 0
    machine.go_on(300)
    assert machine.search.best == best or machine.is_best(machine.search.best, knee)
    assert machine.tries <= 20  # it looks around, ever more rarely, and does not swing


@given(curves, st.integers(2, 32), st.integers(1, 32), st.floats(0.3, 8.0))
def test_it_follows(pair, most, knee, speed):
    machine = Machine(pair[1], most).go_on(40)
    machine.curve = lambda level: speed * collapsing(knee, 3.0)(level)
    machine.go_on(900)  # rests become longer, up to 640 windows
    assert machine.is_best(machine.search.best, knee)


@given(st.integers(1, 64), st.integers(2, 64), st.integers(0, 3000), st.integers(0, 3000))
def test_it_costs_next_to_nothing_where_nothing_collapses(knee, most, waiting, windows):
    """Reads that are known, and no more, make up for what a try costs: however soon it is over."""
    machine = Machine(collapsing(knee, 1.0), most, waiting=0)
    total = waiting + most * (windows % 100)
    while machine.done < total:
        machine.waiting = total - machine.done
        machine.go_on(1)
    if machine.done:
        best = machine.done / machine.curve(most)
        assert machine.seconds <= (1 + 0.03) * best + 1e-9


@pytest.mark.slow
@given(st.integers(4, 32), st.randoms(use_true_random=False))
def test_noise_does_not_lead_it_far_astray(most, random):
    machine = Machine(collapsing(most // 2, 3.0), most)
    machine.go_on(400, lambda: random.uniform(0.97, 1.03))
    late = machine.levels[100:]
    mean = sum(machine.curve(level) for level in late) / len(late)
    assert mean >= 0.8 * machine.curve(most // 2)
    assert sum(a != b for a, b in pairwise(late)) <= 60


@pytest.mark.parametrize("waiting, tries", [(24, False), (1000, True)])
def test_few_reads_are_not_tried_on(waiting, tries):
    machine = Machine(collapsing(4, 3.0), 8, waiting=waiting).go_on(1)
    assert machine.search.is_trying is tries
