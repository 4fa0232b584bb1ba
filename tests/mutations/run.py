"""Breaks the brain and the machines in small ways, one at a time, and says which ways no test notices.

    python tests/mutations/run.py [--one-in 28] [--only dask_hpc/strategies] [--fresh WORD] [--list]

A mutation is made by rule: another comparison, another sign, the other of min and max, a condition turned
round, a number that is one more, a call that is left out, a return that gives nothing. Of those of each file
one in 28 is drawn, by the hash of its function and its text: what is drawn stays the same wherever the code
stands. All tests are collected once, and run once to see which functions each of them calls; a mutation is
put into a process forked from that, where the tests that call its function run, the short ones first, until
one fails. Pure tests only: none with a cluster.

``--fresh WORD`` draws 200 of all that is decided in the rooms of strategies, planning, cluster, power and
checkpoint, others for another word, and tries tests with a cluster, too, as far as it is in this process and
they pass in a fork.

Exit code 1 if less than 85 % of those that change anything are noticed, or one that is not in
``survivors.txt`` is not. Takes about 200 seconds of one processor.
"""

import argparse
import ast
import builtins
import gc
import inspect
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from math import ceil
from pathlib import Path
from types import CodeType, FunctionType

import distributed.utils
import pytest
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = Path(__file__).with_name("survivors.txt")
#: of all that are not equivalent
WANTED = 0.85
#: so many are drawn at the least, unless ``--only`` says of what
LEAST = 200
#: a test may take so many times its seconds of the processor, and so many seconds more; what never ends is
#: noticed. Seconds on the clock after which that is so even if it does nothing
SLOWER, MORE, PATIENCE = 3, 5, 300
#: seconds of the processor after which only the test file of the same name goes on
ENOUGH = 4.0
#: of what happens to a state machine
EXAMPLES = 20
#: bytes that a process may have
MEMORY = 8 * 2**30

BROKEN = (
    "dask_hpc/model",
    "dask_hpc/policy.py",
    "dask_hpc/strategies/queue",
    "dask_hpc/strategies/malleability",
    "dask_hpc/planning/moves",
    "dask_hpc/planning/walltime.py",
    *(f"dask_hpc/cluster/scheduler/{name}.py" for name in ("fair_shares", "gate", "jobs", "moves", "waves")),
    "dask_hpc/checkpoint/version.py",
    *(
        f"dask_hpc/checkpoint/scheduler/{name}.py"
        for name in ("catalogue", "context", "placement", "schedule")
    ),
    "dask_hpc/checkpoint/store",
    *(f"dask_hpc/checkpoint/worker/{name}.py" for name in ("block", "kept")),
    "dask_hpc/simulator/engine.py",
)


#: with ``--fresh``
ROOMS = ("strategies", "planning", "cluster", "power", "checkpoint")


def _of(room: str, names: str) -> tuple[str, ...]:
    return tuple(f"tests/{room}/test_{name}.py" for name in names.split())


TESTS = (
    "tests/model",
    "tests/test_policy.py",
    *_of("strategies", "queue_strategies easy_backfill conservative_backfill fcfs order"),
    *_of("strategies", "malleability malleable_easy elastic node_worth precedence"),
    *_of("strategies", "scaling_baselines give_way demand"),
    "tests/strategies/power/test_power_loop.py",
    *_of(
        "planning",
        "move_plans redistribution spread_plans assignment walltime_rule whole_chunks worth neighbours",
    ),
    "tests/planning/asks",
    "tests/planning/reservation",
    *_of("cluster", "fair_shares gate moves_in_any_order performance ready"),
    *_of(
        "checkpoint",
        "series_states commit_levels catalogue checkpoint_diary copy_placement dealer schedule due",
    ),
    *_of(
        "checkpoint",
        "arrays files cells items manifest versions seal value block kept_copies resume scratch",
    ),
    *_of("simulator", "engine malleable_jobs"),
)
#: these start processes, or look at what this script is not about for long
LEFT_OUT = (
    "tests/simulator/test_engine.py::test_memory_grows_with_live_jobs_not_with_finished_ones",
    "tests/checkpoint/test_files.py::test_killed_at_every_step",
    "tests/checkpoint/test_versions.py::test_killed_at_every_step",
    "tests/planning/test_assignment.py::test_a_scheduler_does_not_wait_for_scipy",
    "tests/test_policy.py::test_monsters_are_refused_quickly",
)

HOW = (
    *("-q", "-p", "no:cacheprovider", "--hypothesis-profile=few", "-m", "not slow and not timed"),
    "--tb=native",  # Python 3.11 cannot always parse what it should show of a failure
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)

_OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
_PAIRS = {"min": "max", "max": "min", "any": "all", "all": "any"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
#: file and first line of a function that is in no other
Place = tuple[str, int]
_CALLED = "__called_by_a_test__"


@dataclass(frozen=True)
class Mutation:
    """One small break of one function: its code, and the name that lasts when the file around it changes."""

    place: Place
    name: str
    code: CodeType
    #: the whole function, which says that it was called
    marked: CodeType


def one_in(share: int, path: Path) -> set[str]:
    """The names of some of a file's small breaks."""
    names = sorted((text for text, *_ in _mutations(path)), key=lambda text: sha256(text.encode()).digest())
    return set(names[: ceil(len(names) / share)])


def fresh(word: str, paths: list[Path]) -> dict[Path, set[str]]:
    """The names of some small breaks of all these files, by file."""
    names = [(path, text) for path in paths for text, *_ in _mutations(path)]
    names.sort(key=lambda one: sha256(f"{word} {one[0].relative_to(ROOT)} {one[1]}".encode()).digest())
    chosen: dict[Path, set[str]] = {path: set() for path in paths}
    for path, text in names[:LEAST]:
        chosen[path].add(text)
    return chosen


def drawn_of(path: Path, chosen: set[str]) -> list[Mutation]:
    """Those small breaks of a file."""
    found = []
    for text, tree, function, undo in _mutations(path):
        if text in chosen:
            place = str(path), min(one.lineno for one in (function, *function.decorator_list))
            code = _code_of(tree, place)
            undo()
            function.body[:0] = ast.parse(f"{_CALLED}.add({place!r})").body
            found.append(Mutation(place, f"{path.relative_to(ROOT)}::{text}", code, _code_of(tree, place)))
            del function.body[0]
    return found


def _mutations(path: Path) -> Iterator[tuple[str, ast.Module, Function, Callable[[], None]]]:
    """All small breaks of a file's functions, in order: what is done where, the broken file, the function,
    and what undoes it before the next."""
    text = path.read_text()
    tree = ast.parse(text)
    lines = text.splitlines()
    seen: Counter[str] = Counter()
    for qualname, function in _functions(tree):
        for node in [inner for statement in function.body for inner in _deciding(statement)] + [function]:
            for undo, what in _broken(node):
                number = getattr(node, "pattern", node).lineno  # a case has none of its own
                line = "" if node is function else f" in: {lines[number - 1].strip()}"
                said = f"{qualname}: {what}{line}"
                seen[said] += 1
                yield said + (f" ({seen[said]})" if seen[said] > 1 else ""), tree, function, undo
                undo()


def _functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    """Those of modules and classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield within + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{within}{child.name}.")


def _deciding(node: ast.AST) -> Iterator[ast.AST]:
    """The parts that decide, not what is shown to people."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr | ast.Raise):
            yield from _deciding(child)


def _broken(node: ast.AST) -> Iterator[tuple[Callable[[], None], str]]:
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


def _swap(where: object, key: object, new: object) -> Callable[[], None]:
    old = where[key]  # type: ignore[index]
    where[key] = new  # type: ignore[index]

    def undo() -> None:
        where[key] = old  # type: ignore[index]

    return undo


def _code_of(tree: ast.Module, place: Place) -> CodeType:
    todo = [compile(ast.fix_missing_locations(tree), place[0], "exec")]
    while todo:
        code = todo.pop()
        if code.co_firstlineno == place[1] and code.co_flags & inspect.CO_NEWLOCALS:
            return code
        todo += [one for one in code.co_consts if isinstance(one, CodeType)]
    raise LookupError(place)


class Run:
    """A plugin of pytest's: tries mutations in place of running the tests."""

    def __init__(self, drawn: list[Mutation], processes: int, clusters: bool) -> None:
        self._drawn = drawn
        self._clusters = clusters
        self._processes = processes
        self.unnoticed: list[Mutation] = []
        #: tests that fail without a mutation
        self.broken: list[str] = []
        #: seconds of the processor, of all processes
        self.seconds = 0.0
        self._items: dict[str, pytest.Item] = {}
        self._calls: dict[str, set[Place]] = {}
        self._took: dict[str, float] = {}
        #: seconds on the clock
        self._lasted: dict[str, float] = {}
        self._pipe = tempfile.TemporaryFile()  # noqa: SIM115  # as long as this

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """What fails need not be made small."""
        few = settings.get_profile("few")
        settings.register_profile("mutations", few, phases=(Phase.explicit, Phase.generate))
        settings.load_profile("mutations")

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        """Those that start no cluster, unless they may."""
        for state_machine in {one.cls for one in items if hasattr(one.cls, "settings")}:
            state_machine.settings = settings(state_machine.settings, max_examples=EXAMPLES)
        if not self._clusters:
            items[:] = [one for one in items if not inspect.iscoroutinefunction(inspect.unwrap(one.function))]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of the tests."""
        if session.testsfailed:
            return False
        self._items = {item.nodeid: item for item in session.items}
        gc.freeze()
        self._wait({self._fork(lambda: self._look()): (None, time.monotonic() + 10 * PATIENCE)})
        self._pipe.seek(0)
        self._calls, self._took, self._lasted, self.broken = pickle.load(self._pipe)
        if self.broken and not self._clusters:
            return True
        for test in self.broken:
            del self._calls[test]
        callers = defaultdict(list)
        for test in sorted(self._calls, key=lambda test: self._took[test]):
            for place in self._calls[test]:
                callers[place].append(test)
        for place, tests in callers.items():
            stem = Path(place[0]).stem
            mirror = [test for test in tests if stem in test]
            mirror += [test for test in tests if stem not in test]
            seconds = accumulate(self._took[test] for test in mirror)
            callers[place] = [
                test for test, until in zip(mirror, seconds, strict=True) if stem in test or until < ENOUGH
            ]
        running: dict[int, tuple[Mutation | None, float]] = {}
        for mutation in self._drawn:
            if tests := callers[mutation.place]:
                while len(running) >= self._processes:
                    self._wait(running)
                pid = self._fork(lambda one=mutation, tests=tests: self._try(one, tests))
                lasts = sum(self._lasted[test] for test in tests)
                running[pid] = mutation, time.monotonic() + PATIENCE + SLOWER * lasts
            else:
                self.unnoticed.append(mutation)
        while running:
            self._wait(running)
        return True

    def _fork(self, do: Callable[[], bool]) -> int:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                # of the parent's threads there is none here, and an executor would count on its own
                distributed.utils._offload_executor = ThreadPoolExecutor(1, "Dask-Offload")
                silence = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silence, 1)
                os.dup2(silence, 2)
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                code = int(not do())
            finally:
                os._exit(code)
        return pid

    def _wait(self, running: dict[int, tuple[Mutation | None, float]]) -> None:
        """Until one has ended."""
        while True:
            for pid, (mutation, until) in list(running.items()):
                if time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)
                done, status, used = os.wait4(pid, os.WNOHANG)
                if done:
                    del running[pid]
                    self.seconds += used.ru_utime + used.ru_stime
                    if mutation is not None and not status:
                        self.unnoticed.append(mutation)
                    return
            time.sleep(0.005)

    def _look(self) -> bool:
        """Which functions each test calls, how long it takes, and which ones fail."""
        vars(builtins)[_CALLED] = called = set[Place]()
        _put({one.place: one.marked for one in self._drawn})
        failed: list[str] = []
        for item, following in self._in_order(self._items):
            called.clear()
            began, clock = time.process_time(), time.monotonic()
            if not _passes(item, following):
                failed.append(item.nodeid)
            self._took[item.nodeid] = time.process_time() - began
            self._lasted[item.nodeid] = time.monotonic() - clock
            self._calls[item.nodeid] = set(called)
        pickle.dump((self._calls, self._took, self._lasted, failed), self._pipe)
        self._pipe.flush()
        return True

    def _try(self, mutation: Mutation, tests: list[str]) -> bool:
        """Whether the tests pass."""
        _put({mutation.place: mutation.code})
        seconds = ceil(time.process_time() + SLOWER * sum(self._took[test] for test in tests)) + MORE
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        return all(_passes(item, following) for item, following in self._in_order(tests))

    def _in_order(
        self, tests: "dict[str, pytest.Item] | list[str]"
    ) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
        items = [self._items[test] for test in tests]
        return zip(items, [*items[1:], None], strict=True)


def _put(codes: dict[Place, CodeType]) -> None:
    """Functions do from now on what these say. What one closes over must not change."""
    gc.unfreeze()
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            was = one.__code__
            new = codes.get((was.co_filename, was.co_firstlineno))
            if new is not None and new.co_name == was.co_name:
                one.__code__ = new


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    from _pytest.runner import runtestprotocol

    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def _listed() -> tuple[set[str], set[str]]:
    """All that survivors.txt names, and what of it changes nothing."""
    equivalent, _, others = SURVIVORS.read_text().partition("NOT NOTICED")
    first, second = (
        {line for line in part.splitlines() if line.startswith("dask_hpc/")} for part in (equivalent, others)
    )
    return first | second, first


def main() -> int:
    """Draws mutations, tries each, and prints who survived."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--one-in", type=int, default=28)
    parser.add_argument("--only", default="", help="files whose path starts so")
    parser.add_argument("--fresh", default="", metavar="WORD", help="others, also of what meets Dask")
    parser.add_argument("--list", action="store_true", help="print the mutations and try none")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    os.chdir(ROOT)
    starts = [f"dask_hpc/{room}" for room in ROOMS] if given.fresh else BROKEN
    paths = [
        ROOT / path
        for start in map(Path, starts)
        for path in (sorted(start.rglob("*.py")) if start.is_dir() else [start])
        if str(path).startswith(given.only)
    ]
    if given.fresh:
        chosen = fresh(given.fresh, paths)
    else:
        chosen = {path: one_in(given.one_in, path) for path in paths}
    drawn = [one for path in paths for one in drawn_of(path, chosen[path])]
    if given.list:
        print(*(one.name for one in drawn), sep="\n")
        return 0
    listed, equivalent = _listed()
    tests = [f"tests/{room}" for room in ROOMS] if given.fresh else TESTS
    run = Run([one for one in drawn if one.name not in listed], given.processes, bool(given.fresh))
    began = time.monotonic()
    code = pytest.main([*HOW, *(f"--deselect={test}" for test in LEFT_OUT), *tests], plugins=[run])
    if code:
        return int(code)
    if run.broken:
        print("these fail here without any mutation:", *run.broken, sep="\n")
        if not given.fresh:
            return 2
    new = sorted(one.name for one in run.unnoticed)
    if new:
        print("not noticed, and not in survivors.txt:", *new, sep="\n")
    names = {one.name for one in drawn}
    counted = len(names - equivalent)
    noticed = counted - len(names & (listed - equivalent)) - len(new)
    share = noticed / max(counted, 1)
    print(
        f"{noticed} of {counted} mutations were noticed: {share:.1%}; "
        f"{len(names & equivalent)} more change nothing; "
        f"{time.monotonic() - began:.0f} s, {run.seconds + time.process_time():.0f} s of the processor"
    )
    return int(bool(new and not given.fresh) or share < WANTED or (len(drawn) < LEAST and not given.only))


if __name__ == "__main__":
    sys.exit(main())
