"""The structural rule: imports point up the table of rooms, and one file alone knows the insides of Dask."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import dask_hpc

ROOT = Path(__file__).parents[1]

#: room -> what of ours it may import, besides itself
ROOMS = {
    "model": set(),
    "strategies": {"model", "planning"},
    "planning": {"model"},
    "policy": {"model", "strategies"},
    "config": {"model", "planning.polling", "planning.asks"},
    "display": set(),
    "data_file": {"model"},
    "dask": {"model"},
    "services": set(),
    "batch": {"model", "planning.asks"},
    "cluster": {
        "model", "planning", "policy", "config", "display", "dask", "services", "batch", "view.course",
    },
    "power": {"model", "planning", "policy", "config", "dask", "cluster", "data_file"},
    "history": {"model", "planning", "config", "dask", "cluster", "data_file"},
    # a chain of batch jobs reads what its program says of its checkpoints
    "reservations": {
        "model", "planning", "config", "data_file", "batch", "history.runs", "checkpoint.client.reserved",
    },
    # a restore in a layout has it held as redistribute has
    "checkpoint": {
        "model", "planning", "strategies", "config", "dask", "redistribution.client",
        "cluster.scheduler.service", "cluster.worker.farewell",
    },
    # files in memory are kept by the agents of checkpoints
    "memory_files": {
        "model", "planning", "policy", "strategies.files", "strategies.checkpoint", "config", "dask",
        "cluster.scheduler.service", "checkpoint",
    },
    "redistribution": {"model", "planning", "config", "dask", "cluster"},
    "in_situ": {"model", "planning", "policy", "config", "dask", "cluster"},
    "bridge": {"model", "planning", "config", "dask", "cluster"},
    "lanes": {"model", "planning", "policy", "strategies.io", "config", "dask", "cluster"},
    "tail": {"model", "planning", "policy", "strategies.tail", "config", "dask", "cluster"},
    "together": {
        "model", "planning", "policy", "strategies.memory", "strategies.together", "strategies.strategy",
        "config", "dask", "cluster", "history.kinds",
    },
    "network": {"model", "planning", "dask", "cluster.scheduler"},
    "simulator": {
        "model", "planning", "policy", "view", "strategies.checkpoint", "strategies.files", "strategies.io",
        "display",
    },
    "view": {"model", "planning.in_situ", "policy", "dask", "cluster.scheduler"},
    "reproduce": {
        "model", "planning", "policy", "simulator", "strategies.checkpoint", "strategies.files",
        "strategies.malleability",
    },
    "doctor": {"model", "planning", "config", "power"},
    "preload": {"model", "cluster"},
    "examples": {"model", "planning", "policy", "simulator", "cluster", "in_situ", "checkpoint"},
}  # fmt: skip
#: files of a room that may import more than others there: experiments that are measured on a live cluster
MORE = {"dask_hpc.reproduce.live_": {"cluster.client", "checkpoint.client"}}
FREE = {"cli", "__main__", ""}  # these may import everything

BRAIN = {"model", "strategies", "planning", "policy"}
ENGINE = {"dask", "distributed", "dask_jobqueue"}
WORLD = {
    "asyncio", "datetime", "multiprocessing", "os", "pathlib", "random", "secrets", "socket", "subprocess",
    "tempfile", "threading", "time", "uuid",
}  # fmt: skip
#: the one that reads policy files, and the one that reads times of day, of whatever clock it is told
EXCUSED = {("policy", "pathlib"), ("model", "datetime")}

DASK_THINGS = {"client", "cluster", "future", "nanny", "scheduler", "worker"}


def room_of(module: str) -> str:
    """``dask_hpc.cluster.scheduler.jobs`` is in ``cluster``."""
    return module.removeprefix("dask_hpc").lstrip(".").partition(".")[0]


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything a file imports; public names as where they come from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                public = dask_hpc._WHERE.get(alias.name) if module == "dask_hpc" else None
                yield node.lineno, f"{public or module}.{alias.name}"


def wrong_imports(module: str, tree: ast.AST) -> Iterator[str]:
    """Imports that point down the table, or from the brain to the world."""
    room = room_of(module)
    if room not in ROOMS and room not in FREE:
        yield f"{module}: {room!r} is no room; say in test_import_rule.py what it may import"
        return
    may = {room}.union(ROOMS.get(room, ()), *(MORE[one] for one in MORE if module.startswith(one)))
    for line, name in imported(tree):
        top = name.partition(".")[0]
        if top == "":
            yield f"{module}:{line}: a relative import ({name})"
        elif top == "dask_hpc" and room not in FREE:
            target = room_of(name)
            if target != "__version__" and not any(
                name == f"dask_hpc.{ok}" or name.startswith(f"dask_hpc.{ok}.") for ok in may
            ):
                yield f"{module}:{line}: {room} may not import {target or name}"
        elif room in BRAIN and (top in ENGINE or name.startswith("numpy.random")):
            yield f"{module}:{line}: the brain may not import {top}"
        elif room in BRAIN and top in WORLD and (room, top) not in EXCUSED:
            yield f"{module}:{line}: the brain reads no clock, socket or file, and rolls no dice ({top})"
        elif top == "dask_hpc_widgets" and module.startswith("dask_hpc"):
            yield f"{module}:{line}: the widgets are below"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_dask_names(module: str, tree: ast.AST) -> Iterator[str]:
    """Underscore names of Dask, as far as a reader of the text can tell."""
    if room_of(module) == "dask":
        return
    ours = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module_name = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                name = f"{module_name}.{alias.name}".strip(".")
                if name.partition(".")[0] in ENGINE:
                    ours.add((alias.asname or alias.name).partition(".")[0])
                    if any(is_private(part) for part in name.split(".")):
                        yield f"{module}:{node.lineno}: {name} is private to Dask; go through dask_hpc.dask"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            base = node.value
            last = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
            while isinstance(base, ast.Attribute):
                base = base.value
            if getattr(base, "id", None) in ours or last.lstrip("_") in DASK_THINGS:
                yield f"{module}:{node.lineno}: {ast.unparse(node)} is private to Dask; use dask_hpc.dask"


_FOR_WIDGETS = ("dask_hpc.view.kit", "dask_hpc.view.page", "dask_hpc.model.units")


def not_public(module: str, tree: ast.AST) -> Iterator[str]:
    """What the widgets import of us beyond ``dask_hpc`` itself, what draws, and quantities."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            wrong = [name for name in names if name.startswith("dask_hpc.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dask_hpc":
            names = [alias.name for alias in node.names]
            wrong = names if node.module != "dask_hpc" else [n for n in names if n not in dask_hpc.__all__]
            wrong = [] if node.module in _FOR_WIDGETS else wrong
        else:
            continue
        if wrong:
            yield f"{module}:{node.lineno}: not public: {', '.join(wrong)}"


@cache
def parsed(folder: Path, package: str) -> list[tuple[str, ast.AST]]:
    return [
        (
            ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"),
            ast.parse(path.read_text(), str(path)),
        )
        for path in sorted((folder / package).rglob("*.py"))
    ]


def test_imports_point_up():
    assert [found for file in parsed(ROOT, "dask_hpc") for found in wrong_imports(*file)] == []


def test_the_scheduler_names_no_service():
    """They join through the contract, ``cluster.scheduler.service``."""
    name = re.compile(
        r"\b_?(power|lanes?|bridges?|in_situ|pipelines?|checkpoints?|rescue|protect\w*|corridor)\b", re.I
    )
    files = sorted((ROOT / "dask_hpc" / "cluster" / "scheduler").glob("*.py"))
    lines = [(file.name, line) for file in files for line in file.read_text().splitlines()]
    assert files and [(file, line) for file, line in lines if name.search(line)] == []


def test_only_compat_knows_the_insides_of_dask():
    files = [*parsed(ROOT, "dask_hpc"), *parsed(ROOT / "widgets", "dask_hpc_widgets")]
    assert [found for file in files for found in private_dask_names(*file)] == []


def test_widgets_use_the_public_api():
    files = parsed(ROOT / "widgets", "dask_hpc_widgets")
    assert files
    assert [found for file in files for found in not_public(*file)] == []


@pytest.mark.parametrize(
    "module, text",
    [
        ("dask_hpc.model.job", "from dask_hpc.strategies import fcfs"),
        ("dask_hpc.model.job", "import dask_hpc.policy"),
        ("dask_hpc.model.job", "from dask_hpc import Policy"),
        ("dask_hpc.model.job", "from dask_hpc import cluster"),
        ("dask_hpc.model.job", "from .node import Node"),
        ("dask_hpc.model", "import time"),
        ("dask_hpc.strategies.queue.fcfs", "def f():\n    import random"),
        ("dask_hpc.strategies.queue.fcfs", "from datetime import datetime"),
        ("dask_hpc.planning.moves.leaving", "from dask_hpc.strategies import fcfs"),
        ("dask_hpc.planning.interval", "import distributed.utils"),
        ("dask_hpc.policy", "from dask.utils import parse_timedelta"),
        ("dask_hpc.policy", "import socket"),
        ("dask_hpc.simulator.engine", "from dask_hpc.strategies.queue.fcfs import Fcfs"),
        ("dask_hpc.simulator.engine", "from dask_hpc.cluster.scheduler.jobs import LiveJob"),
        ("dask_hpc.dask", "from dask_hpc.simulator import simulate"),
        ("dask_hpc.checkpoint.worker.agent", "from dask_hpc.cluster.scheduler.jobs import LiveJob"),
        ("dask_hpc.checkpoint.worker.agent", "from dask_hpc.cluster import units"),
        ("dask_hpc.stuff.things", "import math"),
        ("dask_hpc.reproduce.agents", "from dask_hpc import Checkpoint"),
        ("dask_hpc.reproduce.live_adaptation", "from dask_hpc.cluster.scheduler.jobs import LiveJob"),
        ("dask_hpc.cluster.scheduler.jobs", "import dask_hpc_widgets"),
    ],
)
def test_a_wrong_import_is_caught(module, text):
    assert len(list(wrong_imports(module, ast.parse(text)))) == 1


@pytest.mark.parametrize(
    "module, text",
    [
        ("dask_hpc.checkpoint.worker.agent", "from dask_hpc import dask as compat"),
        ("dask_hpc.checkpoint.worker.agent", "from dask_hpc.dask import x"),
        ("dask_hpc.cluster.scheduler.jobs", "from dask_hpc.dask import x\nimport time"),
        ("dask_hpc.cluster.scheduler.jobs", "from dask_hpc import Policy, __version__"),
        ("dask_hpc.reproduce.live_adaptation", "from dask_hpc import Checkpoint, job, manage"),
        ("dask_hpc.cli.demo", "from dask_hpc.strategies import fcfs\nfrom dask_hpc.cluster import units"),
        (
            "dask_hpc.policy",
            "from pathlib import Path\nimport yaml\nfrom dask_hpc.strategies import CONCERNS",
        ),
        ("dask_hpc.model.job", "from dask_hpc.model import node"),
    ],
)
def test_a_right_import_is_not(module, text):
    assert list(wrong_imports(module, ast.parse(text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "from dask._task_spec import Task",
        "from distributed.scheduler import _materialize",
        "import dask._compatibility as c",
        "import dask\ndask.base._x()",
        "from distributed import Client as C\nC._instances",
        "def f(self):\n    self.scheduler._transitions({})",
        "def f(worker):\n    worker._x = 1",
    ],
)
def test_a_private_name_is_caught(text):
    assert list(private_dask_names("dask_hpc.cluster.scheduler.jobs", ast.parse(text)))
    assert not list(private_dask_names("dask_hpc.dask", ast.parse(text)))


@pytest.mark.parametrize(
    "text, found",
    [
        ("from dask_hpc.cluster import manage", 1),
        ("import dask_hpc.policy", 1),
        ("from dask_hpc import model", 1),
        ("import dask_hpc\nfrom dask_hpc import Policy, __version__\nfrom dask_hpc_widgets import x", 0),
    ],
)
def test_what_is_public(text, found):
    assert len(list(not_public("dask_hpc_widgets.x", ast.parse(text)))) == found


def circles(arrows: dict[str, set[str]]) -> list[str]:
    """Modules that import each other by some way round."""
    left = {module: set(targets) for module, targets in arrows.items()}
    while free := [module for module in left if not left[module] & left.keys()]:
        for module in free:
            del left[module]
    while free := [module for module in left if not any(module in targets for targets in left.values())]:
        for module in free:
            del left[module]
    return sorted(left)


def arrows_among(files: list[tuple[str, ast.AST]]) -> dict[str, set[str]]:
    """Which module imports which, also where only types are wanted or a function imports late."""
    modules = {module for module, _ in files}
    found: dict[str, set[str]] = {}
    for module, tree in files:
        targets = (name if name in modules else name.rpartition(".")[0] for _, name in imported(tree))
        found[module] = {target for target in targets if target in modules} - {module}
    return found


def test_no_two_modules_import_each_other_in_a_circle():
    assert circles(arrows_among(parsed(ROOT, "dask_hpc"))) == []


def test_a_circle_is_found():
    texts = {"a": "from dask_hpc.b import x", "b": "def f():\n    from dask_hpc import c", "c": "", "d": ""}
    texts = {"dask_hpc": "", **{f"dask_hpc.{name}": text for name, text in texts.items()}}
    assert circles(arrows_among([(name, ast.parse(text)) for name, text in texts.items()])) == []
    texts["dask_hpc.c"] = "from dask_hpc.a import y"
    found = circles(arrows_among([(name, ast.parse(text)) for name, text in texts.items()]))
    assert found == ["dask_hpc.a", "dask_hpc.b", "dask_hpc.c"]


def test_no_class_name_stands_twice():
    names = Counter(
        node.name
        for _, tree in parsed(ROOT, "dask_hpc")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_every_test_file_has_a_name_of_its_own():
    """Where folders are no packages, pytest takes the second file of a name for the first, and stops."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_brain_brings_no_dask_along():
    """What the text of the imports promises, seen in a fresh interpreter."""
    program = (
        "import sys, dask_hpc, dask_hpc.policy as p; p.Policy.load('easy-backfill');"
        "print([m for m in ('dask', 'distributed', 'pandas', 'xarray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
