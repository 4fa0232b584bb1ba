"""S30: what is tested against which versions, and that every private name of Dask has its contract test."""

import ast
import platform
import re
import signal
import tomllib
from collections import deque
from pathlib import Path

import distributed

from dask_hpc import dask as compat

ROOT = Path(__file__).parents[2]
CI = (ROOT / ".ci" / "run").read_text()
CONTRACTS = "".join(path.read_text() for path in (ROOT / "tests" / "dask").glob("test_dask_*.py"))


def test_the_floor_the_newest_and_no_queue(report):
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    (floor,) = (w.partition(">=")[2] for w in project["dependencies"] if w.startswith("distributed>="))
    steps = [line.rpartition(" ")[2] for line in CI.splitlines() if line.startswith("step ")]
    assert "demo_and_other_versions" in steps
    started = [line.strip().split(" >")[0] for line in CI.splitlines() if line.endswith("&")]
    assert {line.split(" ")[0] for line in started} >= {
        "lowest_versions", "without_queue", "batch_jobs_and_python_3_12",
    }  # fmt: skip
    assert "--resolution lowest-direct" in CI
    assert "WORKER_SATURATION=inf on_python 3.13" in CI
    said = (c.rpartition(":: ")[2] for c in project["classifiers"] if "Python ::" in c)
    assert set(said) == {"3.11", *re.findall(r"on_python (3\.\d+)", CI)}
    report.add(
        "S30", "tests pass with", plain="-",
        ours=f"distributed {distributed.__version__} here; CI: newest, {floor}, saturation inf",
        bound="floor, newest, inf",
    )  # fmt: skip
    report.add("S30", "Python", plain="-", ours=platform.python_version(), bound="3.11 to 3.13")


#: attributes in the code of compat that are not Dask's: our own classes', Python's, cloudpickle's, bokeh's
NOT_DASKS = {
    "FIRST_COMPLETED",
    "__mro__",
    "_afterwards",
    "_before",
    "_begin",
    "_blob",
    "_groups",
    "_is_on",
    "_is_ours",
    "_look_up",
    "_own",
    "_plain",
    "_scheduler",
    "_share",
    "_stealing",
    "_threads",
    "add_callback",
    "attempt",
    "call_later",
    "current_thread",
    "disable",
    "dumps",
    "enable",
    "exception",
    "failed",
    "getLogger",
    "getpid",
    "groups",
    "hosts",
    "hpc_fetch",
    "initialize",
    "isenabled",
    "leave",
    "limits",
    "listed",
    "loop",
    "loose",
    "main_thread",
    "open",
    "proxy",
    "reset",
    "under_way",
}


def test_every_private_name_has_a_contract():
    nodes = [
        node
        for path in Path(compat.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
    ]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    ours = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("_")}
    ours |= {node.attr for node in attributes if re.match(r"self\._\w+$", ast.unparse(node))}
    names = {node.attr for node in attributes} - ours
    python = {name for kind in (str, dict, set, list, tuple, deque, re, signal) for name in dir(kind)}
    missing = sorted(name for name in names - python - NOT_DASKS if not re.search(rf"\b{name}\b", CONTRACTS))
    assert len(names) > 100 and not missing, missing
