"""Many simulations at once: policies, parameters and seeds, here or on a Dask cluster.

Every trial is a pure function of its description, so the figures are the same wherever it runs, and a
trial that a store already holds is not run again.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite
from pathlib import Path
from typing import Any

import pandas as pd

from dask_hpc.model.errors import InputError, insist
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.policy import Policy
from dask_hpc.simulator.built_in import with_seed
from dask_hpc.simulator.comparison import ComparedPolicies, compared, differences, summary
from dask_hpc.simulator.machine import Machine, machine_from
from dask_hpc.simulator.overlay import Overlay
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.power import check_powers
from dask_hpc.simulator.readers import load_workload
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.result import METRICS, metrics
from dask_hpc.simulator.workload import Workload, platform_for

#: the first seed of the half that nothing is tuned on
REPORTED = 1_000_000


def tuning_seeds(count: int) -> range:
    """So many seeds to try things with: 0, 1, 2 ..., those of every study that says nothing else."""
    insist(type(count) is int and 1 <= count <= REPORTED, "seeds", count, f"1 to {REPORTED:,}")
    return range(count)


def reporting_seeds(count: int) -> range:
    """So many seeds to report with: from a million on, where nobody comes by accident. Whatever was chosen by
    looking at seeds (a design, a parameter's value) is reported on these; a sweep over them is refused."""
    insist(type(count) is int and 1 <= count <= REPORTED, "seeds", count, f"1 to {REPORTED:,}")
    return range(REPORTED, REPORTED + count)


@dataclass(frozen=True)
class Trial:
    """One simulation: everything it depends on."""

    workload: str | Workload
    policy: Policy
    seed: int
    nodes: int | None = None
    platform: Platform | None = None
    #: what is changed of its workload; which jobs are malleable is chosen by the seed
    overlay: Overlay | None = None

    @cached_property
    def key(self) -> str:
        """The same for the same trial, also in another process on another day."""
        workload: Any = self.workload
        if isinstance(workload, Workload):
            workload = [workload.name, workload.nodes, [repr(arrival) for arrival in workload]]
        elif not workload.startswith("builtin:"):
            workload = hashlib.sha256(Path(workload).read_bytes()).hexdigest()
        parts = [workload, self.policy.name, self.policy.to_yaml(), self.seed, self.nodes, self.overlay]
        text = json.dumps([*parts, repr(self.platform)], default=repr)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def run(self) -> dict[str, float]:
        """Its metrics."""
        workload = self.load()
        platform = platform_for(workload, self.nodes, self.platform)
        if platform.failures is not None:
            platform = replace(platform, failures=replace(platform.failures, seed=self.seed))
        check_powers(workload, platform, self.policy)
        machine = Machine(platform, self.policy, Record(), story=0)
        machine.run(workload)
        assert machine.record is not None
        return metrics(machine.record, platform)

    def load(self) -> Workload:
        """Its workload: a built-in one is drawn with the seed."""
        workload = self.workload
        if isinstance(workload, str):
            workload = load_workload(with_seed(workload, self.seed))
        return workload if self.overlay is None else self.overlay.over(workload, self.seed, self.nodes)


@dataclass(frozen=True)
class Future:
    """One simulation of what comes after a snapshot, with estimates that are drawn."""

    snapshot: Snapshot
    policy: Policy
    seed: int
    horizon: float = inf
    platform: Platform | None = None

    def run(self) -> dict[str, float]:
        """Its metrics."""
        record = Record()
        machine = machine_from(self.snapshot, self.policy, self.platform, record, seed=self.seed, story=0)
        machine.run((), until=self.snapshot.now + self.horizon)
        return metrics(record, machine.platform, since=self.snapshot.now)


@dataclass(frozen=True)
class Study:
    """What came of all trials."""

    #: one row per trial: policy, seed, then the metrics
    runs: pd.DataFrame

    @cached_property
    def summary(self) -> pd.DataFrame:
        """For each policy the mean of every metric, and in ``NAME_ci`` half the width of its 95 %
        confidence interval (nan for a single seed). Columns that are added to ``runs`` are metrics, too."""
        return summary(self.runs)

    def differences(self, base: str | None = None) -> pd.DataFrame:
        """For each other policy the mean of what every metric has more than ``base``'s (the first policy's)
        with the same seed, and in ``NAME_ci`` half the width of its 95 % confidence interval."""
        return differences(self.runs, base)

    def compared(self, base: str | None = None) -> ComparedPolicies:
        """Which policies are better than ``base`` (the first one), in what, and whether that is sure."""
        return compared(self.runs, base)


def variants(policies: Sequence[Policy], sweep: Mapping[str, Sequence[Any]]) -> list[Policy]:
    """Every policy with every combination of parameters, named after what was changed."""
    found = []
    for policy in policies:
        for values in itertools.product(*sweep.values()):
            changes = dict(zip(sweep, values, strict=True))
            name = " ".join([policy.name, *(f"{key}={value}" for key, value in changes.items())])
            found.append(replace(policy.with_(**changes), name=name) if changes else policy)
    return found


def study(
    workload: str | Path | Workload,
    policies: Sequence[str | Path | Policy],
    *,
    seeds: int | Sequence[int] = 20,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    nodes: int | None = None,
    platform: Platform | None = None,
    malleable: float | None = None,
    overlay: Overlay | None = None,
    client: Any = None,
    store: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Study:
    """Run every policy (with every combination of ``sweep``'s parameters) for seeds 0 to ``seeds - 1``, or
    for those that are given (see ``reporting_seeds``).

    A built-in workload, the choice of malleable jobs and node failures depend on the seed. ``malleable`` is a
    share of the jobs, with any size that the machine allows; an ``overlay`` says more. With a Dask
    ``client`` trials run on its cluster. ``store`` is a file that finished trials are added to; those it
    has already are not run again. ``progress`` is told the number of trials done and of all.
    """
    chosen, drawn = _variants(policies, sweep), _seeds(seeds, sweep)
    if malleable is not None:
        insist(overlay is None, "malleable", malleable, "nothing beside an overlay, which says it")
        overlay = Overlay(malleable=malleable, rule="constraint")
    source = workload if isinstance(workload, Workload) else str(workload)
    trials = [Trial(source, p, seed, nodes, platform, overlay) for p in chosen for seed in drawn]
    trials[0].load()  # complain before anything is sent anywhere
    return _play(trials, client, progress, store)


def futures(
    snapshot: Snapshot,
    policies: Sequence[str | Path | Policy],
    *,
    seeds: int = 20,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    horizon: float = inf,
    platform: Platform | None = None,
    client: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Study:
    """What each of these policies would do from a snapshot on, ``seeds`` times: see ``machine``. Each seed
    draws how long jobs take, the same for all policies."""
    chosen, drawn = _variants(policies, sweep), _seeds(seeds, sweep)
    trials = [Future(snapshot, policy, seed, horizon, platform) for policy in chosen for seed in drawn]
    return _play(trials, client, progress)


def _variants(
    policies: Sequence[str | Path | Policy], sweep: Mapping[str, Sequence[Any]] | None
) -> list[Policy]:
    return variants([Policy.load(policy) for policy in policies], sweep or {})


def _seeds(seeds: int | Sequence[int], sweep: Mapping[str, Sequence[Any]] | None) -> Sequence[int]:
    """Those to draw with; what is tried on the reporting half is not reported on it."""
    if isinstance(seeds, int):
        insist(type(seeds) is int and seeds >= 1, "seeds", seeds, "1 or more")
        return range(seeds)
    fine = isinstance(seeds, Sequence) and len(seeds) > 0 and all(type(seed) is int for seed in seeds)
    insist(fine and min(seeds) >= 0, "seeds", seeds, "how many, or whole numbers, 0 or more")
    insist(len(set(seeds)) == len(seeds), "seeds", seeds, "each seed once")
    if sweep and max(seeds) >= REPORTED:
        raise InputError(
            "seeds", f"found {max(seeds)} with a sweep", f"below {REPORTED:,}: the others are to report with"
        )
    return seeds


def _play(
    trials: Sequence[Trial | Future],
    client: Any,
    progress: Callable[[int, int], None] | None,
    store: str | Path | None = None,
) -> Study:
    """All of them, but for those that the store has."""
    keys = [trial.key for trial in trials if isinstance(trial, Trial)] if store else []
    known = dict(_stored(store)) if store else {}
    done = {place: known[key] for place, key in enumerate(keys) if key in known}
    missing = {place: trial for place, trial in enumerate(trials) if place not in done}
    for place, found in _run(missing, client):
        done[place] = found
        if store:
            _append(store, keys[place], found)
        if progress is not None:
            progress(len(done), len(trials))
    rows = [{"policy": one.policy.name, "seed": one.seed, **done[n]} for n, one in enumerate(trials)]
    return Study(pd.DataFrame(rows))


def _run(trials: Mapping[int, Trial | Future], client: Any) -> Iterator[tuple[int, dict[str, float]]]:
    if client is None:
        yield from ((place, trial.run()) for place, trial in trials.items())
        return
    from distributed import as_completed

    futures = {client.submit(trial.run, pure=False): place for place, trial in trials.items()}
    for future, found in as_completed(list(futures), loop=client.loop, with_results=True):
        yield futures[future], found


def _stored(store: str | Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Finished trials; a last line that was cut off is no trial."""
    path = Path(store)
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("", f"cannot be read: {error}", file=str(path)) from None
    for line in lines:
        try:
            found = json.loads(line)
            key, values = found["trial"], found["metrics"]
        except (ValueError, KeyError, TypeError):
            continue
        yield key, {name: float("nan") if values.get(name) is None else values[name] for name in METRICS}


def _append(store: str | Path, key: str, found: Mapping[str, float]) -> None:
    values = {name: value if isfinite(value) else None for name, value in found.items()}
    line = json.dumps({"trial": key, "metrics": values}) + "\n"
    with open(store, "ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = "\n" + line  # the last run was cut off in the middle of a line
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())
