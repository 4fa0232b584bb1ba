"""What would come next under this policy or that: predicted from the live cluster, before it is applied."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from threading import Event
from time import monotonic
from typing import Any

import traitlets

from dask_hpc import InputError, Policy, side_by_side, simulate
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View

_MOST = 8  # policies at once
_TOLD_EVERY = 0.2  # seconds between two words on how far it is


class Stopped(Exception):
    """Somebody does not want to know any more."""


class WhatIf(View):
    """Simulate on from the live cluster under several policies, beside the one in force, and apply one.

    How long jobs still take is not known: it is drawn, the same for all policies, once for each of ``seeds``;
    the interval of what differs draw by draw decides what is better. Work outside of jobs, and jobs that are
    still to come, are not in the picture.
    """

    _esm = module("what_if", "allotment_map", "compare")
    _css = style()

    looks = View.looks | {"predict", "stop", "show"}

    names: Any = traitlets.List(read_only=True).tag(sync=True)
    #: policies to try: names of ready-made ones; and whether the edited policy is among them
    tried = traitlets.List(traitlets.Unicode(), ["easy-backfill"]).tag(sync=True)
    with_edited = traitlets.Bool(True).tag(sync=True)
    seeds = traitlets.Int(20).tag(sync=True)
    #: simulations done and of all, while a prediction is made
    progress = traitlets.List([0, 0], read_only=True).tag(sync=True)
    #: one row a policy, the one that was in force first: see ``Study.compared``
    rows: Any = traitlets.List(read_only=True).tag(sync=True)
    #: what the prediction is of
    about = traitlets.Unicode(read_only=True).tag(sync=True)
    #: metrics that have anything to say: name, words, unit
    shown_metrics: Any = traitlets.List(read_only=True).tag(sync=True)
    #: what is in force now: name, version, the row that has become it (or None), and whether it is another
    #: policy than the one that the prediction compares with
    present = traitlets.Dict(read_only=True).tag(sync=True)

    def __init__(self, source: Any, panel: Any = None, **traits: Any) -> None:
        self._panel = panel
        #: of each row
        self._policies: list[Policy] = []
        #: from which they are predicted
        self._snapshot: Any = None
        self._in_force: tuple[Policy, int] | None = None
        self._is_busy = False
        self._stop = Event()
        self.set_trait("names", Policy.names())
        super().__init__(source, **traits)

    def take(self, news: Mapping[str, Any]) -> None:
        """Follow what is in force: a prediction says for which policy it was made."""
        if "in_force" in news:
            self._see(news["in_force"])

    def readable(self) -> str:
        """A line for each policy."""
        if not self.rows:
            return "nothing is predicted yet"
        lines = [self.about]
        if self.present.get("is_changed"):
            lines.append(f"{self.present['name']} is in force by now: predict again")
        for row in self.rows:
            found = row["figures"]
            said = (_in_words(words, unit, found[name]) for name, words, unit in self.shown_metrics)
            lines.append(f"{row['policy']}: {', '.join(said)}")
        return "\n".join(lines)

    async def predict(self, policies: list[Policy], seeds: int = 20) -> list[dict[str, Any]]:
        """What each policy would do from now on: a row each, the one in force first, none twice."""
        self._stop.clear()
        base = self._see(await self._awaited.set())
        chosen, twice = _each_once([base, *policies])
        if len(chosen) > _MOST + 1:
            raise InputError("what if", f"found {len(chosen) - 1} policies", f"at most {_MOST} at once")
        labelled = [replace(one, name=name) for one, name in zip(chosen, _names_apart(chosen), strict=True)]
        snapshot = await self._awaited.snapshot()
        if not snapshot.running and not snapshot.waiting:
            raise InputError("what if", "no job runs or waits", "with dask_hpc.job(...): submit something")
        study = await asyncio.to_thread(
            simulate,
            snapshot=snapshot,
            policy=labelled,
            seeds=seeds,
            progress=self._teller(len(chosen) * seeds),
        )
        found = study.compared()
        self._policies, self._snapshot = chosen, snapshot
        words = f"{len(snapshot.running)} running and {len(snapshot.waiting)} waiting jobs"
        drawn = f"{seeds} draws of how long they take, the same for all policies; 95 % intervals"
        about = "; ".join([f"{words} on {snapshot.size} nodes", drawn, *twice])
        with self.hold_sync():
            self.set_trait("about", about)
            self.set_trait("shown_metrics", [list(one) for one in found.shown])
            self.set_trait("rows", found.as_rows())
            self._show_present()
        return list(self.rows)

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
            await self.predict(policies, self.seeds)
        except Stopped:
            return "stopped: what is shown is of before" if self.rows else "stopped"
        finally:
            self._is_busy = False
            self.set_trait("progress", [0, 0])
        return f"predicted for {len(self.rows)} policies"

    async def do_stop(self, asked: Mapping[str, Any]) -> str:
        """Predict no further."""
        self._stop.set()
        return "stopping after this simulation" if self._is_busy else "nothing is being predicted"

    async def do_show(self, asked: Mapping[str, Any]) -> str:
        """Send the course that a policy predicts, below what was: jobs take as long as expected."""
        policy = self._policy_of(asked, "show")
        name = self.rows[asked["row"]]["policy"]
        found = await asyncio.to_thread(simulate, snapshot=self._snapshot, policy=policy, allotments=True)
        both = side_by_side(self._manager, found, names=("what was", f"{name}, predicted"))
        self.send({"predicted": both.given() | {"table": [], "about": ""}})
        return f"what is predicted under {name}"

    async def do_apply(self, asked: Mapping[str, Any]) -> str:
        """Put the policy of a row in force, if what is in force is what whoever asks has seen."""
        policy = self._policy_of(asked, "apply")
        version = asked.get("version", self.present.get("version"))
        if type(version) is not int:
            raise InputError("apply", f"found version {version!r}", "the version of what is in force")
        found = await self._awaited._ask(
            "hpc_set", policy=policy.to_yaml(), name=policy.name, version=version
        )
        self._see(found)
        return f"{found['name']} is in force"

    def close(self) -> None:
        """Predict no further, and leave the page."""
        self._stop.set()
        super().close()

    def _policy_of(self, asked: Mapping[str, Any], what: str) -> Policy:
        number = asked.get("row")
        if type(number) is not int or not 0 <= number < len(self._policies):
            raise InputError(what, f"found {number!r}", "the number of a row")
        return self._policies[number]

    def _see(self, in_force: Mapping[str, Any]) -> Policy:
        policy = Policy.parse(in_force["policy"], name=in_force["name"])
        self._in_force = policy, in_force["version"]
        self._show_present()
        return policy

    def _show_present(self) -> None:
        if self._in_force is None:
            return
        policy, version = self._in_force
        row = next((n for n, one in enumerate(self._policies) if one.to_dict() == policy.to_dict()), None)
        is_changed = bool(self._policies) and row != 0
        now = {"name": policy.name, "version": version, "row": row, "is_changed": is_changed}
        self.set_trait("present", now)

    def _teller(self, of: int) -> Any:
        """Says now and then how far it is, and ends it when it is to stop; called where it is simulated."""
        loop, told_at = asyncio.get_running_loop(), [monotonic()]
        self.set_trait("progress", [0, of])

        def tell(done: int, of: int) -> None:
            if self._stop.is_set():
                raise Stopped
            if monotonic() - told_at[0] > _TOLD_EVERY:
                told_at[0] = monotonic()
                loop.call_soon_threadsafe(self.set_trait, "progress", [done, of])

        return tell


def _each_once(policies: Iterable[Policy]) -> tuple[list[Policy], list[str]]:
    """Those that differ, the first of each; and of the others in words what they are."""
    found: list[Policy] = []
    twice = []
    for one in policies:
        same = next((n for n, other in enumerate(found) if other.to_dict() == one.to_dict()), None)
        if same is None:
            found.append(one)
        else:
            twice.append(f"{one.name} is {'in force' if same == 0 else f'as {found[same].name}'}")
    return found, list(dict.fromkeys(twice))


def _names_apart(policies: Iterable[Policy]) -> list[str]:
    """A name for each: of several variants of one policy the ready-made one keeps it."""
    policies = list(policies)
    names = [one.name for one in policies]
    found: list[str] = []
    for one in policies:
        name = one.name
        if names.count(name) > 1 and not _keeps_its_name(one, found):
            name = f"{name}, edited"
        count = 2
        while name in found:
            name, count = f"{one.name}, edited {count}", count + 1
        found.append(name)
    return found


def _keeps_its_name(policy: Policy, names: Iterable[str]) -> bool:
    if policy.name not in Policy.names():
        return policy.name not in names
    return Policy.load(policy.name).to_dict() == policy.to_dict()


def _in_words(words: str, unit: str, figure: Mapping[str, Any]) -> str:
    mean, half, more, verdict = (figure[key] for key in ("mean", "half", "more", "verdict"))
    if mean is None:
        return f"{words} -"
    said = f"{words} {mean:.4g} {unit}".rstrip() + (
        "" if half is None else f" \N{PLUS-MINUS SIGN} {half:.2g}"
    )
    said += "" if more is None else f" ({more:+.3g})"
    return f"{said} {verdict}".rstrip()
