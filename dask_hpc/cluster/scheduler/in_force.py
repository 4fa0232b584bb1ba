"""What is in force on a managed cluster, and how it may be changed: all or nothing, with a way back."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dask_hpc import config
from dask_hpc.cluster.request import check_word
from dask_hpc.model.errors import InputError, shown
from dask_hpc.policy import Policy, ready_made

#: how many steps back ``undo`` can go
STEPS = 50


@dataclass(frozen=True)
class InForce:
    """A policy, and the settings (keys under ``hpc``) that go with it."""

    policy: Policy
    settings: Mapping[str, Any]

    def changed(self, policy: object = None, name: object = None, changes: object = None) -> "InForce":
        """Another policy (YAML text with a name, or the name of a ready-made one), then ``changes`` by key
        path: ``malleability.guard`` for a parameter, ``settings.fair-shares`` for a setting. Checked as a
        whole; raises ``InputError`` and leaves everything as it is."""
        chosen = self.policy if policy is None and name is None else _policy(policy, name)
        changes = {} if changes is None else changes
        if not isinstance(changes, Mapping) or not all(isinstance(path, str) for path in changes):
            raise InputError("changes", f"found {shown(changes)}", "key paths with values")
        parameters = {path: value for path, value in changes.items() if not path.startswith("settings.")}
        settings = {
            key: config.live_setting(key, value)
            for path, value in changes.items()
            if (key := path.removeprefix("settings.")) != path
        }
        if parameters:
            chosen = chosen.with_(**parameters)
        return InForce(chosen, {**self.settings, **settings})


class History:
    """What is in force now, and what was before.

    Undo goes one step back each time, up to ``STEPS``; what was undone is gone, and can be set again.
    """

    def __init__(self, first: InForce) -> None:
        self.now = first
        #: how often that has changed: who looks now and then sees whether to look closer
        self.version = 0
        self._before: deque[InForce] = deque(maxlen=STEPS)

    def __len__(self) -> int:
        return len(self._before)

    def accept(self, new: InForce) -> None:
        """From now on this. What is no change is no step."""
        if new != self.now:
            self._before.append(self.now)
            self.now = new
            self.version += 1

    def undo(self) -> None:
        """Back to what was before the last change."""
        if not self._before:
            raise InputError("undo", "there is nothing to undo")
        self.now = self._before.pop()
        self.version += 1


def difference(old: InForce, new: InForce) -> str:
    """What changed, for the story; empty if nothing did."""
    words = []
    before, after = old.policy, new.policy
    strategies = ([type(getattr(one, field.name)) for field in fields(one)] for one in (before, after))
    if before.name != after.name or next(strategies) != next(strategies):
        words.append(f"{after.name} from now on")
    else:
        were, are = ({path: one.show(at) for path, one, at in it.parameters()} for it in (before, after))
        words += [f"{path} is {are[path]}, was {was}" for path, was in were.items() if was != are[path]]
    words += [
        f"{key} is {value}, was {old.settings[key]}"
        for key, value in new.settings.items()
        if value != old.settings[key]
    ]
    return "; ".join(words)


def _policy(policy: object, name: object) -> Policy:
    if not isinstance(policy, str) or not isinstance(name, str | None):
        raise InputError("policy", f"found {shown(policy)}, {shown(name)}", "YAML text and a name")
    if name is not None:
        check_word("name", name, may_be_empty=False)
    elif ":" not in policy:  # no YAML of ours; and no path: this is the scheduler's disk
        known = ready_made()
        if policy not in known:
            raise InputError("policy", f"no policy is named {shown(policy)}", ", ".join(known))
        return Policy.load(policy)
    return Policy.parse(policy, name="policy" if name is None else name)
