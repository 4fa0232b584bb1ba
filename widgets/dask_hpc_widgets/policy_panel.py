"""Edit a policy with the controls that its parameters declare, and put it in force."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import traitlets

from dask_hpc import InputError, Policy
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View

_NONE = "none"
_SUFFIXES = (".yaml", ".yml")
#: how far below the kernel's folder policy files are looked for, in how many files, of which size
_DEEP, _MANY, _LONG = 3, 500, 100_000

Rows = list[list[str]]


class InForceNow(NamedTuple):
    """What a cluster does, as it was heard last; ``version`` counts its changes."""

    policy: Policy
    settings: Mapping[str, Any]
    version: int | None

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> "InForceNow":
        """From what the scheduler says."""
        policy = Policy.parse(told["policy"], name=told["name"])
        return cls(policy, told.get("settings", {}), told.get("version"))


class PolicyPanel(View):
    """Choose a policy, change any parameter, see what differs from the policy in force, apply it, undo it.

    Every value is checked where policies are read, so what is refused here comes with the same reason as in a
    policy file. Apply sends what was edited and nothing else; where something in force is no longer what the
    edits began with, it asks first. Without a cluster, ``PolicyPanel(policy="easy-backfill")``, it edits,
    loads and saves policy files: see ``policy``.
    """

    _esm = module("policy_panel")
    _css = style()

    #: how many steps undo can go back
    undo_steps = traitlets.Int(read_only=True).tag(sync=True)
    #: names of ready-made policies, with a line on each; policy files in the kernel's folder: path, a line
    names: Any = traitlets.List(read_only=True).tag(sync=True)
    summaries = traitlets.Dict(read_only=True).tag(sync=True)
    files: Any = traitlets.List(read_only=True).tag(sync=True)
    #: strategies by concern with a line on each
    strategies = traitlets.Dict(read_only=True).tag(sync=True)
    #: the edited policy: its name, a line on it, the strategy of each concern, a control for each parameter
    name = traitlets.Unicode(read_only=True).tag(sync=True)
    summary = traitlets.Unicode(read_only=True).tag(sync=True)
    chosen = traitlets.Dict(read_only=True).tag(sync=True)
    fields: Any = traitlets.List(read_only=True).tag(sync=True)
    #: what would change: path, was, is
    difference: Any = traitlets.List(read_only=True).tag(sync=True)
    #: what others have changed since the edits began: path, was, is, what it was edited to here or None
    meanwhile: Any = traitlets.List(read_only=True).tag(sync=True)
    #: which version that is up to, and whether people are asked what to do about it
    version: Any = traitlets.Int(None, allow_none=True, read_only=True).tag(sync=True)
    asks = traitlets.Bool(read_only=True).tag(sync=True)
    #: values that were refused, by path: what was asked for, and why not
    refused = traitlets.Dict(read_only=True).tag(sync=True)
    #: the file that would have been replaced, had it been asked for
    exists = traitlets.Unicode(read_only=True).tag(sync=True)
    yaml = traitlets.Unicode(read_only=True).tag(sync=True)
    python = traitlets.Unicode(read_only=True).tag(sync=True)

    def __init__(self, source: Any = None, policy: Any = None, **traits: Any) -> None:
        start = Policy.load(policy or "easy-backfill")
        #: what is in force; that as it was when edits began; another policy, if one was chosen; the edits
        self._now = InForceNow(start, {}, None)
        self._began: InForceNow | None = None
        self._other = start if policy is not None and source is not None else None
        self._edits: dict[str, Any] = {}
        self._edited = start
        self._is_heard_of = False
        #: when the management began of which was heard last
        self._began_at: float | None = None
        self.set_trait("names", Policy.names())
        self.set_trait("summaries", _summaries())
        choices = Policy.choices()
        self.set_trait(
            "strategies",
            {
                concern: {name: one["summary"] for name, one in found.items()}
                for concern, found in choices.items()
            },
        )
        super().__init__(source, **traits)
        with self._one_at_a_time:  # the source may be heard of already
            self._show()

    @property
    def policy(self) -> Policy:
        """The policy as it is edited now."""
        return self._edited

    def edit(self, **changes: Any) -> None:
        """Change parameters by key path, as ``Policy.with_``: all or none; ``InputError`` if refused."""
        with self._one_at_a_time:
            # a strategy begins with its own defaults: what was edited of the one before is gone
            anew = _concerns(path for path in changes if path.endswith(".strategy"))
            edits = {path: value for path, value in self._edits.items() if not _concerns([path]) & anew}
            edits |= changes
            self._ground.with_(**edits)
            self._began, self._edits = self._began or self._now, edits
            self._rebase()

    def choose(self, policy: Any) -> None:
        """Edit another policy: a ready-made one by name, a file, or a ``Policy``."""
        other = Policy.load(policy)
        with self._one_at_a_time:
            self._edits, self._began = {}, self._now
            if self.is_live:
                self._other = other
            else:
                self._now = self._began = InForceNow(other, {}, None)
            self.set_trait("refused", {})
            self.set_trait("asks", False)
            self._rebase()

    def seen(self) -> Mapping[str, Any]:
        """Nothing of the course is drawn here."""
        return {}

    def take(self, news: Mapping[str, Any]) -> None:
        """Follow what is in force: edits are made to that, whatever others change meanwhile."""
        head, told = news.get("head", {}), news.get("in_force", {})
        # What was on its way while something was applied is older than the answer. Where a cluster is managed
        # anew changes are counted anew.
        began = head.get("began", self._began_at)
        seen = (self.version or 0) if began == self._began_at else 0
        self._began_at = began
        if "undo" in head and head.get("version", 0) >= seen:
            self.set_trait("undo_steps", int(head["undo"]))
        if told and told.get("version", 0) >= seen:
            self._follow(told)

    async def do_choose(self, asked: Mapping[str, Any]) -> str:
        """Edit another ready-made policy, or one of a file below the kernel's folder."""
        if asked.get("file") is not None:
            self.choose(_below(asked["file"], "load"))
        else:
            name = asked.get("name")
            if name not in self.names:
                raise InputError("policy", f"no policy is named {name!r}", ", ".join(self.names))
            self.choose(name)
        return f"{self.name} is not in force yet" if self.is_live else f"{self.name} is edited"

    async def do_edit(self, asked: Mapping[str, Any]) -> str:
        """Change one parameter, and that of another concern that is the same."""
        path, value = str(asked.get("path")), asked.get("value")
        same = next((one["paths"] for one in self.fields if one["path"] == path), [path])
        refused = {key: reason for key, reason in self.refused.items() if key != path}
        try:
            self.edit(**dict.fromkeys(same, value))
        except InputError as error:
            reason = f"{error.found}; allowed: {error.allowed}" if error.allowed else error.found
            self.set_trait("refused", refused | {path: {"value": value, "why": reason}})
            raise
        self.set_trait("refused", refused)
        self.set_trait("asks", False)
        return f"{path} is {_text(value)}{', not in force yet' if self.is_live else ''}"

    async def do_reset(self, asked: Mapping[str, Any]) -> str:
        """Back to the policy in force, or to the one that was loaded."""
        self._forget_edits()
        return "as in force" if self.is_live else f"as {self.name} was"

    async def do_theirs(self, asked: Mapping[str, Any]) -> str:
        """What others changed stays as it is: edits of the same are dropped, others begin with that."""
        with self._one_at_a_time:
            clashes = {path for path, _, _, mine in self.meanwhile if mine is not None}
            anew = _concerns(path for path in {*clashes, *self._edits} if path.endswith(".strategy"))
            gone = _concerns(clashes) & anew
            kept = {
                path: value
                for path, value in self._edits.items()
                if path not in clashes and not _concerns([path]) & gone
            }
            now = self._now.policy
            if not _fits(now, kept):
                kept = {path: value for path, value in kept.items() if _fits(now, {path: value})}
            if self._other is not None or not kept:
                self._forget_edits()
                return "as in force, nothing is edited"
            self._began, self._edits = self._now, kept
            self.set_trait("asks", False)
            self._rebase()
        return "theirs stays; what else was edited is not in force yet"

    async def do_apply(self, asked: Mapping[str, Any]) -> str:
        """Put it in force: another policy as a whole, else only what was edited. What others have changed
        since the edits began is shown first; ``version`` says that it was seen."""
        self._insist_on_a_cluster("apply")
        while True:
            if self.meanwhile and asked.get("version") != self._now.version:
                self.set_trait("asks", True)
                raise InputError("apply", "what is in force has changed since the edits began")
            if not self.difference and self._other is None:
                return "nothing differs"
            try:
                found = await self._awaited._ask("hpc_set", **self._change(), version=self._now.version)
                break
            except InputError:
                present = await self._awaited.set()
                if present["version"] == self._now.version:
                    raise  # it was not that
                self._follow(present)
        with self._one_at_a_time:
            self._is_in_force(found)
            self._forget_edits()
        return f"{found['name']} is in force"

    async def do_undo(self, asked: Mapping[str, Any]) -> str:
        """Back to what was in force before; edits stay, and begin with that."""
        self._insist_on_a_cluster("undo")
        found = await self._awaited.undo()
        with self._one_at_a_time:
            self._is_in_force(found)
            if self._began is not None:
                self._began = self._now
            self._rebase()
        return f"undone: {found['name']} is in force"

    async def do_save(self, asked: Mapping[str, Any]) -> str:
        """Write a policy file in the kernel's folder; what is there already stays unless it is asked for."""
        path = _below(asked.get("path") or f"{self.name}.yaml", "save")
        shown = str(path.relative_to(Path.cwd().resolve()))
        self.set_trait("exists", "")
        if path.exists() and not asked.get("replace"):
            self.set_trait("exists", shown)
            raise InputError("save", f"{shown} exists", "another name, or Replace")
        draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
        try:
            draft.write_text(self.yaml, encoding="utf-8")
            draft.replace(path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise InputError("save", f"{shown}: {error.strerror}", "a file that can be written") from None
        self._look_for_files()
        return f"saved as {shown}"

    async def do_files(self, asked: Mapping[str, Any]) -> None:
        """Look for policy files."""
        self._look_for_files()

    def _look_for_files(self) -> None:
        self.set_trait("files", policy_files(Path.cwd()))

    def _insist_on_a_cluster(self, deed: str) -> None:
        if not self.is_live:
            raise InputError(deed, "there is no cluster", "PolicyPanel(client)")

    def _follow(self, told: Mapping[str, Any]) -> None:
        """This is in force now, whoever put it there."""
        with self._one_at_a_time:
            self._is_in_force(told)
            self._rebase()

    def _is_in_force(self, told: Mapping[str, Any]) -> None:
        self._now = InForceNow.read(told)
        self.set_trait("undo_steps", int(told.get("undo", self.undo_steps)))
        if not self._is_heard_of:  # what was edited before that began with this
            self._is_heard_of = True
            if self._began is not None or self._other is not None:
                self._began = self._now

    def _rebase(self) -> None:
        """What is edited, on what is in force now."""
        ground = self._ground
        self._edited = ground.with_(**self._edits) if self._edits else ground
        if self._other is None and ground is self._now.policy:
            self._edits = _needed(ground, self._edited, self._edits)
            self._began = self._began if self._edits else None
        self._show()

    @property
    def _ground(self) -> Policy:
        """What edits are made to: what is in force now, or what was when they began, if that has nothing
        any more that could be edited so."""
        now, began = self._now, self._began
        if self._other is not None:
            return self._other
        return now.policy if began is None or _fits(now.policy, self._edits) else began.policy

    def _change(self) -> dict[str, Any]:
        """What is sent to put it in force."""
        if self._other is not None:
            return {"policy": self._edited.to_yaml(), "name": self._edited.name}
        after = _flat(self._edited)
        return {"changes": {path: after[path] for path, _, _ in self.difference}}

    def _forget_edits(self) -> None:
        with self._one_at_a_time:
            self._edits, self._other, self._began = {}, None, None
            self.set_trait("refused", {})
            self.set_trait("asks", False)
            self._rebase()

    def _show(self) -> None:
        """Bring what the front end sees up to date."""
        edited, base, began = self._edited, self._now.policy, self._began
        differs = dict(_changes(base, edited))
        if self._other is None and self._ground is not base:
            flat, was = _flat(edited), _flat(base)
            differs = {path: (_text(was.get(path)), _text(flat[path])) for path in self._edits}
        others = [] if began is None else self._others_changes(began)
        with self.hold_sync():
            self.set_trait("name", edited.name)
            self.set_trait("summary", edited.summary)
            self.set_trait("chosen", _strategies(edited))
            self.set_trait("fields", _fields(base, edited))
            self.set_trait("difference", [[path, was, now] for path, (was, now) in differs.items()])
            self.set_trait("meanwhile", others)
            self.set_trait("version", self._now.version)
            if not others:
                self.set_trait("asks", False)
            self.set_trait("yaml", edited.to_yaml())
            self.set_trait("python", _python(base, edited, differs))

    def _others_changes(self, began: InForceNow) -> list[list[str | None]]:
        """What was changed since then: path, was, is, what it was edited to here."""
        before, now, after = began.policy, self._now.policy, _flat(self._edited)
        rows: list[list[str | None]] = []
        if before.name != now.name:
            mine = self._edited.name if self._other is not None else None
            rows.append(["policy", before.name, now.name, mine])
        anew = _concerns(path for path in self._edits if path.endswith(".strategy"))
        for path, (was, is_now) in _changes(before, now):
            is_mine = self._other is not None or path in self._edits or bool(_concerns([path]) & anew)
            rows.append([path, was, is_now, _text(after.get(path)) if is_mine else None])
        for key, value in self._now.settings.items():
            if value != began.settings.get(key):
                rows.append([f"settings.{key}", _text(began.settings.get(key)), _text(value), None])
        return rows

    def readable(self) -> str:
        return f"policy {self.name}\n{self.yaml}"


def policy_files(folder: Path) -> Rows:
    """Policy files in and below a folder, each with its line: no hidden ones, none that a link brings in
    from elsewhere, and nothing of any other file."""
    found: Rows = []
    looked_at = 0
    for here, folders, files in os.walk(folder):
        depth = len(Path(here).relative_to(folder).parts)
        folders[:] = sorted(one for one in folders if depth < _DEEP - 1 and not one.startswith((".", "_")))
        for name in sorted(files):
            path = Path(here, name)
            if path.suffix not in _SUFFIXES or name.startswith(".") or path.is_symlink():
                continue
            looked_at += 1
            if looked_at > _MANY:
                return found
            with suppress(OSError, InputError):
                if path.is_file() and path.stat().st_size <= _LONG:
                    text = path.read_bytes()
                    if b"queue:" in text:  # quick to see of most others
                        found.append([str(path.relative_to(folder)), Policy.parse(text).summary])
    return found


def _below(given: Any, deed: str) -> Path:
    """A policy file's path, below the kernel's folder wherever links lead."""
    folder, path = Path.cwd().resolve(), Path(str(given))
    is_fine = path.suffix in _SUFFIXES and not path.is_absolute() and str(given).isprintable()
    if not is_fine or not (folder / path).resolve().is_relative_to(folder):
        raise InputError(deed, f"found {str(given)!r}", "a name of a .yaml file, below this folder")
    return (folder / path).resolve()


@cache
def _summaries() -> dict[str, str]:
    return {name: Policy.load(name).summary for name in Policy.names()}


def _fields(base: Policy, edited: Policy) -> list[dict[str, Any]]:
    """A control for each parameter. One that two concerns have, with the same meaning and value, has one."""
    changed = dict(_changes(base, edited))
    found: dict[Any, dict[str, Any]] = {}
    for path, one, value in edited.parameters():
        concern, _, name = path.partition(".")
        essential = getattr(getattr(edited, concern), "essential", ())
        is_changed = path in changed
        same = (name, one.kind, one.parameter, str(value))
        if same in found:
            found[same]["paths"].append(path)
            found[same]["is_changed"] |= is_changed
            continue
        found[same] = {
            "path": path,
            "paths": [path],
            "kind": one.kind,
            "number": float(value) if isinstance(value, int | float) and isfinite(value) else None,
            "may_be_none": one.parameter.none is not None or one.kind == "schedule",
            "is_changed": is_changed,
            "is_essential": name in essential or not essential,
            **one.described(value),
        }
    return list(found.values())


def _fits(policy: Policy, edits: Mapping[str, Any]) -> bool:
    try:
        policy.with_(**edits)
    except InputError:
        return False
    return True


def _needed(before: Policy, edited: Policy, edits: Mapping[str, Any]) -> dict[str, Any]:
    """Edits that change something: one that was taken back is none, and takes nothing back of others'."""
    changed = {path for path, _ in _changes(before, edited)}
    # a strategy that is chosen, be it once more, begins with its defaults: all of its concern counts
    whole = _concerns(changed) & _concerns(path for path in edits if path.endswith(".strategy"))
    return {path: value for path, value in edits.items() if path in changed or _concerns([path]) & whole}


def _concerns(paths: Iterable[str]) -> set[str]:
    return {path.partition(".")[0] for path in paths}


def _strategies(policy: Policy) -> dict[str, str]:
    found = policy.to_dict()
    return {key: value["strategy"] for key, value in found.items() if isinstance(value, dict)}


def _changes(base: Policy, edited: Policy) -> Iterator[tuple[str, tuple[str, str]]]:
    """What differs, by key path: was, is. Of another strategy, what is not as it comes."""
    before, after = base.to_dict(), edited.to_dict()
    for concern in Policy.choices():
        old, new = before.get(concern) or {}, after.get(concern) or {}
        was, now = old.get("strategy", _NONE), new.get("strategy", _NONE)
        if was != now:
            yield f"{concern}.strategy", (was, now)
            old = {
                one.name: one.write(one.default)
                for path, one, _ in edited.parameters()
                if path.startswith(f"{concern}.")
            }
        for key, value in new.items():
            if key != "strategy" and old.get(key) != value:
                yield f"{concern}.{key}", (_text(old.get(key)), _text(value))


def _flat(policy: Policy) -> dict[str, Any]:
    return {
        f"{concern}.{key}": value
        for concern, found in policy.to_dict().items()
        if isinstance(found, dict)
        for key, value in found.items()
    }


def _text(value: Any) -> str:
    return _NONE if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _python(base: Policy, edited: Policy, changes: Mapping[str, Any]) -> str:
    """The code that puts the edited policy in force."""
    if not changes:
        return f"manager.set({edited.name!r})" if edited.name != base.name else "# nothing differs"
    after = _flat(edited)
    given = ", ".join(f"{path!r}: {after[path]!r}" for path in changes)
    other = f"{edited.name!r}, " if edited.name != base.name and edited.name in Policy.names() else ""
    if other:
        start = Policy.load(edited.name)
        given = ", ".join(f"{path!r}: {after[path]!r}" for path, _ in _changes(start, edited))
        return f"manager.set({edited.name!r}, **{{{given}}})" if given else f"manager.set({edited.name!r})"
    return f"manager.set(**{{{given}}})"
