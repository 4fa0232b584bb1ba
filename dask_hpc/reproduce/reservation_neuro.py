"""Many jobs of three applications in one queue, each under its own plan of reservations (seed 004, 11.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from dask_hpc.planning.reservation.cost import CLOUD
from dask_hpc.planning.reservation.law import ContinuousLaw, Law
from dask_hpc.planning.reservation.methods import Question
from dask_hpc.planning.reservation.plan import ReservationPlan, chosen
from dask_hpc.planning.reservation.sequence import Setting
from dask_hpc.reproduce.claim import Bench, Claim, Columns, Figure, Outcome, at_most, claim, direction, figure
from dask_hpc.simulator.reservations import JobStay, queued, stay
from dask_hpc.simulator.study import mean_and_half_width

_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class NeuroApplication:
    """An application of Table 11.7, and how many of its jobs are in the mix of Table 11.8."""

    law: Law
    commit: float
    restart: float
    jobs: int


#: scale and place of the smallest of many, which the Weibull law of the source with its huge shape is
_SCALE = 1174322466 / 1043811
_MIDDLE = (46 + 138) / 2 * _MINUTE
_EULER = 0.5772156649015329

APPLICATIONS = {
    "Qball": NeuroApplication(ContinuousLaw("gamma", (1.18,), 34.0, 146.0, below=407.0), 90.0, 40.0, 100),
    "SD": NeuroApplication(
        ContinuousLaw(
            "weibull", (1043811.0,), 1174322466.0, _MIDDLE + _EULER * _SCALE - 1174322466.0,
            above=46 * _MINUTE, below=138 * _MINUTE,
        ),
        25 * _MINUTE, 10 * _MINUTE, 200,
    ),
    "FCA": NeuroApplication(ContinuousLaw("gamma", (3.6,), 72.0, 165.0, below=1003.0), 150.0, 100.0, 200),
}  # fmt: skip
_SLOTS = 256
_ALONE = 500  # jobs where there is one application
_RUNS = 5  # before, of which the users of the batch system know
#: of Table 11.8, in the order of its rows: utilisation in per cent and mean stretch
_DPC = (
    (67, 73, 62, 71, 63, 71, 75, 68, 61, 77),
    (2.04, 1.72, 2.08, 1.88, 2.19, 1.74, 1.51, 2.09, 2.24, 1.96),
)
_HPC = (
    (55, 62, 55, 64, 56, 64, 68, 65, 60, 75),
    (2.34, 2.04, 2.46, 2.10, 2.41, 1.96, 1.69, 2.19, 2.32, 1.99),
)
_GAINS = {
    "utilisation": (21, 18, 12, 11, 11, 10, 10, 4, 2, 2),
    "stretch": (15, 19, 18, 12, 10, 12, 12, 5, 4, 2),
}
_PLANS = {"DPC": "discrete-ckpt", "ALL": "all-checkpoint", "HPC": "hpc"}
_NOISES = (0.15, 0.3)
_TEN = "printed for ten runs: within the 95 % interval of their mean"


def run(bench: Bench) -> Outcome:
    """500 jobs on 256 slots, each asking for one reservation after the other, under three ways to choose them
    (seed 004, 11.3; digest 5.6).

    DPC is the exact program, ALL commits after each reservation, HPC asks for the mean of five runs that were
    before, then always for half as much again, and commits never. A law is known to the first two. The "total
    time to execute" is read as what is asked for, as this is what the setting of the source charges (alpha 1,
    beta 0) and how it defines utilisation later (12.3.2): the last reservation counts in full. Beside the
    claims are two other readings: what is used of the reservations, and the time until a job has ended, queue
    and all.
    """
    mix = bench.columns(mixed)
    alone = bench.columns(by_application)
    claims = [*_table(mix), *_orders(alone), *_noise(alone)]
    return Outcome(claims, [*_levels(mix), *_levels_alone(alone)])


@cache
def plan_of(name: str, method: str, runs: tuple[float, ...] = ()) -> ReservationPlan:
    """A plan for an application."""
    application = APPLICATIONS[name]
    setting = Setting(CLOUD, application.commit, application.restart)
    return chosen(Question(application.law, setting, runs), method, compare=False)


class Noise:
    """What commits and restarts really take: some share more or less than planned, drawn anew for each."""

    def __init__(self, random: np.random.Generator, seconds: float, share: float) -> None:
        self._random, self._seconds, self._share = random, seconds, share

    def takes(self, _: float) -> float:
        """After any work."""
        return float(self._seconds * self._random.uniform(1 - self._share, 1 + self._share))


def drawn(name: str, count: int, random: np.random.Generator) -> list[float]:
    """How long jobs of an application take."""
    found: list[float] = APPLICATIONS[name].law.isf(random.random(count)).tolist()
    return found


def _plan(name: str, way: str, runs: Mapping[str, tuple[float, ...]]) -> ReservationPlan:
    return plan_of(name, _PLANS[way], runs[name] if way == "HPC" else ())


def measured(stays: list[JobStay]) -> dict[str, float]:
    """Utilisation in per cent, and mean stretch: by what was asked for, and by what was used."""
    work = sum(one.duration for one in stays)
    return {
        "utilisation": 100 * work / sum(one.reserved for one in stays),
        "stretch": float(np.mean([one.stretch for one in stays])),
        "utilisation, used": 100 * work / sum(one.used for one in stays),
        "stretch, used": float(np.mean([one.used / one.duration for one in stays])),
    }


def mixed(seed: int) -> dict[str, float]:
    """Jobs of all applications in one queue."""
    random = np.random.default_rng([seed, 1])
    jobs = [(name, one) for name in APPLICATIONS for one in drawn(name, APPLICATIONS[name].jobs, random)]
    runs = {name: tuple(drawn(name, _RUNS, random)) for name in APPLICATIONS}
    random.shuffle(jobs)
    work = sum(duration for _, duration in jobs)
    found: dict[str, float] = {}
    for way in _PLANS:
        stays = [stay(_plan(name, way, runs), duration) for name, duration in jobs]
        day = queued(stays, _SLOTS)
        row = measured(stays)
        row["stretch, with the queue"] = float(np.mean(np.divide(day.ends, [one for _, one in jobs])))
        row["utilisation, of the machine"] = 100 * work / (_SLOTS * day.makespan)
        found |= {f"{way} {key}": value for key, value in row.items()}
    return found


def by_application(seed: int) -> dict[str, float]:
    """Jobs of one application at a time; those of the best plan also where commits and restarts vary."""
    found: dict[str, float] = {}
    for place, (name, application) in enumerate(APPLICATIONS.items()):
        random = np.random.default_rng([seed, 2, place])
        durations = drawn(name, _ALONE, random)
        runs = {name: tuple(drawn(name, _RUNS, random))}
        for way in _PLANS:
            plan = _plan(name, way, runs)
            row = measured([stay(plan, one) for one in durations])
            found |= {f"{name} {way} {key}": value for key, value in row.items()}
        plan = _plan(name, "DPC", runs)
        for share in _NOISES:
            commit = Noise(random, application.commit, share).takes
            restart = Noise(random, application.restart, share).takes
            stays = [stay(plan, one, commit=commit, restart=restart, fits=True) for one in durations]
            found |= {f"{name} {share:g} {key}": value for key, value in measured(stays).items()}
    return found


def gains(columns: Columns, better: str, worse: str, reading: str = "") -> dict[str, np.ndarray]:
    """As printed: more utilisation, and less stretch over the better one's, in per cent."""
    use, stretch = f"utilisation{reading}", f"stretch{reading}"
    return {
        "utilisation": 100 * (columns[f"{better} {use}"] / columns[f"{worse} {use}"] - 1),
        "stretch": 100 * (columns[f"{worse} {stretch}"] / columns[f"{better} {stretch}"] - 1),
    }


def _table(mix: Columns) -> list[Claim]:
    """Table 11.8."""
    found = []
    for metric, ours in gains(mix, "DPC", "HPC").items():
        mean, half = mean_and_half_width(np.array(_GAINS[metric], float))
        band = (mean - half, mean + half)
        found.append(claim(f"mix: DPC gains over HPC in {metric}", round(mean, 3), ours, band, "%", _TEN))
        most = max(_GAINS[metric])
        note = "no run gains more: a bound, printed without a decimal"
        words = f"mix: DPC gains in {metric} at most"
        found.append(claim(words, most, float(ours.max()), at_most(most + 0.5), "%", note))
        found.append(direction(f"mix: the least that DPC gains in {metric} in any run", "a gain in each",
                               float(ours.min()), (0.0, np.inf)))  # fmt: skip
    for way, printed in (("DPC", _DPC), ("HPC", _HPC)):
        for metric, values, unit in (("utilisation", printed[0], "%"), ("stretch", printed[1], "times")):
            mean, half = mean_and_half_width(np.array(values, float))
            ours, band = mix[f"{way} {metric}"], (mean - half, mean + half)
            found.append(claim(f"mix: {way} has a mean {metric} of", round(mean, 3), ours, band, unit, _TEN))
    return found


def _orders(alone: Columns) -> list[Claim]:
    """Figure 11.6."""
    found = []
    for name in APPLICATIONS:
        for better, worse in (("DPC", "ALL"), ("ALL", "HPC")):
            for metric, ours in gains(alone, f"{name} {better}", f"{name} {worse}").items():
                words = f"{name}: {better} is better than {worse} in {metric} by"
                found.append(direction(words, "better", ours, (0.0, np.inf)))
    return found


def _noise(alone: Columns) -> list[Claim]:
    """Figure 11.7."""
    found = []
    for name in APPLICATIONS:
        ours = gains(alone, f"{name} {_NOISES[0]:g}", f"{name} HPC")["utilisation"]
        words = f"{name}: with 15 % more or less for commits and restarts DPC is better than HPC by"
        found.append(direction(words, "robust up to 15 to 20 %", ours, (0.0, np.inf)))
        lost = [np.abs(each) for each in gains(alone, f"{name} DPC", f"{name} {_NOISES[1]:g}").values()]
        words = f"{name}: with 30 % utilisation changes more than stretch by"
        found.append(direction(words, "stretch is more stable", lost[0] - lost[1], (0.0, np.inf)))
    return found


def _levels(mix: Columns) -> list[Figure]:
    """The other readings, and the third way."""
    found = []
    for way in _PLANS:
        for key in ("utilisation", "stretch", "utilisation, used", "stretch, used",
                    "utilisation, of the machine", "stretch, with the queue"):  # fmt: skip
            if way == "ALL" or key not in ("utilisation", "stretch"):
                unit = "%" if key.startswith("utilisation") else "times"
                found.append(figure(f"mix, {way}: {key}", mix[f"{way} {key}"], unit))
    for metric, ours in gains(mix, "DPC", "HPC", ", used").items():
        found.append(figure(f"mix: DPC gains over HPC in {metric}, by what is used", ours, "%"))
    return found


def _levels_alone(alone: Columns) -> list[Figure]:
    found = []
    for name in APPLICATIONS:
        commits = sum(one.commit for one in plan_of(name, _PLANS["DPC"]).requests)
        found.append(figure(f"{name}: requests of DPC that end with a commit", commits))
        for way in (*_PLANS, *(f"{share:g}" for share in _NOISES)):
            for metric, unit in (("utilisation", "%"), ("stretch", "times")):
                found.append(figure(f"{name}, {way}: {metric}", alone[f"{name} {way} {metric}"], unit))
    return found
