"""Jobs that compute and write, on a file system that they share (seed 002, 4.2)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from dask_hpc.model.job import Job
from dask_hpc.policy import Policy
from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Columns,
    Figure,
    Outcome,
    at_least,
    at_most,
    change,
    claim,
    direction,
    figure,
)
from dask_hpc.simulator import Arrival, Platform, Result, Workload, simulate
from dask_hpc.simulator.application import Application, Phase, Split, Task, quiet_runtime
from dask_hpc.simulator.built_in import built_in
from dask_hpc.simulator.built_in.published import peaks_of

_FCFS = "fcfs-malleable"
_ALPHAS = (0.2, 0.3, 0.4, 0.5, 0.6)
_TRANSFERS = {0.2: 31.4, 0.3: 45.9, 0.4: 49.9}
#: reading A is dearer to simulate, and tried at one alpha only
_A_ALPHA = 0.4
_JOBS = 4000
_POINTS = 5.0
_CLOSEST = "picked: reading B among four, as the closest to these figures"
_BAND = "printed with one decimal, for one draw of jobs of which much is not given: within 5 points"
_METRICS = ("makespan", "mean_transfer", "mean_response", "mean_wait")


def run(bench: Bench) -> Outcome:
    """4,000 jobs that compute and write: I/O-aware against FCFS (seed 002, 4.2.5; digest 3.4).

    What the source shows in pictures only is read off the simulation: how far the intensity of what runs is
    from that of all that runs and waits, how busy the file system is where a peak of writing is (the mean
    over time, weighted by the nodes that jobs of peaks hold then), how many nodes compute there, and how far
    the order of admission is from that of submission.
    """
    every_size = {"queue.configurations": "all", "malleability.shrink": "queued"}
    policies = [
        Policy.load(_FCFS),
        *(_named(f"B {alpha:g}", {"queue.alpha": alpha}) for alpha in _ALPHAS),
        _named(f"A {_A_ALPHA:g}", {"queue.alpha": _A_ALPHA, **every_size}),
    ]
    trials = [(policy, seed, _JOBS) for policy in policies for seed in range(bench.seeds)]
    rows = iter(bench.each(watched, trials))
    runs: dict[str, Columns] = {}
    for policy in policies:
        mine = [next(rows) for _ in range(bench.seeds)]
        runs[policy.name] = {name: np.array([row[name] for row in mine]) for name in mine[0]}
    base = runs[_FCFS]
    gains = {alpha: _less(runs[f"B {alpha:g}"], base, "mean_transfer") for alpha in _ALPHAS}
    claims = [
        claim(f"alpha {alpha:g}: mean checkpoint time is less by", published, gains[alpha],
              (published - _POINTS, published + _POINTS), "%", _BAND, _CLOSEST)
        for alpha, published in _TRANSFERS.items()
    ]  # fmt: skip
    claims += [*_shape(gains, runs, base), *_pictures(runs, base)]
    return Outcome(claims, _beside(runs, base, gains))


def watched(policy: Policy, seed: int, jobs: int) -> dict[str, float]:
    """The figures of one run."""
    workload: Workload = built_in("io-intensity", seed=seed, jobs=jobs)
    result = simulate(workload, policy=policy, allotments=True)
    arrivals = list(workload)
    peaks = {row for peak in peaks_of(jobs) for row in range(jobs)[peak]}
    order = np.argsort(np.array(result.record.start), kind="stable")
    return {
        **{name: result.metrics[name] for name in _METRICS},
        "off": off(result, [arrival.job for arrival in arrivals]),
        "order": float(np.std(np.argsort(order) - np.arange(jobs))),
        **in_peaks(result, peaks),
    }


def off(result: Result, jobs: Sequence[Job]) -> float:
    """How far the intensity of what runs is from that of all that runs and waits, on average over the time in
    which anybody waits."""
    apart = span = 0.0
    for since, until, system, workload in balance(result, jobs):
        apart += (until - since) * abs(system - workload)
        span += until - since
    return apart / span if span else 0.0


def balance(result: Result, jobs: Sequence[Job]) -> Iterator[tuple[float, float, float, float]]:
    """From when to when the intensity of what runs and that of the workload are what they are, as long as
    anybody waits. All jobs wait at first, at their preferred sizes."""
    running, waiting = _Sum(), _Sum(jobs)
    held: dict[int, int] = {}
    since = 0.0
    for time, row, nodes in result.record.allotments or ():
        if time > since and waiting.nodes and running.nodes:
            every = (running.load + waiting.load) / (running.nodes + waiting.nodes)
            yield since, time, running.load / running.nodes, every
        since = time
        job, size = jobs[row], len(nodes)
        if row not in held:
            waiting.add(job, -job.nodes)
        running.add(job, -held.get(row, 0))
        running.add(job, size)
        held[row] = size


class _Sum:
    """The intensity of jobs, weighted by their nodes."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self.load, self.nodes = 0.0, 0
        for job in jobs:
            self.add(job, job.nodes)

    def add(self, job: Job, nodes: int) -> None:
        """So many nodes of it; less than none are taken away."""
        self.nodes += nodes
        if nodes and job.io_intensity is not None:
            self.load += job.io_intensity.intensity(abs(nodes)) * nodes


def in_peaks(result: Result, peaks: set[int]) -> dict[str, float]:
    """How busy the file system is, and which share of all nodes computes, in per cent: over time, weighted by
    the nodes that these jobs hold then."""
    platform = result.platform
    busy = _Steps([(time, min(nodes * platform.link / platform.file_system, 1.0))
                   for time, nodes in result.record.loads or ()])  # fmt: skip
    writing = _Steps([(time, nodes / platform.nodes) for time, nodes in result.record.loads or ()])
    held: dict[int, int] = {}
    weights, working = [], []
    total = peak = 0
    for time, row, nodes in result.record.allotments or ():
        more = len(nodes) - held.get(row, 0)
        held[row] = len(nodes)
        total, peak = total + more, peak + (more if row in peaks else 0)
        weights.append((time, float(peak)))
        working.append((time, total / platform.nodes))
    weight = _Steps(weights)
    computing = _Steps(working).mean(weight) - writing.mean(weight)
    return {"file system in peaks": 100 * busy.mean(weight), "computing in peaks": 100 * computing}


class _Steps:
    """A quantity over time that changes in steps: from each time on it has a value."""

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        self.times = np.array([time for time, _ in steps])
        self.values = np.array([value for _, value in steps])
        area = self.values[:-1] * np.diff(self.times)
        self._areas = np.concatenate([[0.0], np.cumsum(area)])

    def until(self, times: np.ndarray) -> np.ndarray:
        """The integral from its first time to each of these."""
        at = np.maximum(np.searchsorted(self.times, times, side="right") - 1, 0)
        return np.asarray(self._areas[at] + self.values[at] * np.maximum(times - self.times[at], 0.0))

    def mean(self, weight: "_Steps") -> float:
        """Over time, with these weights."""
        areas, lengths = np.diff(self.until(weight.times)), np.diff(weight.times)
        weights = weight.values[:-1]
        return float(areas @ weights / (lengths @ weights))


def _named(name: str, changes: dict[str, object]) -> Policy:
    return replace(Policy.load("io-aware").with_(**changes), name=name)


def _less(found: Columns, base: Columns, metric: str) -> np.ndarray:
    return -change(found[metric], base[metric])


def _shape(gains: dict[float, np.ndarray], runs: dict[str, Columns], base: Columns) -> list[Claim]:
    spans = [_less(runs[f"B {alpha:g}"], base, "makespan") for alpha in _ALPHAS]
    best = max(gains.values(), key=np.mean)
    rises = min((gains[high] - gains[low] for low, high in ((0.2, 0.3), (0.3, 0.4))), key=np.mean)
    after = [float(gains[alpha].mean()) for alpha in (0.4, 0.5, 0.6)]
    responses = [_less(runs[f"B {alpha:g}"], base, "mean_response") for alpha in _ALPHAS]
    waits = [_less(runs[f"B {alpha:g}"], base, "mean_wait") for alpha in _ALPHAS]
    return [
        direction("the gain rises from 0.2 to 0.3 to 0.4, by the smaller of the two steps", "rises", rises,
                  at_least(0.0), "points", _CLOSEST),
        claim("from 0.4 on the gain differs by", "stagnates", max(after) - min(after), (0.0, _POINTS),
              "points", "no number is printed: within 5 points from 0.4 to 0.6", _CLOSEST),
        claim("mean I/O time is less by, at best", 49, best, at_least(49.0), "%", "printed as more than 49",
              _CLOSEST),
        claim("mean I/O time is less by, in its own section", 45, best, at_least(45.0), "%",
              "printed as more than 45", _CLOSEST),
        claim("makespan is less by up to", 9.6, max(spans, key=np.mean), (9.6 - _POINTS, 9.6 + _POINTS),
              "%", "printed as up to, for one draw of jobs: the largest over alpha, within 5 points",
              _CLOSEST),
        direction("mean response is less, at the worst alpha, by", "improves", min(responses, key=np.mean),
                  at_least(0.0)),
        direction("mean wait is less, at the worst alpha, by", "improves", min(waits, key=np.mean),
                  at_least(0.0)),
    ]  # fmt: skip


def _pictures(runs: dict[str, Columns], base: Columns) -> list[Claim]:
    """4.2.5.2, of which only pictures are printed."""
    ours = [runs[f"B {alpha:g}"] for alpha in _ALPHAS]
    wider = min((high["order"] - low["order"] for low, high in pairwise(ours)), key=np.mean)
    busy = max((one["file system in peaks"] for one in ours), key=np.mean)
    computing = min((one["computing in peaks"] for one in ours), key=np.mean)
    said = "no number is printed"
    return [
        claim("alpha 0.6: the intensity of what runs is off the workload's by", "negligible", ours[-1]["off"],
              at_most(0.01), "", f"{said}: 0.01 of 1, on average"),
        direction("alpha 0.6: it is less off than FCFS by", "tracks it", base["off"] - ours[-1]["off"],
                  at_least(0.0), ""),
        claim("FCFS: the file system is busy in peaks", "near 100", base["file system in peaks"],
              at_least(95.0), "%", f"{said}: from 95 on"),
        direction("from alpha 0.2 on: it is less busy there, by at least", "less",
                  base["file system in peaks"] - busy, at_least(0.0), "points"),
        direction("from alpha 0.2 on: more nodes compute there, by at least", "rises",
                  computing - base["computing in peaks"], at_least(0.0), "points"),
        direction("the order of admission spreads more with each step of alpha, by at least", "widens", wider,
                  at_least(0.0), "places"),
    ]  # fmt: skip


def _beside(runs: dict[str, Columns], base: Columns, gains: dict[float, np.ndarray]) -> list[Figure]:
    spans = {alpha: _less(runs[f"B {alpha:g}"], base, "makespan") for alpha in _ALPHAS}
    read_a = runs[f"A {_A_ALPHA:g}"]
    rows = (("mean checkpoint time", "mean_transfer"), ("makespan", "makespan"))
    seen = (
        ("the intensity of what runs is off the workload's by", "off", ""),
        ("the file system is busy in peaks", "file system in peaks", "%"),
        ("nodes that compute in peaks", "computing in peaks", "%"),
        ("the order of admission is off by a standard deviation of", "order", "places"),
    )
    named = [("FCFS", base), *((f"alpha {alpha:g}", runs[f"B {alpha:g}"]) for alpha in _ALPHAS)]
    return [
        figure("FCFS: makespan", base["makespan"] / 3600, "h"),
        figure("FCFS: mean checkpoint", base["mean_transfer"], "s"),
        figure("FCFS: mean response", base["mean_response"] / 3600, "h"),
        *(figure(f"alpha {a:g}: mean checkpoint time is less by", gains[a], "%") for a in (0.5, 0.6)),
        *(figure(f"alpha {alpha:g}: makespan is less by", one, "%") for alpha, one in spans.items()),
        *(
            figure(f"reading A, alpha {_A_ALPHA:g}: {name} is less by", _less(read_a, base, metric), "%")
            for name, metric in rows
        ),
        *(figure(f"{who}: {text}", one[key], unit) for text, key, unit in seen for who, one in named),
    ]


#: of a job, where four of them are compared: two fill the machine
_PAIR_NODES = 8
_PAIR_MACHINE = Platform(2 * _PAIR_NODES, speed=100e9, link=12.5e9, file_system=48e9)
_PAIR_SECONDS = 3600.0


def pairs(bench: Bench) -> Outcome:
    """Four jobs of one size and length, two at a time: like with like, or one that writes much with one that
    computes much (seed 002, 4.2, figure 4.6; digest 2.6).

    The source draws this as the reason for its scheduler, without any number. Four jobs wait in an order that
    pairs them one way or the other, and start first come, first served on a machine for two of them; they
    share the file system, which one of them can fill.
    """
    columns = bench.columns(_paired)
    like, mixed = columns["like"], columns["mixed"]
    lost = columns["like writing"] - columns["mixed writing"]
    gained = columns["mixed computing"] - columns["like computing"]
    claims = [
        direction("mixed pairs are done earlier than pairs of like jobs by", "earlier",
                  100 * (1 - mixed / like), at_least(0.0)),
        direction("a job that writes much loses more to its like than one that computes much gains, by",
                  "more", lost - gained, at_least(0.0), "s"),
    ]  # fmt: skip
    beside = [
        figure("pairs of like jobs: done after", like / 60, "min"),
        figure("mixed pairs: done after", mixed / 60, "min"),
        figure("a job that writes much takes longer beside its like by", lost / 60, "min"),
        figure("a job that computes much takes longer beside one that writes much by", gained / 60, "min"),
    ]
    return Outcome(claims, beside)


def _paired(seed: int) -> dict[str, float]:
    """Seconds until all are done, and of a job of either kind, in either order."""
    random = np.random.default_rng(seed)
    writes = [*random.uniform(0.6, 0.9, 2), *random.uniform(0.1, 0.4, 2)]
    times = random.integers(10, 26, 4)
    jobs = [_job(number, float(share), int(times[number])) for number, share in enumerate(writes)]
    row = {}
    for name, order in (("like", (0, 1, 2, 3)), ("mixed", (0, 2, 1, 3))):
        workload = Workload("pairs", [jobs[number] for number in order], platform=_PAIR_MACHINE)
        ran = simulate(workload, policy="fcfs").jobs.set_index("id")
        lengths = ran["end"] - ran["start"]
        row[name] = float(ran["end"].max())
        row[f"{name} writing"] = float(lengths[["0", "1"]].mean())
        row[f"{name} computing"] = float(lengths[["2", "3"]].mean())
    return row


def _job(number: int, share: float, repetitions: int) -> Arrival:
    """It writes for this share of an hour if it is alone, and computes for the rest."""
    each = _PAIR_SECONDS / repetitions
    rate = min(_PAIR_NODES * _PAIR_MACHINE.link, _PAIR_MACHINE.file_system)
    compute = Task("compute", Split((1 - share) * each * _PAIR_NODES * _PAIR_MACHINE.speed))
    write = Task("write", Split(share * each * rate))
    application = Application((Phase((compute, write), repetitions),))
    quiet = quiet_runtime(application, _PAIR_MACHINE, _PAIR_NODES)
    return Arrival(Job(id=str(number), nodes=_PAIR_NODES), quiet, application=application)
