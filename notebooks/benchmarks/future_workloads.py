"""Real workloads of futures, delayed calls, bags and actors: what people write who have no big array."""

import math
import tempfile
import time
from pathlib import Path

import dask
import dask.array as da
import dask.bag as db
import numpy as np
from distributed import as_completed, get_client, rejoin, secede, worker_client
from workload_kit import computed, workload


def table(seed, length):
    """Some numbers that many tasks look at."""
    return np.random.default_rng(seed).random(length)


def read_both(number, one, other):
    """A small task: about a tenth of a millisecond."""
    return float(one[number % len(one)] + (one * other).sum())


@workload(
    "small tasks that depend on a few shared ones: not root tasks, so all are handed out at once",
    tiny={"tasks": 300}, small={"tasks": 3_000}, full={"tasks": 15_000},
)  # fmt: skip
def shared_map(client, tasks, tables=8, length=1_000):
    """A map of tasks that each look at two of a few tables; their results are kept until all is added up."""
    shared = client.map(table, range(tables), length=length)
    one = [shared[i % tables] for i in range(tasks)]
    other = [shared[(3 * i + 1) % tables] for i in range(tasks)]
    found = client.map(read_both, range(tasks), one, other)
    parts = client.map(sum, [found[i : i + 100] for i in range(0, tasks, 100)])
    return client.submit(sum, parts).result()


def plus(one, other):
    return one + other


def leaf(number):
    return np.full(100, number % 97)


@workload(
    "a tree of small tasks: each result is needed once, by a task beside it",
    tiny={"leaves": 128}, small={"leaves": 1_024}, full={"leaves": 4_096},
)  # fmt: skip
def delayed_tree(client, leaves):
    """A sum of delayed leaves, two at a time."""
    level = [dask.delayed(leaf)(i) for i in range(leaves)]
    while len(level) > 1:
        level = [dask.delayed(plus)(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return computed(client, level[0])


def merge(parts):
    return np.concatenate([part[:3] for part in parts])


@workload(
    "tasks with hundreds of dependencies: all of them have to come to one worker",
    tiny={"leaves": 150, "merges": 3}, small={"leaves": 1_200, "merges": 10},
    full={"leaves": 2_500, "merges": 10},
)  # fmt: skip
def fan_in(client, leaves, merges):
    """Delayed leaves that are all needed by each of a few tasks."""
    parts = [dask.delayed(leaf)(i) for i in range(leaves)]
    merged = [dask.delayed(merge)(parts[i:]) for i in range(merges)]
    return computed(client, dask.delayed(np.concatenate)(merged))


def count_primes(low, high, depth):
    """Primes in a range: by two tasks that this one submits, until the range is small."""
    if depth == 0:
        return sum(all(n % d for d in range(2, math.isqrt(n) + 1)) for n in range(max(low, 2), high))
    middle = (low + high) // 2
    with worker_client() as client:
        halves = [
            client.submit(count_primes, start, stop, depth - 1, pure=False)
            for start, stop in ((low, middle), (middle, high))
        ]
        return sum(client.gather(halves))


def squares(start, stop):
    """A task that has others do a map for it, with the worker's own client."""
    client = get_client()
    futures = client.map(pow, range(start, stop), [2] * (stop - start), pure=False)
    secede()  # or all threads might wait for tasks that nobody can run
    found = client.gather(futures)
    rejoin()
    return sum(found)


@workload(
    "tasks that submit tasks and wait for them: they have left the pool and hold what they asked for",
    tiny={"depth": 4, "maps": 3}, small={"depth": 7, "maps": 12}, full={"depth": 9, "maps": 60},
)  # fmt: skip
def submit_within(client, depth, maps):
    """A count of primes that divides itself, and maps that are submitted by tasks."""
    primes = client.submit(count_primes, 0, 2 ** (depth + 7), depth, pure=False)
    sums = client.map(squares, range(0, 20 * maps, 20), range(20, 20 * maps + 20, 20), pure=False)
    return primes.result(), sum(client.gather(sums))


def trapezium(low, high):
    """The area under a curve, roughly and a little better."""

    def curve(x):
        return math.sin(1 / (x + 0.05)) * math.exp(-x)

    middle = (low + high) / 2
    rough = (curve(low) + curve(high)) / 2 * (high - low)
    better = (rough + curve(middle) * (high - low)) / 2
    return low, high, rough, better


@workload(
    "a loop that submits more as results come: never much to do at once",
    tiny={"tolerance": 5e-6}, small={"tolerance": 5e-8}, full={"tolerance": 2e-9},
)  # fmt: skip
def submit_more(client, tolerance):
    """An area under a curve: a piece that is not exact enough is cut in two."""
    coming = as_completed(
        [client.submit(trapezium, i / 16, (i + 1) / 16, pure=False) for i in range(16)], with_results=True
    )
    found = []
    for _, (low, high, rough, better) in coming:
        if abs(better - rough) <= tolerance:
            found.append(better)
            continue
        middle = (low + high) / 2
        coming.add(client.submit(trapezium, low, middle, pure=False))
        coming.add(client.submit(trapezium, middle, high, pure=False))
    return math.fsum(found)


class Counter:
    """Counts what it is told; an actor."""

    def __init__(self):
        self.sums = {}

    def add(self, name, number):
        self.sums[name] = self.sums.get(name, 0) + number
        return self.sums[name]

    def total(self):
        return sum(self.sums.values())


def tell(counter, number):
    """A task that tells an actor of another worker."""
    counter.add(f"task {number}", number).result()
    return number


@workload(
    "an actor: it cannot be moved, so its worker has to stay",
    can_move=False,
    tiny={"calls": 100}, small={"calls": 600}, full={"calls": 3_000},
)  # fmt: skip
def actors(client, calls):
    """Counters that the client and tasks add to."""
    counters = [client.submit(Counter, actor=True, pure=False).result() for _ in range(2)]
    told = client.map(tell, [counters[i % 2] for i in range(calls)], range(calls), pure=False)
    sums = [counters[i % 2].add("client", i) for i in range(calls)]
    for one in sums:
        one.result()
    return sum(client.gather(told)), [one.total().result() for one in counters]


def sentences(part, count):
    """Lines of made-up text."""
    dice = np.random.default_rng(part)
    words = [f"w{number}" for number in range(400)]
    return [" ".join(words[i] for i in dice.zipf(1.3, 12) % 400) for _ in range(count)]


def first_letters(word):
    return word[:3]


def add_length(total, word):
    return total + len(word)


@workload(
    "Python objects by the thousand: large messages of small things",
    tiny={"parts": 16}, small={"parts": 120}, full={"parts": 800},
)  # fmt: skip
def word_count(client, parts, count=150):
    """How often each word comes in a bag of text, and how long words with the same beginning are."""
    text = db.from_delayed([dask.delayed(sentences)(part, count) for part in range(parts)])
    words = text.map(str.split).flatten()
    often, lengths = computed(
        client, words.frequencies(), words.foldby(first_letters, add_length, 0, plus, 0)
    )
    return sorted(often), sorted(lengths)


@workload(
    "short bursts between which the client thinks: data that stay, results that are waited for",
    tiny={"chunks": 6, "steps": 3}, small={"chunks": 16, "steps": 12}, full={"chunks": 30, "steps": 40},
)  # fmt: skip
def gradient_descent(client, chunks, steps, rows=20_000, features=20):
    """A linear fit: each step looks at all data, which are kept, and changes a few numbers."""
    dice = da.random.default_rng(14)
    x = dice.normal(size=(chunks * rows, features), chunks=(rows, features))
    y = (x * np.arange(features)).sum(axis=1) + dice.normal(size=chunks * rows, chunks=rows)
    x, y = dask.persist(x, y)
    weights = np.zeros(features)
    for _ in range(steps):
        slope = computed(client, x.T @ (x @ weights - y))
        weights = weights - slope / (chunks * rows) * 0.5
    return weights


@workload(
    "functions of megabytes: what the scheduler has to pass on with each task",
    tiny={"tasks": 8, "numbers": 100_000}, small={"tasks": 200, "numbers": 250_000},
    full={"tasks": 600, "numbers": 500_000},
)  # fmt: skip
def large_closures(client, tasks, numbers):
    """A map of functions that each carry a table with them."""

    def made(seed):
        carried = table(seed, numbers)

        def look_up(i):
            return float(carried[i] + carried[:: i + 1].sum())

        return look_up

    return sum(client.gather([client.submit(made(i % 3), i, pure=False) for i in range(tasks)]))


def tiny(number):
    return number * number % 1_009


@workload(
    "as many results as a scheduler can have: what each of them costs",
    tiny={"tasks": 400}, small={"tasks": 3_000}, full={"tasks": 100_000},
)  # fmt: skip
def tiny_results(client, tasks):
    """A map whose small results all stay until the last one is there."""
    futures = client.map(tiny, range(tasks), pure=False)
    return sum(client.gather(futures))


def huge(seed, megabytes):
    return np.random.default_rng(seed).random(megabytes * 125_000)


def closeness(one, other):
    return float(one @ other)


@workload(
    "results of many megabytes: what it takes to move one",
    tiny={"count": 3, "megabytes": 20}, small={"count": 5, "megabytes": 60},
    full={"count": 12, "megabytes": 150},
)  # fmt: skip
def huge_results(client, count, megabytes):
    """A few large vectors, each compared with each."""
    vectors = client.map(huge, range(count), megabytes=megabytes)
    pairs = [(i, j) for i in range(count) for j in range(i)]
    found = client.map(closeness, [vectors[i] for i, _ in pairs], [vectors[j] for _, j in pairs])
    return client.gather(found)


def dot_all(block, others):
    return float(sum((block @ other.T).sum() for other in others))


@workload(
    "scattered data: nothing can compute it again",
    tiny={"blocks": 10}, small={"blocks": 150}, full={"blocks": 600},
)  # fmt: skip
def scatter_map(client, blocks, rows=200):
    """Blocks of the client's own data, some of which each task looks at."""
    data = [np.random.default_rng(i).random((rows, 50)) for i in range(blocks)]
    shared = client.scatter(data[:3], broadcast=True, hash=False)
    spread = client.scatter(data, hash=False)
    found = []
    for turn in range(5):
        found += client.map(dot_all, spread[turn:] + spread[:turn], others=shared, pure=False)
    return sum(client.gather(found))


def grow(number, folder, seconds):
    """A tree of a forest: some take much longer than others, and some fail the first time."""
    failed = Path(folder) / str(number)
    if number % 11 == 3 and not failed.exists():
        failed.touch()
        raise OSError("not this time")
    time.sleep(seconds * (1 + 8 * (number % 7 == 0)))
    dice = np.random.default_rng(number)
    sample = dice.random((300, 5))
    return float(np.sort(sample, axis=0)[dice.integers(0, 300, 20)].sum())


@workload(
    "long and short tasks side by side, of which some are tried again: nobody may wait for nothing",
    tiny={"trees": 60}, small={"trees": 600}, full={"trees": 3_000},
)  # fmt: skip
def forest(client, trees, seconds=0.005):
    """Many models that are fitted independently of each other."""
    with tempfile.TemporaryDirectory() as folder:
        futures = client.map(grow, range(trees), folder=folder, seconds=seconds, retries=2, pure=False)
        return sum(client.gather(futures))
