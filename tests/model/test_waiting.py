"""The queue against a plain sorted list, with enough jobs that blocks split."""

import random
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.job import Job
from dask_hpc.model.waiting import Hole, Waiting
from dask_hpc.strategies.queue.fcfs import Fcfs
from dask_hpc.strategies.queue.order import Priority

ORDER = Priority()


class PlainQueue:
    """The same answers by looking at everything."""

    def __init__(self):
        self.entries = []  # (rank, arrival, job)
        self.arrivals = 0

    def add(self, job, arrival=None, ahead=0):
        if arrival is None:
            arrival = self.arrivals
            self.arrivals += 1
        self.entries.append(((-ahead, ORDER.rank(job), arrival), job))
        self.entries.sort(key=lambda entry: entry[0])

    def remove(self, job_id):
        at = next(i for i, entry in enumerate(self.entries) if entry[1].id == job_id)
        return self.entries.pop(at)

    @property
    def jobs(self):
        return [job for _, job in self.entries]

    def within(self, depth, hole):
        for job in self.jobs[:depth]:
            if job.min_nodes <= hole.idle:
                yield job

    def most_urgent(self, count, now, by):
        found, highest = None, 0.0
        for job in self.jobs:
            if job.submitted <= by and (now - job.submitted) * count(job) > highest:
                found, highest = job, (now - job.submitted) * count(job)
        return found

    def fitting(self, key, hole):
        for place, job in self.entries:
            fits = job.nodes <= hole.idle and (job.nodes <= hole.spare or job.walltime <= hole.window)
            if place > key and fits:
                yield job


def some_job(rng, number):
    nodes = rng.choice((1, 1, 2, 4, 64))
    return Job(
        id=str(number),
        nodes=nodes,
        kind="moldable",
        min_nodes=rng.randint(1, nodes),
        walltime=rng.choice((60.0, 600.0, 3600.0, inf)),
        priority=float(rng.randint(0, 3)),
        submitted=float(rng.randint(0, 50)),
    )


def let_in(jobs, hole, shrinks):
    """Those that fit, each of which takes so much of the hole."""
    found = []
    for job in jobs:
        found.append(job)
        hole.idle -= min(hole.idle, shrinks)
        hole.spare -= shrinks
    return found


def count(job):
    """What a second that a job waits counts: nothing for some."""
    return job.priority * job.nodes**-0.3


def count_all(job):
    """The same for all."""
    return 1.0


def check_same(queue, plain, rng):
    jobs = plain.jobs
    assert list(queue) == jobs
    assert len(queue) == len(jobs)
    assert queue.first is (jobs[0] if jobs else None)
    finite = [job for job in jobs if job.walltime < inf]
    assert queue.oldest is min(finite, key=lambda job: job.submitted, default=None)
    counts = rng.choice((count, count, count, count_all))
    for _ in range(3):
        now, by = rng.uniform(0, 100), rng.randint(-1, 60)
        assert queue.most_urgent(counts, now, by) is plain.most_urgent(counts, now, by)
    with pytest.raises(IndexError):
        queue.at(len(jobs))
    if not jobs:
        return
    at = rng.randrange(len(jobs))
    assert queue.at(at) is jobs[at]
    ahead, _, arrival = plain.entries[at][0]
    assert (queue.ahead_of(jobs[at].id), queue.arrival_of(jobs[at].id)) == (-ahead, arrival)
    for _ in range(5):
        key = queue.key(rng.choice(jobs).id)
        search = rng.randint(0, 70), rng.choice((0.0, 60.0, 1000.0, inf)), rng.randint(0, 5)
        shrinks = rng.randint(0, 3)
        depth = rng.choice((0, 1, at, at + 1, len(jobs), 10_000))
        mine, its = Hole(search[0]), Hole(search[0])
        found = let_in(queue.within(depth, mine), mine, shrinks)
        assert found == let_in(plain.within(depth, its), its, shrinks)
        mine, its = Hole(*search), Hole(*search)
        found = let_in(queue.fitting(key, mine), mine, shrinks)
        assert found == let_in(plain.fitting(key, its), its, shrinks)


@settings(max_examples=25, deadline=None)
@given(st.integers(), st.integers(1, 1500), st.floats(0.05, 0.95))
def test_against_a_plain_list(seed, operations, adding):
    rng = random.Random(seed)
    queue, plain = Waiting(ORDER), PlainQueue()
    taken = []
    for number in range(operations):
        if not plain.entries or rng.random() < adding:
            if taken and rng.random() < 0.2:
                (_, _, arrival), job = taken.pop(rng.randrange(len(taken)))
                ahead = rng.choice((0, 0, 1, 2))
                queue.add(job, arrival, ahead)
                plain.add(job, arrival, ahead)
                continue
            job = some_job(rng, number)
            queue.add(job)
            plain.add(job)
            assert job.id in queue
        else:
            gone = rng.choice(plain.jobs)
            assert queue.remove(gone.id) is gone
            taken.append(plain.remove(gone.id))
            assert gone.id not in queue
        if number % 50 == 0:
            check_same(queue, plain, rng)
    check_same(queue, plain, rng)


@pytest.mark.parametrize("seed", range(100))
def test_a_block_knows_whether_anybody_in_it_fits(seed):
    """As jobs come; and when some have gone, it denies nobody who is there, and knows again when it looks."""
    rng = random.Random(seed)
    first, more, gone = rng.randint(1, 12), rng.randint(0, 12), rng.randint(0, 12)
    sizes, times = range(1, 9), (60.0, 300.0, 600.0, 1200.0, 3600.0, inf)
    jobs = [
        Job(id=str(number), nodes=rng.choice(sizes), walltime=rng.choice(times))
        for number in range(first + more)
    ]
    queue = Waiting()
    for job in jobs[:first]:
        queue.add(job)
    [block] = queue._blocks
    block.reaches(1, 60.0)  # from now on it has to know the shortest of each size
    for job in jobs[first:]:
        queue.add(job)
    [block] = queue._blocks
    searches = [(nodes, walltime) for nodes in (0, *sizes) for walltime in (0.0, *times)]

    def fits(nodes, walltime):
        return any(job.nodes <= nodes and job.walltime <= walltime for job in block.jobs)

    assert (block.nodes, block.walltime) == (min(j.nodes for j in jobs), min(j.walltime for j in jobs))
    assert all(block.reaches(*search) == fits(*search) for search in searches)
    for job in rng.sample(jobs, min(gone, len(jobs) - 1)):
        queue.remove(job.id)
        assert all(block.reaches(*search) >= fits(*search) for search in searches)
        if not block.loose:
            assert all(block.reaches(*search) == fits(*search) for search in searches)
    block.measure()
    assert all(block.reaches(*search) == fits(*search) for search in searches)


def test_thousands_of_jobs():
    rng = random.Random(7)
    queue, plain = Waiting(ORDER), PlainQueue()
    jobs = [some_job(rng, number) for number in range(3000)]
    for job in jobs:
        queue.add(job)
    plain.entries = sorted((((0, ORDER.rank(j), n), j) for n, j in enumerate(jobs)), key=lambda e: e[0])
    check_same(queue, plain, rng)
    for job in rng.sample(jobs, 2500):
        queue.remove(job.id)
        plain.remove(job.id)
    check_same(queue, plain, rng)


def test_copies_do_not_see_each_other():
    rng = random.Random(3)
    queue = Waiting(ORDER)
    for number in range(300):
        queue.add(some_job(rng, number))
    before = list(queue)
    twin = queue.copy()
    for job in before[::2]:
        queue.remove(job.id)
    assert list(twin) == before
    twin.add(some_job(rng, "new"))
    assert "new" not in queue
    assert list(queue) == before[1::2]


def test_newcomers_after_a_copy_arrive_last():
    queue = Waiting()
    queue.add(Job(id="a", nodes=1))
    twin = queue.copy()
    twin.add(Job(id="b", nodes=1))
    assert [job.id for job in twin] == ["a", "b"]


def test_an_empty_queue():
    queue = Waiting()
    assert queue.first is None
    assert list(queue) == []
    with pytest.raises(KeyError):
        queue.remove("nobody")


def test_emptied_and_filled_again():
    queue = Waiting()
    for number in range(200):
        queue.add(Job(id=str(number), nodes=1))
    for number in range(200):
        queue.remove(str(number))
    assert queue.first is None
    queue.add(Job(id="again", nodes=2))
    assert [job.id for job in queue] == ["again"]


def test_a_job_waits_once():
    queue = Waiting()
    queue.add(Job(id="a", nodes=1))
    with pytest.raises(ValueError, match="'a' waits already"):
        queue.add(Job(id="a", nodes=2))
    assert len(queue) == len(list(queue)) == 1


def test_a_place_given_back_is_not_given_twice():
    queue = Waiting()
    queue.add(Job(id="old", nodes=1), arrival=5)
    for name in "abcdef":
        queue.add(Job(id=name, nodes=1))
    arrivals = [queue.arrival_of(job.id) for job in queue]
    assert len(set(arrivals)) == 7


def test_a_job_that_is_described_anew_counts_as_it_is_now():
    queue = Waiting()
    for number in range(3):
        queue.add(Job(id=str(number), nodes=1, priority=1.0, submitted=float(number)))
    assert queue.most_urgent(count, 10.0, 9.0).id == "0"
    queue.replace(Job(id="2", nodes=1, priority=5.0, submitted=2.0))
    assert queue.most_urgent(count, 10.0, 9.0) is queue["2"]


def test_another_rank_keeps_places():
    queue, rng = Waiting(ORDER), random.Random(1)
    for number in range(300):
        queue.add(some_job(rng, number))
    for number in range(0, 300, 3):
        queue.remove(str(number))
    before = {job.id: queue.arrival_of(job.id) for job in queue}
    queue.rerank(Fcfs())
    assert [int(job.id) for job in queue] == [n for n in range(300) if n % 3]
    assert all(queue.arrival_of(job) == arrival for job, arrival in before.items())
    queue.add(Job(id="late", nodes=1))
    assert queue.arrival_of("late") == 300
