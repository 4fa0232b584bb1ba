"""What would come next under this policy or that: predicted from the live cluster, before it is applied."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

import traitlets

from dask_hpc import InputError, Policy, simulate
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View

#: metric -> what people read, unit, whether less is better
SHOWN = {
    "mean_wait": ("waiting, mean", "s", True),
    "max_wait": ("waiting, longest", "s", True),
    "mean_response": ("response, mean", "s", True),
    "power": ("power, mean", "W", True),
    "makespan": ("all done after", "s", True),
    "resizes": ("resizes", "", True),
    "unfinished": ("never started", "jobs", True),
}
_MOST = 8  # policies at once


class WhatIf(View):
    """Simulate on from the live cluster under several policies, beside the one in force, and apply one.

    How long jobs still take is not known: it is drawn, the same for all policies, once for each of ``seeds``;
    hence the intervals. Work outside of jobs, and jobs that are still to come, are not in the picture.
    """

    _esm = module("what_if")
    _css = style()

    names: Any = traitlets.List(read_only=True).tag(sync=True)
    #: policies to try: names of ready-made ones; and whether the edited policy is among them
    tried = traitlets.List(traitlets.Unicode(), ["easy-backfill"]).tag(sync=True)
    with_edited = traitlets.Bool(True).tag(sync=True)
    seeds = traitlets.Int(20).tag(sync=True)
    #: simulations done and of all
    progress = traitlets.List([0, 0], read_only=True).tag(sync=True)
    #: one row a policy: name, whether it is in force, means and half widths of intervals by metric
    rows: Any = traitlets.List(read_only=True).tag(sync=True)
    #: what the prediction is of
    about = traitlets.Unicode(read_only=True).tag(sync=True)
    shown_metrics: Any = traitlets.List(read_only=True).tag(sync=True)

    def __init__(self, source: Any, panel: Any = None, **traits: Any) -> None:
        self._panel = panel
        self._policies: list[Policy] = []
        self._is_busy = False
        self.set_trait("names", Policy.names())
        self.set_trait("shown_metrics", [[name, *words] for name, words in SHOWN.items()])
        super().__init__(source, **traits)

    def readable(self) -> str:
        """A line for each policy."""
        if not self.rows:
            return "nothing is predicted yet"
        told = [
            row["policy"] + ": " + ", ".join(_in_words(name, *row["metrics"][name]) for name in SHOWN)
            for row in self.rows
        ]
        return "\n".join([self.about, *told])

    async def predict(self, policies: list[Policy], seeds: int = 20) -> list[dict[str, Any]]:
        """What each policy would do from now on: a row each, the policy in force first."""
        in_force = await self._awaited.set()
        present = Policy.parse(in_force["policy"], name=in_force["name"])
        different = [one for one in policies if one.to_dict() != present.to_dict()]
        if len(different) > _MOST:
            raise InputError("what if", f"found {len(different)} policies", f"at most {_MOST} at once")
        chosen = _named_apart([present, *different])
        snapshot = await self._awaited.snapshot()
        jobs = len(snapshot.running) + len(snapshot.waiting)
        if not jobs:
            raise InputError("what if", "no job runs or waits", "with dask_hpc.job(...): submit something")
        loop = asyncio.get_running_loop()
        self.set_trait("progress", [0, len(chosen) * seeds])

        def tell(done: int, of: int) -> None:
            loop.call_soon_threadsafe(self.set_trait, "progress", [done, of])

        study = await asyncio.to_thread(
            simulate, snapshot=snapshot, policy=chosen, seeds=seeds, progress=tell
        )
        self._policies = chosen
        words = f"{len(snapshot.running)} running and {len(snapshot.waiting)} waiting jobs"
        drawn = f"{seeds} draws of how long they take, 95 % intervals"
        self.set_trait("about", f"{words} on {snapshot.size} nodes; {drawn}")
        return list(_rows(study))

    async def do_predict(self, asked: Mapping[str, Any]) -> str:
        """Predict for all that are tried."""
        if self._is_busy:
            raise InputError("what if", "a prediction is being made", "one at a time")
        if not 1 <= self.seeds <= 200:
            raise InputError("draws", f"found {self.seeds}", "1 to 200")
        policies = [Policy.load(name) for name in self.tried]
        if self.with_edited and self._panel is not None:
            policies.append(self._panel.policy)
        self._is_busy = True
        try:
            self.set_trait("rows", await self.predict(policies, self.seeds))
        finally:
            self._is_busy = False
        return f"predicted for {len(self.rows)} policies"

    async def do_apply(self, asked: Mapping[str, Any]) -> str:
        """Put the policy of a row in force."""
        number = asked.get("row")
        if type(number) is not int or not 0 <= number < len(self._policies):
            raise InputError("apply", f"found {number!r}", "the number of a row")
        found = await self._awaited.set(self._policies[number])
        return f"{found['name']} is in force"


def _named_apart(policies: list[Policy]) -> list[Policy]:
    """Each with a name of its own: two variants of one policy are two."""
    names: dict[str, int] = {}
    found = []
    for one in policies:
        names[one.name] = names.get(one.name, 0) + 1
        count = names[one.name]
        found.append(
            one if count == 1 else replace(one, name=f"{one.name}, edited{'' if count == 2 else f' {count}'}")
        )
    return found


def _rows(study: Any) -> Any:
    watts = study.runs["energy"] / study.runs["makespan"]
    summary = replace(study, runs=study.runs.assign(power=watts)).summary
    for number, (policy, found) in enumerate(summary.iterrows()):
        metrics = {name: [_plain(found[name]), _plain(found[f"{name}_ci"])] for name in SHOWN}
        yield {"policy": policy, "is_present": number == 0, "metrics": metrics}


def _in_words(name: str, mean: float | None, half: float | None) -> str:
    words, unit, _ = SHOWN[name]
    if mean is None:
        return f"{words} -"
    return f"{words} {mean:.4g} {unit}".rstrip() + ("" if half is None else f" ± {half:.2g}")


def _plain(value: Any) -> float | None:
    return float(value) if isfinite(value) else None
