"""Edit a policy with the controls that its parameters declare, and put it in force."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any

import traitlets

from dask_hpc import InputError, Policy
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.view import View

_NONE = "none"


class PolicyPanel(View):
    """Choose a policy, change any parameter, see what differs from the policy in force, apply it, undo it.

    Every value is checked where policies are read, so what is refused here comes with the same reason as in a
    policy file. Without a cluster, ``PolicyPanel(policy="easy-backfill")``, it edits: see ``policy``.
    """

    _esm = module("policy_panel")
    _css = style()

    #: names of ready-made policies; strategies by concern with a line on each
    names: Any = traitlets.List(read_only=True).tag(sync=True)
    strategies = traitlets.Dict(read_only=True).tag(sync=True)
    #: the edited policy: its name, the strategy of each concern, a control for each parameter
    name = traitlets.Unicode(read_only=True).tag(sync=True)
    chosen = traitlets.Dict(read_only=True).tag(sync=True)
    fields: Any = traitlets.List(read_only=True).tag(sync=True)
    #: what would change: path, was, is
    difference: Any = traitlets.List(read_only=True).tag(sync=True)
    #: values that were refused, by path: what was asked for, and why not
    refused = traitlets.Dict(read_only=True).tag(sync=True)
    yaml = traitlets.Unicode(read_only=True).tag(sync=True)
    python = traitlets.Unicode(read_only=True).tag(sync=True)

    def __init__(self, source: Any = None, policy: Any = None, **traits: Any) -> None:
        choices = Policy.choices()
        #: the policy in force, what people changed of it, and the policy that makes
        self._base = self._edited = Policy.load(policy or "easy-backfill")
        self._edits: dict[str, Any] = {}
        #: whether what is edited is another policy, which does not follow the one in force
        self._is_other = policy is not None
        self._one_at_a_time = Lock()
        self.set_trait("names", Policy.names())
        self.set_trait(
            "strategies",
            {
                concern: {name: one["summary"].replace("``", "") for name, one in found.items()}
                for concern, found in choices.items()
            },
        )
        super().__init__(source, **traits)
        self._show()

    @property
    def policy(self) -> Policy:
        """The policy as it is edited now."""
        return self._edited

    def edit(self, **changes: Any) -> None:
        """Change parameters by key path, as ``Policy.with_``: all or none; ``InputError`` if refused."""
        self._edited = self._edited.with_(**changes)
        self._edits |= changes
        self._show()

    def choose(self, policy: Any) -> None:
        """Edit another policy: a ready-made one by name, a file, or a ``Policy``."""
        self._edited, self._edits, self._is_other = Policy.load(policy), {}, True
        self.set_trait("refused", {})
        self._show()

    def seen(self) -> Mapping[str, Any]:
        """Nothing of the course is drawn here."""
        return {}

    def take(self, news: Mapping[str, Any]) -> None:
        """Follow what is in force: edits are made to that, whatever others change meanwhile."""
        if "in_force" not in news:
            return
        in_force = news["in_force"]
        self._base = Policy.parse(in_force["policy"], name=in_force["name"])
        if not self._is_other:
            try:
                self._edited = self._base.with_(**self._edits) if self._edits else self._base
            except InputError:  # it has nothing that could be edited so: what was edited stays as it was
                self._is_other = True
        self._show()

    async def do_choose(self, asked: Mapping[str, Any]) -> str:
        """Edit another ready-made policy."""
        self.choose(str(asked.get("name")))
        return f"{self.name} is not in force yet"

    async def do_edit(self, asked: Mapping[str, Any]) -> str:
        """Change one parameter."""
        path, value = str(asked.get("path")), asked.get("value")
        refused = {key: reason for key, reason in self.refused.items() if key != path}
        try:
            self.edit(**{path: value})
        except InputError as error:
            reason = f"{error.found}; allowed: {error.allowed}" if error.allowed else error.found
            self.set_trait("refused", refused | {path: {"value": value, "why": reason}})
            raise
        self.set_trait("refused", refused)
        return f"{path} is {value}, not in force yet"

    async def do_reset(self, asked: Mapping[str, Any]) -> str:
        """Back to the policy in force."""
        self._edited = self._base
        self._forget_edits()
        self._show()
        return "as in force"

    async def do_apply(self, asked: Mapping[str, Any]) -> str:
        """Put it in force: another policy as a whole, else only what was edited."""
        if self._is_other:
            found = await self._awaited.set(self._edited)
        else:
            edited = _flat(self._edited)
            found = await self._awaited.set(
                **{path: edited[path] for path, _ in _changes(self._base, self._edited)}
            )
        self._forget_edits()
        return f"{found['name']} is in force"

    async def do_undo(self, asked: Mapping[str, Any]) -> str:
        """Back to what was in force before; edits are dropped."""
        self._edited = self._base
        self._forget_edits()
        return await super().do_undo(asked)

    async def do_save(self, asked: Mapping[str, Any]) -> str:
        """Write a policy file in the kernel's folder; what is there already stays unless it is asked for."""
        path = Path(str(asked.get("path") or f"{self.name}.yaml"))
        if path.suffix not in (".yaml", ".yml") or path.is_absolute() or ".." in path.parts:
            raise InputError("save", f"found {str(path)!r}", "a name of a .yaml file, below this folder")
        try:
            with path.open("w" if asked.get("replace") else "x", encoding="utf-8") as file:
                file.write(self.yaml)
        except FileExistsError:
            raise InputError("save", f"{path} exists", "another name, or press Save again") from None
        except OSError as error:
            raise InputError("save", f"{path}: {error.strerror}", "a file that can be written") from None
        return f"saved as {path}"

    def _forget_edits(self) -> None:
        self._edits, self._is_other = {}, False
        self.set_trait("refused", {})

    def _show(self) -> None:
        """Bring what the front end sees up to date."""
        edited, base = self._edited, self._base
        was = {path: one.write(value) for path, one, value in base.parameters()}
        fields = [
            {
                "path": path,
                "kind": one.kind,
                "number": float(value) if isinstance(value, int | float) and isfinite(value) else None,
                "may_be_none": one.parameter.none is not None or one.kind == "schedule",
                "is_changed": path not in was or was[path] != one.write(value),
                **one.described(value),
            }
            for path, one, value in edited.parameters()
        ]
        changes = dict(_changes(base, edited))
        # people edit in one thread, news come in another
        with self._one_at_a_time, self.hold_sync():
            self.set_trait("name", edited.name)
            self.set_trait("chosen", _strategies(edited))
            self.set_trait("fields", fields)
            self.set_trait("difference", [[path, was, now] for path, (was, now) in changes.items()])
            self.set_trait("yaml", edited.to_yaml())
            self.set_trait("python", _python(base, edited, changes))

    def readable(self) -> str:
        return f"policy {self.name}\n{self.yaml}"


def _strategies(policy: Policy) -> dict[str, str]:
    found = policy.to_dict()
    return {key: value["strategy"] for key, value in found.items() if isinstance(value, dict)}


def _changes(base: Policy, edited: Policy) -> Any:
    """What differs, by key path: was, is."""
    before, after = _flat(base), _flat(edited)
    for path, value in after.items():
        if before.get(path) != value:
            yield path, (_text(before.get(path)), _text(value))


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
