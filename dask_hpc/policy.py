"""A policy: strategies chosen for each concern plus their parameters, written as one YAML file."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dask_hpc.model.errors import InputError, insist, one_line, shown, within
from dask_hpc.model.parameter import Declared, declared
from dask_hpc.model.plan import Drop, Interrupt, Plan, Resize, Start
from dask_hpc.model.safe_yaml import check_keys, nearest, read_yaml
from dask_hpc.model.snapshot import INTERRUPTED, Snapshot
from dask_hpc.strategies import CONCERNS, strategies
from dask_hpc.strategies.failure.replace import replacements
from dask_hpc.strategies.malleability.grow_shrink import answers, given_up
from dask_hpc.strategies.size.demand import Demand
from dask_hpc.strategies.strategy import (
    CheckpointStrategy,
    FailureStrategy,
    FilesStrategy,
    IoStrategy,
    LendingStrategy,
    Loans,
    MalleabilityStrategy,
    MemoryStrategy,
    NodesStrategy,
    Outlook,
    PlacementStrategy,
    PowerStrategy,
    QueueStrategy,
    SizeStrategy,
    Starts,
    TailStrategy,
    TogetherStrategy,
    outlook_after,
)

_KEYS = ("summary", "source", *CONCERNS)
_MOST_ROUNDS = 10_000
#: of a docstring's first words: a full stop, or where a source is named
_ITS_END = re.compile(r"\.(?:\s|$)|; (?:seed|ours|SFSJ)\b")
_LIMIT = 100_000  # bytes; a policy file is a page, not a book


class Remembered(NamedTuple):
    """What the strategies of a policy want to see again at the next decision."""

    queue: Any
    malleability: Any
    failure: Any
    power: Any


class Recorded(NamedTuple):
    """One decision with everything it was made from, so that it can be made again: by a policy, whose answer
    is a plan, or by one of its strategies that is asked alone. ``id`` is that of the plan, or the revision
    found."""

    id: int
    asked: Any
    question: Any
    memory: Any
    answer: Any

    @property
    def is_repeatable(self) -> bool:
        """Whether the same is decided when it is asked again, reasons included."""
        return bool(self.asked.decide(self.question, self.memory)[0] == self.answer)


@dataclass(frozen=True, slots=True)
class Policy:
    """What to do about each concern. ``None`` leaves a concern alone."""

    name: str
    queue: QueueStrategy
    malleability: MalleabilityStrategy | None = None
    #: which nodes jobs get; None: the first that are idle
    nodes: NodesStrategy | None = None
    failure: FailureStrategy | None = None
    #: of nodes that services ask for
    lending: LendingStrategy | None = None
    power: PowerStrategy | None = None
    #: asked by in situ pipelines, between two of their iterations
    placement: PlacementStrategy | None = None
    #: of tasks that read or write, and those that compute beside them
    io: IoStrategy | None = None
    #: of kinds of tasks that slow each other
    together: TogetherStrategy | None = None
    #: of tasks that need much of a worker's memory
    memory: MemoryStrategy | None = None
    #: of slow tasks at the ends of stages, and of slow nodes
    tail: TailStrategy | None = None
    #: of file systems in the memory of nodes
    files: FilesStrategy | None = None
    #: of the copies that protected results have on other nodes
    checkpoint: CheckpointStrategy | None = None
    #: of the cluster itself; asked only when somebody lets us adapt it
    size: SizeStrategy = field(default_factory=Demand)
    summary: str = ""
    source: str = ""
    #: where it was read from, for error messages only
    origin: str = field(default="", compare=False, repr=False)
    #: whether a queue strategy says everything there is to say, the first time it is asked
    _only_queues: bool = field(init=False, compare=False, repr=False)
    #: and nothing at all while the first in the queue does not fit
    _only_first: bool = field(init=False, compare=False, repr=False)
    #: whether nothing is done while no node is idle and nobody waits, and nothing remembered
    _only_in_need: bool = field(init=False, compare=False, repr=False)
    #: whether it gives up jobs that wait
    _gives_up: bool = field(init=False, compare=False, repr=False)
    #: those that may want to be asked again at a time of their own
    _timers: tuple[Any, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        others = (self.malleability, self.failure, self.power, self.lending)
        # others' strategies may be older than what is asked for here
        gives_up = getattr(self.queue, "gives_up", False)
        only = not gives_up and all(one is None for one in others)
        in_need = not gives_up and all(one is None for one in others[1:])
        in_need = in_need and getattr(self.malleability, "only_in_need", False)
        object.__setattr__(self, "_only_in_need", in_need)
        object.__setattr__(self, "_gives_up", gives_up)
        object.__setattr__(self, "_only_queues", only)
        object.__setattr__(self, "_only_first", only and getattr(self.queue, "only_first", False))
        timers = [
            one
            for one, default in ((self.queue, QueueStrategy), (self.malleability, MalleabilityStrategy))
            if getattr(type(one), "ask_again", default.ask_again) is not default.ask_again
        ]
        object.__setattr__(self, "_timers", tuple(timers))

    @classmethod
    def load(cls, name_or_path: "str | Path | Policy") -> "Policy":
        """A ready-made policy by name, or any policy file by path (a ``Path`` is always a file)."""
        if isinstance(name_or_path, Policy):
            return name_or_path
        if not isinstance(name_or_path, Path) and name_or_path in _shipped():
            return _ready(name_or_path)
        return cls._read(name_or_path if isinstance(name_or_path, Path) else _find(name_or_path))

    @classmethod
    def _read(cls, path: Path) -> "Policy":
        try:
            with path.open("rb") as file:
                data = file.read(_LIMIT + 1)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError("", f"cannot be read: {reason}", file=one_line(str(path))) from None
        return cls.parse(data, name=path.stem, origin=str(path))

    @classmethod
    def parse(cls, text: str | bytes, name: str = "policy", origin: str = "policy") -> "Policy":
        """A policy from YAML text. Never runs anything; every complaint is an ``InputError``."""
        try:
            return cls._from_mapping(read_yaml(text, _LIMIT), name, origin)
        except InputError as error:
            raise error.in_file(one_line(origin)) from None

    @classmethod
    def _from_mapping(cls, found: Any, name: str, origin: str) -> "Policy":
        check_keys(found, _KEYS, "")
        if "queue" not in found:
            raise InputError("queue", "found nothing", "queue: {strategy: NAME}")
        words = {}
        for key in ("summary", "source"):
            words[key] = found.get(key, "")
            insist(isinstance(words[key], str), key, words[key], "text")
        chosen = {concern: _strategy(concern, found.get(concern)) for concern in CONCERNS}
        return cls(name=name, origin=origin, **words, **chosen)

    def with_(self, **changes: object) -> "Policy":
        """A copy with parameters changed, named by key path: ``with_(**{"queue.depth": 5})``.

        Changing ``CONCERN.strategy`` starts that concern from the new strategy's defaults.
        """
        found = self.to_dict()
        for path in sorted(changes, key=lambda path: not path.endswith(".strategy")):
            concern, dot, key = path.partition(".")
            if concern not in CONCERNS or not dot:
                known = [f"{concern}.strategy" for concern in CONCERNS]
                known += [path for path, _, _ in self.parameters()]
                raise InputError(path, f"unknown key{nearest(path, known)}", ", ".join(known))
            if key == "strategy":
                found[concern] = {"strategy": changes[path]}
            else:
                found.setdefault(concern, {"strategy": "none"})[key] = changes[path]
        try:
            return Policy._from_mapping(found, self.name, self.origin)
        except InputError as error:
            raise error.in_file(one_line(self.origin or self.name)) from None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as the YAML file would hold it."""
        words = {key: getattr(self, key) for key in ("summary", "source") if getattr(self, key)}
        return words | {concern: _written(getattr(self, concern)) for concern in CONCERNS}

    def to_yaml(self) -> str:
        """The policy as a file that ``parse`` reads back to an equal policy."""
        # PyYAML writes some line breaks as they are, and then reads them as spaces: escape those.
        plain = (self.summary + self.source).isprintable()
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # four times as fast, and writes the same
        text: str = yaml.dump(self.to_dict(), Dumper=dumper, sort_keys=False, allow_unicode=plain, width=100)
        return text

    def parameters(self) -> Iterator[tuple[str, Declared, Any]]:
        """Every parameter: its key path, its declaration, its value here."""
        for concern in CONCERNS:
            strategy = getattr(self, concern)
            if strategy is not None:
                for one in declared(strategy.__class__):
                    yield f"{concern}.{one.name}", one, getattr(strategy, one.name)

    @classmethod
    def names(cls) -> list[str]:
        """Of the ready-made policies."""
        return list(ready_made())

    @classmethod
    def choices(cls) -> dict[str, dict[str, dict[str, Any]]]:
        """What a policy can be made of, as plain data: for each concern its strategies by name, for each
        what it does in a line, and its parameters by name: kind, default, bounds, unit and help."""
        return {
            concern: {
                name: {
                    "summary": _in_a_line(strategy.__doc__ or ""),
                    "parameters": {
                        one.name: {"kind": one.kind, **one.described(one.default)}
                        for one in declared(strategy)
                    },
                }
                for name, strategy in strategies(concern).items()
            }
            for concern in CONCERNS
        }

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Plan | None, Any]:
        """The one decision both bodies ask for: a plan, or None if nothing is to be done.

        ``memory`` is what the last call answered, None at first.
        """
        if self._only_queues and not snapshot.requests and not snapshot.lacking:
            if memory.__class__ is Remembered:
                memory = memory.queue
            first = snapshot.waiting.first
            if memory is None and first is None:  # nearly every other time, on a machine with room
                return None, None
            if self._only_first and first is not None and first.nodes > snapshot.idle:
                return None, None  # nearly every other time, on a full one
            starts, memory = self.queue.decide(snapshot, memory)
            if not starts:
                return None, memory
            return Plan(snapshot.revision, snapshot.now, tuple(starts)), memory
        if self._only_in_need and not snapshot.idle and snapshot.waiting.first is None:
            is_asked = snapshot.requests or snapshot.lacking or snapshot.failed
            if not is_asked and (memory is None or (memory.__class__ is Remembered and memory.queue is None)):
                return None, None  # nearly every other time, on a machine whose jobs grow into all of it
        return self._decide_all(snapshot, memory)

    def settle(
        self,
        snapshot: Snapshot,
        memory: Any,
        carry_out: Callable[[Plan], None],
        record: Callable[[Recorded], None] | None = None,
    ) -> Any:
        """What every body does at an instant: ask, carry out, and ask again until nothing is left to do.

        Answers what to remember. Queue strategies alone have said everything the first time.
        ``record`` is given each decision, frozen, before it is carried out.
        """
        before = memory
        plan, memory = self.decide(snapshot, before)
        if plan is None:  # most often
            return memory
        for _ in range(_MOST_ROUNDS):
            if record is not None:
                record(Recorded(plan.id, self, snapshot.freeze(), before, plan))
            carry_out(plan)
            if self._only_queues and not plan.resizes:
                return memory
            before = memory
            plan, memory = self.decide(snapshot, before)
            if plan is None:
                return memory
        raise RuntimeError(f"policy {self.name} does not settle at {snapshot.now:g} s")

    def ask_again(self, snapshot: Snapshot, memory: Any) -> float:
        """When it is to be asked again though nothing has happened; inf: not before something does. To be
        asked when there is nothing left to do, with what is remembered of that."""
        soonest = inf
        for strategy in self._timers:
            known = getattr(memory, strategy.concern) if isinstance(memory, Remembered) else memory
            soonest = min(soonest, strategy.ask_again(snapshot, known))
        return soonest

    def preview(self, snapshot: Snapshot, memory: Any) -> list[Plan]:
        """The plans that ``settle`` would have carried out now. Nothing is changed."""
        indices = snapshot.thaw()
        plans: list[Plan] = []

        def carry_out(plan: Plan) -> None:
            plans.append(plan)
            for deed in plan.in_order(lambda job: len(indices.running[job].nodes)):
                if isinstance(deed, Start):
                    indices.start(deed.job, deed.nodes)
                elif isinstance(deed, Resize):
                    indices.begin_resize(deed.job, deed.nodes)
                    indices.finish_resize(deed.job)
                elif isinstance(deed, Drop):
                    indices.withdraw(deed.job)
                elif deed.when != "now":
                    indices.stops(deed.job, deed.whom)
                else:
                    # ahead of all, and of no other's place: two jobs must not have the same
                    indices.requeue(deed.job, -indices.running[deed.job].order, INTERRUPTED)
            indices.pull_levers(plan)
            indices.settle_loans(plan)

        self.settle(Snapshot(indices, snapshot.corridor), memory, carry_out)
        return plans

    @property
    def rules(self) -> dict[str, str]:
        """Which strategy is behind each kind of decision, for explanations."""
        names = {concern: getattr(getattr(self, concern), "name", "none") for concern in CONCERNS}
        by = {concern: f"{concern}: {name}" for concern, name in names.items()}
        decided = {
            "start": by["queue"],
            "drop": by["queue"],
            "resize": by["malleability"],
            "interrupt": by["failure"],
        }
        failed = by["failure"] if self.failure is not None else "a job lost nodes"
        return by | decided | {"request": "a job asked for another size", "failed": failed}

    def _decide_all(self, snapshot: Snapshot, memory: Any) -> tuple[Plan | None, Any]:
        before = memory if isinstance(memory, Remembered) else Remembered(memory, None, None, None)
        if snapshot.lacking or snapshot.failed:
            # before anybody starts on the nodes that a failed job has left
            helped, before = self._help(snapshot, before)
            if helped is not None:
                return helped, before
        queue, malleability, failure, power = before
        if self._gives_up and (drops := self.queue.drops(snapshot)):
            return Plan(snapshot.revision, snapshot.now, drops=tuple(drops)), before
        if self.lending is not None and snapshot.borrowers:
            loans = self.lending.first(snapshot)
            if any(loans):
                return _of_loans(snapshot, loans), before
        starts, queue = self.queue.decide(snapshot, queue)
        resizes, malleability = self._resizes(snapshot, starts, before.malleability)
        changed: dict[str, Any] = {}
        if self.power is not None and snapshot.power is not None:
            # others' strategies may be older than that
            known: tuple[dict[Any, Any], ...] = ({},) if getattr(self.power, "notes_known", False) else ()
            powered, memory = self.power.decide(snapshot, starts, resizes, power, *known)
            if len(powered.starts) < len(starts):
                # those who may not start are in nobody's way: what would be done without their starts?
                resizes, malleability = self._resizes(snapshot, powered.starts, before.malleability)
                powered, memory = self.power.decide(snapshot, starts, resizes, power, *known)
            power = memory
            wishes = {*starts, *resizes}
            if [*powered.starts] != [*starts]:  # what does not start now is to be thought of again
                queue = before.queue
            if [*powered.resizes] != resizes:
                malleability = before.malleability
            changed = powered._asdict()
            starts, resizes = changed.pop("starts"), changed.pop("resizes")
            changed["for_power"] = frozenset(one.job for one in (*starts, *resizes) if one not in wishes)
        plan = None
        if starts or resizes or changed:
            plan = Plan(snapshot.revision, snapshot.now, tuple(starts), tuple(resizes), **changed) or None
        if plan is None and self.lending is not None and snapshot.borrowers:
            loans = self.lending.last(snapshot)
            if any(loans):
                plan = _of_loans(snapshot, loans)
        return plan, Remembered(queue, malleability, failure, power)

    def _help(self, snapshot: Snapshot, before: Remembered) -> tuple[Plan | None, Remembered]:
        """What is done for jobs that lost nodes, if anything."""
        resizes: Sequence[Resize] = replacements(snapshot)
        if resizes and self.power is not None and snapshot.power is not None:
            powered, _ = self.power.decide(snapshot, (), resizes, before.power)
            resizes = [resize for resize in powered.resizes if resize in resizes]
        interrupts: list[Interrupt] = []
        if not resizes and self.failure is not None:
            found, failure = self.failure.decide(snapshot, outlook_after(snapshot, ()), before.failure)
            before = before._replace(failure=failure)
            resizes = [deed for deed in found if isinstance(deed, Resize)]
            interrupts = [deed for deed in found if isinstance(deed, Interrupt)]
        plan = Plan(
            snapshot.revision, snapshot.now, resizes=tuple(resizes), interrupts=tuple(interrupts),
            for_failed=True,
        )  # fmt: skip
        return plan or None, before

    def _resizes(self, snapshot: Snapshot, starts: Starts, memory: Any) -> tuple[list[Resize], Any]:
        """The resizes that jobs ask for, and those of the malleability strategy, beside these starts."""
        outlook = outlook_after(snapshot, starts)
        resizes = answers(snapshot, outlook.idle) if snapshot.requests else []
        if self.malleability is None:
            return resizes, memory
        answered: Collection[str] = ()
        if resizes:
            answered = {resize.job for resize in resizes}
            gained = sum(max(0, r.nodes - len(snapshot.running[r.job].nodes)) for r in resizes)
            outlook = Outlook(outlook.head, outlook.idle - gained)
        if snapshot.resting and not starts:
            given = [one for one in given_up(snapshot, outlook.idle) if one.job not in answered]
            if given:
                return resizes + given, memory  # who else is to give is thought of when these have
        more, memory = self.malleability.decide(snapshot, outlook, memory)
        resizes += [resize for resize in more if resize.job not in answered] if answered else more
        return resizes, memory


def _of_loans(snapshot: Snapshot, loans: Loans) -> Plan:
    lend, take_back, resizes = loans
    return Plan(
        snapshot.revision,
        snapshot.now,
        resizes=tuple(resizes),
        for_loans=frozenset(one.job for one in resizes),
        lend=lend,
        take_back=take_back,
    )


def _in_a_line(text: str) -> str:
    """What a docstring says first, without where it comes from."""
    first = " ".join(text.strip().partition("\n\n")[0].split()).replace("``", "")
    return _ITS_END.split(first)[0]


def parameters_of(concern: str) -> set[str]:
    """Names of the parameters that strategies of a concern have."""
    return {one.name for strategy in strategies(concern).values() for one in declared(strategy)}


def ready_made() -> dict[str, Path]:
    """The policy files that come with the package, by name."""
    return dict(_shipped())


@cache
def _shipped() -> Mapping[str, Path]:
    here = Path(__file__).parent
    # A wheel carries them inside the package; in an editable install they lie beside it.
    for folder in (here / "policies", here.parent / "policies"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    raise FileNotFoundError("the policies folder is missing from this installation")


@cache
def _ready(name: str) -> Policy:
    """Read once: a study, or a service that is asked often, loads the same few again and again."""
    return Policy._read(_shipped()[name])


def _find(name_or_path: str) -> Path:
    path = Path(name_or_path)
    looks_like_path = path.suffix in (".yaml", ".yml") or len(path.parts) > 1
    with suppress(OSError, ValueError):
        if path.is_file() or (looks_like_path and path.exists()):
            return path
    if looks_like_path:
        raise InputError("", "no such file", file=one_line(name_or_path))
    raise InputError(
        "policy", f"no policy is named {shown(name_or_path)}{nearest(name_or_path, _shipped())}",
        ", ".join(_shipped()) + ", or a path to a .yaml file",
    )  # fmt: skip


def _strategy(concern: str, found: Any) -> Any:
    optional = concern not in ("queue", "size")
    if found is None and concern != "queue":
        return None if optional else Demand()
    fine = isinstance(found, dict) and "strategy" in found
    insist(fine, concern, found, f"{concern}: {{strategy: NAME, ...}}")
    name = found["strategy"]
    known = strategies(concern)
    if optional and name == "none":
        check_keys(found, ("strategy",), concern)
        return None
    if not isinstance(name, str) or name not in known:
        names = [*known, *(["none"] if optional else [])]
        unknown = f"found {shown(name)}{nearest(name, names)}"
        raise InputError(f"{concern}.strategy", unknown, ", ".join(names))
    cls: Any = known[name]
    parameters = declared(cls)
    check_keys(found, ("strategy", *(one.name for one in parameters)), concern)
    values = {}
    for one in parameters:
        if one.name in found:
            with within(f"{concern}.{one.name}"):
                values[one.name] = one.read(found[one.name])
    try:
        return cls(**values)
    except InputError as error:  # each is fine, but not together
        raise InputError(f"{concern}.{error.where}", error.found, error.allowed) from None


def _written(strategy: Any) -> dict[str, Any]:
    if strategy is None:
        return {"strategy": "none"}
    values = {one.name: one.write(getattr(strategy, one.name)) for one in declared(strategy.__class__)}
    return {"strategy": strategy.name} | {k: v for k, v in values.items() if v is not None}
