"""Breaks the brain and the machines in small ways, one at a time, and says which ways no test notices.

    python tests/mutations/run.py [--count 200] [--seed 0] [--only dask_hpc/strategies] [--list]

A mutation is made by rule: another comparison, another sign, the other of min and max, a condition turned
round, a number that is one more, a call that is left out, a return that gives nothing. Each runs in a process
forked from one that has imported what is not ours, with the tests of its room, which stop at the first that
fails. Exit code 1 if fewer are noticed than should be.
"""

import argparse
import ast
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = Path(__file__).with_name("survivors.txt")
#: of all mutations that are no equivalents
WANTED = 0.85
#: seconds that the tests of a room may take without a mutation; and how many times as long with one: what
#: hangs is noticed
PATIENCE, SLOWER = 300.0, 4


def _of(room: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{room}/test_{name}.py" for name in names)


#: what is broken, and the tests that should notice; the first line that fits a file counts
ROOMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("dask_hpc/model/", ("tests/model", *_of("strategies", "malleability"))),
    ("dask_hpc/policy.py", ("tests/test_policy.py",)),
    (
        "dask_hpc/strategies/queue/",
        _of("strategies", "queue_strategies", "easy_backfill", "conservative_backfill", "fcfs", "order"),
    ),
    (
        "dask_hpc/strategies/malleability/",
        _of("strategies", "malleability", "malleable_easy", "elastic", "scaling_baselines", "give_way"),
    ),
    (
        "dask_hpc/planning/moves/",
        _of("planning", "move_plans", "redistribution", "spread_plans", "assignment"),
    ),
    ("dask_hpc/planning/walltime.py", _of("planning", "walltime_rule")),
    ("dask_hpc/cluster/scheduler/gate.py", _of("cluster", "gate")),
    ("dask_hpc/cluster/scheduler/waves.py", _of("cluster", "gate")),
    ("dask_hpc/cluster/scheduler/moves.py", _of("cluster", "moves_in_any_order")),
    ("dask_hpc/checkpoint/version.py", _of("checkpoint", "series_states")),
    ("dask_hpc/checkpoint/scheduler/placement.py", _of("checkpoint", "copy_placement")),
    ("dask_hpc/checkpoint/scheduler/schedule.py", _of("checkpoint", "schedule", "due")),
    (
        "dask_hpc/checkpoint/store/",
        _of("checkpoint", "files", "cells", "items", "manifest", "versions", "seal", "value"),
    ),
    ("dask_hpc/simulator/engine.py", _of("simulator", "malleable_jobs", "engine")),
)
#: these take long, or need a cluster, and others notice what they do
LEFT_OUT = (
    "tests/model/test_nodes.py",
    "tests/model/test_on_resize.py",
    "tests/model/test_corridor.py::test_any_text_is_a_corridor_or_refused",
    "tests/simulator/test_engine.py::test_memory_grows_with_live_jobs_not_with_finished_ones",
    "tests/checkpoint/test_files.py::test_killed_at_every_step",
    "tests/checkpoint/test_versions.py::test_killed_at_every_step",
    "tests/planning/test_assignment.py::test_a_scheduler_does_not_wait_for_scipy",
    "tests/test_policy.py::test_monsters_are_refused_quickly",
)
PLUGINS = ("pytest_timeout", "_hypothesis_pytestplugin")
HOW = (
    *("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=few", "-m", "not slow and not timed"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
    *(word for plugin in PLUGINS for word in ("-p", plugin)),
    *(f"--deselect={test}" for test in LEFT_OUT),
)

_OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
_PAIRS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutation:
    """One small break of one file."""

    path: str
    line: int
    what: str
    source: str

    @property
    def name(self) -> str:
        """The same for the same code, wherever it stands in its file."""
        return f"{self.path}: {self.what}"


def mutations(path: Path) -> Iterator[Mutation]:
    """All small breaks of a file, in order."""
    text = path.read_text()
    tree = ast.parse(text)
    lines = text.splitlines()
    for node in list(_code(tree)):
        for undo, what in _broken(node):
            line = getattr(node, "lineno", 0)
            said = f"{what} in: {lines[line - 1].strip()}" if line else what
            yield Mutation(str(path.relative_to(ROOT)), line, said, ast.unparse(tree))
            undo()


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """What decides: not what is shown to people, nor the bounds and defaults that a strategy declares."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr | ast.Raise) or _is_declared(child):
            continue
        yield from _code(child)


def _is_declared(node: ast.AST) -> bool:
    annotation = getattr(node, "annotation", None)
    return (
        isinstance(node, ast.AnnAssign) and annotation is not None and "Parameter(" in ast.unparse(annotation)
    )


def _broken(node: ast.AST) -> Iterator[tuple[object, str]]:
    """Breaks a node in each way there is; what undoes it, and what was done."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OTHER:
        yield _swap(node.ops, 0, _OTHER[type(node.ops[0])]()), "another comparison"
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _OTHER and not _is_text(node):
        was = type(node.op).__name__
        yield _swap(vars(node), "op", _OTHER[type(node.op)]()), f"{was} is another"
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield _swap(vars(node), "test", ast.UnaryOp(ast.Not(), node.test)), "the condition turned round"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _PAIRS:
        was = node.func.id
        yield _swap(vars(node.func), "id", _PAIRS[was]), f"{_PAIRS[was]} for {was}"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        number = node.value
        yield _swap(vars(node), "value", number + 1), f"{number + 1} for {number}"
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield _swap(vars(node), "value", ast.Constant(None)), "returns nothing"
    for statements in (vars(node).get("body"), vars(node).get("orelse")):
        for number, one in enumerate(statements if isinstance(statements, list) else ()):
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
                yield _swap(statements, number, ast.Pass()), f"left out: {ast.unparse(one)[:60]}"


def _is_text(node: ast.AST) -> bool:
    """Whether texts or lists are joined: that fails at once, and says nothing about a test."""
    sides = (getattr(node, "left", None), getattr(node, "right", None))
    return any(isinstance(side, ast.JoinedStr | ast.List) for side in sides) or any(
        isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides
    )


def _swap(where: object, key: object, new: object) -> object:
    old = where[key]  # type: ignore[index]
    where[key] = new  # type: ignore[index]

    def undo() -> None:
        where[key] = old  # type: ignore[index]

    return undo


class _Loader(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports one module from a text."""

    def __init__(self, mutation: Mutation) -> None:
        self._module = mutation.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._source = mutation.source
        self._is_package = mutation.path.endswith("__init__.py")

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != self._module:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=self._is_package)

    def get_source(self, fullname: str) -> str:
        return self._source


def is_noticed(mutation: Mutation, tests: tuple[str, ...], patience: float = PATIENCE) -> bool:
    """Whether any of the tests fails or hangs, in a process of its own."""
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        sys.meta_path.insert(0, _Loader(mutation))
        import pytest

        code = 3
        try:
            code = pytest.main([*HOW, *tests])
        finally:
            os._exit(int(code))
    until = time.monotonic() + patience
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _room(path: str) -> str:
    return next(start for start, _ in ROOMS if path.startswith(start))


@cache
def tests_of(path: str) -> tuple[str, ...]:
    """Those of the first room that a file is in, the test files that speak most of it first."""
    stem = Path(path).stem
    files = [
        file
        for test in dict(ROOMS)[_room(path)]
        for file in ([test] if test.endswith(".py") else sorted(map(str, Path(test).rglob("test_*.py"))))
    ]
    return tuple(sorted(files, key=lambda file: (stem not in file, -Path(file).read_text().count(stem))))


def main() -> int:
    """Draws mutations, tries each, and prints who survived."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="files whose path starts so")
    parser.add_argument("--list", action="store_true", help="print the mutations and try none")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    os.chdir(ROOT)
    files = [
        path
        for start, _ in ROOMS
        for path in sorted((ROOT / start).rglob("*.py") if (ROOT / start).is_dir() else [ROOT / start])
        if str(path.relative_to(ROOT)).startswith(given.only)
    ]
    found = [mutation for path in files for mutation in mutations(path)]
    drawn = random.Random(given.seed).sample(found, min(given.count, len(found)))
    if given.list:
        print(*(f"{one.path}:{one.line}: {one.what}" for one in drawn), sep="\n")
        return 0
    equivalent = {line for line in SURVIVORS.read_text().splitlines() if line.startswith("dask_hpc/")}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    warnings.simplefilter("ignore")
    for name in ("dask.array", "distributed.utils_test", "pandas", "scipy.optimize", "xarray", *PLUGINS):
        importlib.import_module(name)  # for everybody who is forked
    patience: dict[str, float] = {}
    for room, path in {_room(one.path): one.path for one in drawn}.items():
        began = time.monotonic()
        if is_noticed(Mutation(path, 0, "nothing", Path(ROOT / path).read_text()), tests_of(path)):
            print(f"these fail without any mutation, or take over {PATIENCE} s: {' '.join(tests_of(path))}")
            return 2
        patience[room] = SLOWER * (time.monotonic() - began) + SLOWER
    began = time.monotonic()
    survivors = []

    def tried(one: Mutation) -> bool:
        return one.name in equivalent or is_noticed(one, tests_of(one.path), patience[_room(one.path)])

    with ThreadPoolExecutor(given.processes) as pool:
        for one, noticed in zip(drawn, pool.map(tried, drawn), strict=True):
            if not noticed:
                survivors.append(one)
                print(f"not noticed: {one.path}:{one.line}: {one.what}", flush=True)
    known = len(drawn) - len(survivors)
    share = known / max(len(drawn), 1)
    took = time.monotonic() - began
    print(f"{known} of {len(drawn)} mutations were noticed or change nothing: {share:.0%}, {took:.0f} s")
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
