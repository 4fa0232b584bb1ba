"""Policy files: exact round trips, and no input that gives anything but a policy or a one-line complaint."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, ClassVar, Literal

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import dask_hpc.policy
from dask_hpc import InputError, Policy
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.policy import Remembered, parameters_of, ready_made
from dask_hpc.strategies import CONCERNS, strategies
from dask_hpc.strategies.failure.node_stealing import NodeStealing
from dask_hpc.strategies.malleability.elastic import Elastic
from dask_hpc.strategies.queue.fcfs import Fcfs


@dataclass(frozen=True, slots=True)
class Busy:
    """A strategy with a parameter of every type."""

    concern: ClassVar[str] = "malleability"
    name: ClassVar[str] = "busy"

    guard: Annotated[float, Parameter("a pause", "s", low=0)] = 60.0
    chunk: Annotated[float, Parameter("a size", "B", low=0)] = 2.0**20
    cap: Annotated[float, Parameter("a power", "W")] = 500.0
    threshold: Annotated[float, Parameter("a share", low=-1e300, high=math.inf)] = 0.5
    depth: Annotated[int, Parameter("a count", "jobs", low=-(10**18), high=10**18)] = 7
    priority: Annotated[Literal["waiting", "running", "none", "on"], Parameter("who is first")] = "waiting"
    eager: Annotated[bool, Parameter("hurry")] = False


@pytest.fixture(autouse=True)
def _busy(monkeypatch):
    def known(concern):
        return {**strategies(concern), "busy": Busy} if concern == Busy.concern else strategies(concern)

    monkeypatch.setattr(dask_hpc.policy, "strategies", known)


#: hypothesis minds function-scoped fixtures; ours only adds a strategy
fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
VALID = [path.read_bytes() for path in ready_made().values()]
VALID.append(
    b"queue: {strategy: easy-backfill, depth: 5}\nmalleability:\n  strategy: busy\n  guard: 30 s\n"
    b"  chunk: 4 GiB\n  cap: 2.5 kW\n  threshold: .5\n  eager: yes\npower: {strategy: none}\nsummary: x\n"
)


def policy_or_complaint(data):
    try:
        policy = Policy.parse(data, origin="some file.yaml")
    except InputError as error:
        message = str(error)
        assert message.isprintable()
        assert message.startswith("some file.yaml: ")
        assert len(message) < 1000
        return error
    assert isinstance(policy, Policy)
    assert Policy.parse(policy.to_yaml()) == policy
    return policy


def complaint(text):
    error = policy_or_complaint(text)
    assert isinstance(error, InputError), error
    return error


# -- good files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ready_made()))
def test_ready_made(name):
    policy = Policy.load(name)
    assert policy.name == name
    assert policy.summary
    assert policy.source
    assert Path(policy.origin).read_text().startswith("# "), "its head says what it is for"
    assert Policy.parse(policy.to_yaml(), name=name) == policy
    assert policy.with_() == policy
    assert Policy.load(policy) is policy


def test_load_by_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("queue: {strategy: easy-backfill, depth: 3}")
    Path("fcfs").write_text("queue: {strategy: easy-backfill}")
    assert Policy.load("mine.yaml").queue.depth == 3
    assert Policy.load("fcfs").queue.name == "fcfs", "a name wins"
    assert Policy.load(Path("fcfs")).queue.name == "easy-backfill", "a Path is a file"


def test_found_in_a_wheel_too(tmp_path, monkeypatch):
    """A wheel has the files inside the package, an editable install beside it."""
    for folder in ("pkg/policies", "policies"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / f"{folder[:3]}.yaml").write_text("queue: {strategy: fcfs}")
    monkeypatch.setattr(dask_hpc.policy, "__file__", str(tmp_path / "pkg" / "policy.py"))
    # where they lie does not change while a program runs, so it is looked up once
    monkeypatch.setattr(dask_hpc.policy, "_shipped", dask_hpc.policy._shipped.__wrapped__)
    assert list(ready_made()) == ["pkg"]
    (tmp_path / "pkg/policies/pkg.yaml").unlink()
    (tmp_path / "pkg/policies").rmdir()
    assert list(ready_made()) == ["pol"]
    (tmp_path / "policies/pol.yaml").unlink()
    (tmp_path / "policies").rmdir()
    with pytest.raises(FileNotFoundError):
        ready_made()


parameters = st.fixed_dictionaries(
    {},
    optional={
        "guard": st.floats(0, math.inf),
        "chunk": st.floats(0, 1e18),
        "cap": st.floats(allow_nan=False),
        "threshold": st.floats(-1e300, math.inf),
        "depth": st.integers(-(10**18), 10**18),
        "priority": st.sampled_from(["waiting", "running", "none", "on"]),
        "eager": st.booleans(),
    },
)


@given(parameters, st.integers(0, 1_000_000), st.text(), st.text())
@fuzz
def test_round_trip_of_any_values(values, depth, summary, source):
    policy = Policy(
        "p", strategies("queue")["easy-backfill"](depth), Busy(**values), summary=summary, source=source
    )
    assert Policy.parse(policy.to_yaml(), name="p") == policy
    changes = {f"malleability.{key}": value for key, value in values.items()}
    plain = Policy.parse("queue: {strategy: fcfs}")
    assert plain.with_(**{"malleability.strategy": "busy"}, **changes).malleability == Busy(**values)


def test_parameters_name_their_paths():
    policy = Policy.parse(VALID[-1])
    found = {path: value for path, _, value in policy.parameters()}
    assert found["queue.depth"] == 5
    assert found["malleability.chunk"] == 4 * 2**30
    assert found["malleability.cap"] == 2500
    assert found["malleability.eager"] is True
    assert next(iter(found)) == "queue.depth"


# -- with_ ---------------------------------------------------------------------------------------


def test_with():
    policy = Policy.load("easy-backfill")
    assert policy.with_(**{"queue.depth": 5}).queue.depth == 5
    assert policy.queue.depth != 5
    changed = policy.with_(**{"malleability.guard": "2 min", "malleability.strategy": "busy"})
    assert changed.malleability == Busy(guard=120.0)
    assert changed.with_(**{"malleability.strategy": "none"}).malleability is None
    assert changed.name == policy.name


@pytest.mark.parametrize(
    "change, parts",
    [
        ({"queue.depht": 5}, ["queue.depht", "nearest: depth", "strategy, depth"]),
        ({"queue.depth": -1}, ["queue.depth", "found -1", "0 to 1000000"]),
        ({"queue.depth": "lots"}, ["queue.depth", "'lots'", "0 to 1000000"]),
        ({"queu.depth": 5}, ["queu.depth", "nearest: queue.depth", "queue.strategy"]),
        ({"depth": 5}, ["depth", "nearest: queue.depth"]),
        ({"queue": "fcfs"}, ["queue", "unknown key", "queue.strategy"]),
        ({"queue.strategy": "easy"}, ["queue.strategy", "found 'easy'", "easy-backfill"]),
        ({"queue.strategy": "none"}, ["queue.strategy", "found 'none'", "fcfs"]),
        ({"power.limit": 5}, ["power.limit", "unknown key", "allowed: strategy"]),
        ({"malleability.strategy": None}, ["malleability.strategy", "found None", "busy"]),
    ],
)
def test_with_complains(change, parts):
    with pytest.raises(InputError) as caught:
        Policy.load("easy-backfill").with_(**change)
    for part in parts:
        assert part in str(caught.value)


# -- bad files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, key, parts",
    [
        ("", "", ["found None", "a mapping with summary"]),
        ("[]", "", ["found []"]),
        ("summary: x", "queue", ["found nothing"]),
        ("queue: fcfs", "queue", ["found 'fcfs'", "strategy: NAME"]),
        ("queue: {strategy: fcsf}", "queue.strategy", ["nearest: fcfs", "easy-backfill"]),
        ("queue: {strategy: [fcfs]}", "queue.strategy", ["found ['fcfs']"]),
        ("queue: {strategy: fcfs, depth: 1}", "queue.depth", ["unknown key", "allowed: strategy"]),
        ("quue: {strategy: fcfs}", "quue", ["unknown key (nearest: queue)"]),
        ("queue: {strategy: fcfs}\nsummary: 2020-01-01", "summary", ["datetime.date", "text"]),
        ("queue: {strategy: fcfs}\n1: 2", "1", ["unknown key"]),
        ("queue: {strategy: fcfs}\n2020-01-01: 2", "datetime.date(2020, 1, 1)", ["unknown key"]),
        ("queue: {strategy: fcfs}\n? [a]\n: 2", "line 2", ["unhashable"]),
        ("queue: {strategy: fcfs}\nqueue: {strategy: fcfs}", "line 2", ["'queue' is said twice"]),
        ("queue: {strategy: easy-backfill, depth: true}", "queue.depth", ["found True", "whole, 0 to"]),
        ("queue: {strategy: easy-backfill, depth: 1.0}", "queue.depth", ["found 1.0", "whole"]),
        ("queue: {strategy: easy-backfill, depth: .nan}", "queue.depth", ["found nan"]),
        ("queue: {strategy: easy-backfill, depth: .inf}", "queue.depth", ["found inf"]),
        ("queue: {strategy: easy-backfill, depth: 2020-13-45}", "", ["not YAML", "month"]),
        ("queue: {strategy: easy-backfill, depth: !!int ''}", "", ["not YAML"]),
        ("queue: {strategy: easy-backfill, depth: !!float '-'}", "", ["not YAML"]),
        ("queue: {strategy: easy-backfill, depth: !!bool maybe}", "", ["not YAML"]),
        ("queue: !!map [a, b]", "line 1", ["not YAML"]),
        ("queue: !!python/object/apply:os.system ['true']", "line 1", ["could not determine a constructor"]),
        ("queue: !!python/name:os.system ''", "line 1", ["could not determine a constructor"]),
        ("queue: &a {strategy: fcfs}\npower: *a", "line 2", ["the alias '*a'", "write it out"]),
        ("queue: &a [*a]", "line 1", ["the alias"]),
        ("a: b: c", "line 1", ["not YAML"]),
        ("queue: {strategy: fcfs}\n--- x", "line 2", ["not YAML"]),
        ("queue: {strategy: fcfs}\n\x1b[31m", "", ["not YAML"]),
        ('"\\e[31m\\nqueue": 1', r"'\x1b[31m\nqueue'", ["unknown key"]),
        ("'': 1", "''", ["unknown key"]),
        (b"queue: \xff", "", ["byte 7 is not UTF-8"]),
        ("queue: {strategy: fcfs}".encode("utf-16"), "", ["not UTF-8"]),
        (b"queue: {strategy: fcfs}#" + b"x" * 100_000, "", ["more than 100,000 bytes"]),
        ("queue: {strategy: fcfs}\nmalleability: {strategy: busy, guard: 5 kW}", "malleability.guard", []),
        ("malleability: {strategy: busy, eager: 1}\nqueue: {strategy: fcfs}", "malleability.eager", ["true"]),
        ("malleability: {guard: 5}\nqueue: {strategy: fcfs}", "malleability", ["strategy: NAME"]),
    ],
)  # fmt: skip
def test_bad_files(text, key, parts):
    error = complaint(text)
    assert error.file == "some file.yaml"
    assert error.where == key
    for part in parts:
        assert part in str(error)


HUGE = "9" * 6000
MONSTERS = {
    "deep lists": "[" * 50_000,
    "deep mappings": "{a: " * 20_000,
    "deep blocks": "- " * 40_000,
    "deep and closed": "queue: " + "[" * 2000 + "]" * 2000,
    "an endless whole number": f"queue: {{strategy: easy-backfill, depth: {HUGE}}}",
    "an endless hexadecimal": f"queue: {{strategy: easy-backfill, depth: 0x{HUGE}}}",
    "an endless hexadecimal strategy": f"queue: {{strategy: 0x{HUGE}}}",
    "an endless hexadecimal key": f"0x{HUGE}: 1",
    "a large whole number": f"queue: {{strategy: easy-backfill, depth: {'9' * 400}}}",
    "an endless duration": f"queue: {{strategy: fcfs}}\npower: {{strategy: '{'9' * 90_000}'}}",
    "base sixty": "queue: {strategy: easy-backfill, depth: 1" + ":1" * 20_000 + "}",
    "base sixty float": "queue: {strategy: easy-backfill, depth: 1" + ":1" * 20_000 + ".0}",
    "a long word": "queue: {strategy: " + "x" * 90_000 + "}",
    "a long key": "x" * 1000 + ": 1",
    "alias bomb": "a: &a [x]\n"
    + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(20))
    + "summary: *u\n",
    "merge bomb": "a: &a {x: 1}\n"
    + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} {{<<: [{', '.join(['*' + chr(97 + i)] * 9)}]}}\n" for i in range(20)
    ),
    "many keys": "\n".join(f"k{i}: 1" for i in range(9000)),
    "many anchors": "\n".join(f"k{i}: &a{i} 1" for i in range(5000)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", MONSTERS.values(), ids=MONSTERS)
def test_monsters_are_refused_quickly(text):
    started = perf_counter()
    complaint(text)
    assert perf_counter() - started < 10, "seconds; a bomb would take for ever"


def test_merge_keys_are_only_another_way_to_write_a_mapping():
    assert Policy.parse("queue: {<<: {strategy: fcfs}}").queue.name == "fcfs"
    assert complaint("<<: {quue: 1}\nqueue: {strategy: fcfs}").where == "quue"
    complaint("<<: [1]\nqueue: {strategy: fcfs}")
    complaint("queue: {<<: 5}")


@pytest.mark.parametrize(
    "name, parts",
    [
        ("fcsf", ["no policy is named 'fcsf' (nearest: fcfs)", "easy-backfill"]),
        ("", ["no policy is named ''"]),
        ("nowhere.yaml", ["nowhere.yaml: no such file"]),
        ("no/where", ["no/where: no such file"]),
        ("\0", ["no policy is named"]),
        ("a\0/b.yaml", ["no such file"]),
        ("x" * 5000, ["no policy is named"]),
        ("a/" + "x" * 5000, ["no such file"]),
        ("/", ["no policy is named"]),
        ("/tmp/", ["cannot be read: Is a directory"]),
        ("new\nline\x1b.yaml", ["no such file"]),
        (Path("nowhere"), ["nowhere: cannot be read: No such file"]),
        (Path("a\0"), ["cannot be read"]),
        ("/dev/zero", ["more than 100,000 bytes"]),
    ],
)
def test_files_that_cannot_be_read(name, parts):
    with pytest.raises(InputError) as caught:
        Policy.load(name)
    assert str(caught.value).isprintable()
    for part in parts:
        assert part in str(caught.value)


def test_the_complaint_names_the_whole_path(tmp_path):
    path = tmp_path / ("long" * 30) / "p.yaml"
    path.parent.mkdir()
    path.write_text("queue: {strategy: easy-backfill, depth: -1}")
    with pytest.raises(InputError) as caught:
        Policy.load(str(path))
    assert str(caught.value) == f"{path}: queue.depth: found -1; allowed: 0 to 1000000"


# -- anything ------------------------------------------------------------------------------------


@given(st.text() | st.binary() | st.text(alphabet="{}[]:,-&*!?|>'\"%@`#<=~.019eExn \n\tqu"))
@fuzz
def test_random_text(data):
    policy_or_complaint(data)


words = st.sampled_from(
    [
        "queue",
        "strategy",
        "fcfs",
        "easy-backfill",
        "depth",
        "malleability",
        "busy",
        "guard",
        "cap",
        "eager",
        "power",
        "none",
        "summary",
        "source",
        "threshold",
        "priority",
        "waiting",
        "<<",
        "=",
        "30s",
        "1-02:00",
    ]
)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | words
    | st.binary(max_size=9) | st.dates() | st.datetimes()
)  # fmt: skip
structures = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(words | scalars, inner, max_size=5) | st.sets(scalars)
    ),
    max_leaves=25,
)


@given(structures)
@fuzz
def test_random_structures(data):
    policy_or_complaint(yaml.safe_dump(data, allow_unicode=True))


pieces = st.sampled_from(
    [*"{}[]:,-&*!?|>'\"%#<=~.0 \n\t", "*a", "&a ", "!!int ", "1e999", "<<: ", "\xff", "\\"]
)


@given(
    st.sampled_from(VALID), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 6), pieces), max_size=4)
)
@fuzz
def test_mutated_files(data, edits):
    for at, drop, piece in edits:
        at %= len(data)
        data = data[:at] + piece.encode("latin-1") + data[at + drop :]
    policy_or_complaint(data)


#: parameter values of the wrong kind at the right place, the likeliest mistake of all
@given(st.sampled_from(["guard", "chunk", "cap", "threshold", "depth", "priority", "eager"]), structures)
@fuzz
def test_any_value_for_a_parameter(key, value):
    found: dict[str, Any] = {"queue": {"strategy": "fcfs"}, "malleability": {"strategy": "busy", key: value}}
    got = policy_or_complaint(yaml.safe_dump(found))
    if isinstance(got, InputError):
        assume(got.where.startswith("malleability"))  # not YAML's own complaints
        assert got.where == f"malleability.{key}"
        assert got.allowed


def test_concerns_are_the_schema():
    with pytest.raises(InputError) as caught:
        Policy.parse("nonsense: 1")
    for concern in CONCERNS:
        assert concern in caught.value.allowed


def test_what_the_strategies_of_a_concern_may_be_given():
    assert "max_pending" in parameters_of("size") and "max_pending" not in parameters_of("queue")


@dataclass(frozen=True, slots=True)
class AskedQueue(Fcfs):
    """A strategy of somebody else's, made of ours, that says when it is asked."""

    def decide(self, snapshot, memory):
        raise LookupError("asked")


@dataclass(frozen=True, slots=True)
class OnlyFirst(AskedQueue):
    """The same, with a promise."""

    only_first: ClassVar[bool] = True


@pytest.mark.parametrize("queue", [AskedQueue(), OnlyFirst()])
def test_who_has_nothing_to_decide_is_not_asked(queue):
    indices = Indices(map(Node, "abc"))
    snapshot, policy = Snapshot(indices), Policy("mine", queue)
    assert policy.decide(snapshot, None) == (None, None)  # nobody waits
    with pytest.raises(LookupError):
        policy.decide(snapshot, "something")  # it may want to forget it
    indices.waiting.add(Job(id="large", nodes=4))
    indices.waiting.add(Job(id="small", nodes=1))
    if queue.only_first:
        assert policy.decide(snapshot, None) == (None, None)  # the first does not fit
    else:
        with pytest.raises(LookupError):
            policy.decide(snapshot, None)
    indices.add_node(Node("d"))
    with pytest.raises(LookupError):
        policy.decide(snapshot, None)


@dataclass(frozen=True, slots=True)
class AskedMalleability(Elastic):
    """One that says when it is asked."""

    def decide(self, snapshot, outlook, memory):
        raise LookupError("asked")


@dataclass(frozen=True, slots=True)
class AskedAlways(AskedMalleability):
    """The same without a promise."""

    only_in_need: ClassVar[bool] = False


def in_need_of(indices, what):
    """A full machine on which nobody waits, but for this."""
    indices.waiting.add(Job(id="runs", nodes=3, kind="evolving", min_nodes=1))
    indices.start("runs", 3)
    if what == "idle":
        indices.add_node(Node("d"))
    elif what == "waits":
        indices.waiting.add(Job(id="waits", nodes=1))
    elif what == "asks":
        indices.requests["runs"] = 2
    elif what == "lacks":
        indices.lacking["runs"] = 1
    elif what == "failed":
        indices.failed = ("runs",)


@pytest.mark.parametrize("what", ["idle", "waits", "asks", "lacks", "failed"])
def test_who_changes_sizes_only_in_need_is_asked_in_need(what):
    indices = Indices(map(Node, "abc"))
    in_need_of(indices, what)
    with pytest.raises(LookupError):
        Policy("mine", Fcfs(), AskedMalleability()).decide(Snapshot(indices), None)


def test_and_not_without():
    indices = Indices(map(Node, "abc"))
    in_need_of(indices, "nothing")
    snapshot, policy = Snapshot(indices), Policy("mine", Fcfs(), AskedMalleability())
    for memory in (None, Remembered(None, "of malleability", None, None)):
        assert policy.decide(snapshot, memory) == (None, None)
    others = [
        (policy, Remembered("of the queue", None, None, None)),  # which may want to forget it
        (Policy("mine", Fcfs(), AskedAlways()), None),
        (replace(policy, failure=NodeStealing()), None),
    ]
    for other, memory in others:
        with pytest.raises(LookupError):
            other.decide(snapshot, memory)


def test_who_looks_behind_the_first_is_asked():
    promised = {name: getattr(one(), "only_first", False) for name, one in strategies("queue").items()}
    assert {name for name, only in promised.items() if only} == {"fcfs", "sjf", "ljf", "area", "priority"}
    assert not Fcfs("first-fit").only_first and not Fcfs("best-fit").only_first
