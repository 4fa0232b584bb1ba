"""Runs a checkout of distributed's own tests without us and with us preloaded, and says which tests differ.

    python tests/upstream/run.py PATH... [--tries 3] [-- ARGUMENT_OF_PYTEST...]

The paths are test files or folders of the checkout, whose version should be that of the distributed that is
installed. What ends differently is tried again; what differs in each try is listed. Exit code 1 if one of
these is not among the known differences.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from differences import DIFFERENCES

OURS = {
    "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": "['dask_hpc.preload']",
    "DASK_DISTRIBUTED__SCHEDULER__PRELOAD_ARGV": "[]",
}


def ended(ours: bool, tests: list[str], more: list[str]) -> dict[str, str]:
    """How each test ended: "passed", "skipped", "failure" or "error"; by its class or file, and name."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *more, *tests]
        subprocess.run(
            command, env=os.environ | (OURS if ours else {}), stdout=subprocess.DEVNULL, check=False
        )
        if not report.exists():
            sys.exit(f"pytest gave no report: {' '.join(command)}")
        cases = ElementTree.parse(report).iter("testcase")
    return {f"{case.get('classname')}::{case.get('name')}": _end(case) for case in cases}


def _end(case: ElementTree.Element) -> str:
    kinds = {child.tag for child in case}
    return next((kind for kind in ("error", "failure", "skipped") if kind in kinds), "passed")


def differing(paths: list[str], tries: int, more: list[str]) -> dict[str, tuple[str, str]]:
    """The tests that end in another way with us in every try, and both ways of the last one."""
    found: dict[str, tuple[str, str]] = {}
    for number in range(tries):
        names = sorted({name.rpartition("::")[2].partition("[")[0] for name in found})
        again = ["-k", " or ".join(names)] if number else []
        plain, ours = (ended(with_us, paths, [*more, *again]) for with_us in (False, True))
        these = {name: (plain.get(name, "missing"), ours.get(name, "missing")) for name in plain | ours}
        found = {
            name: ends for name, ends in these.items() if ends[0] != ends[1] and (not number or name in found)
        }
        if not found:
            break
    return found


def main() -> int:
    """Prints what differs, and why if that is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--tries", type=int, default=3)
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    given = parser.parse_args(words[:cut])
    found = differing(given.paths, given.tries, words[cut + 1 :])
    unknown = 0
    for name, (plain, ours) in sorted(found.items()):
        reason = DIFFERENCES.get(name.rpartition("::")[2].partition("[")[0])
        unknown += reason is None
        print(f"{name}: {plain} without us, {ours} with us. {reason or 'Not known.'}")
    print(f"{len(found)} tests differ, {unknown} of them for no known reason")
    return min(unknown, 1)


if __name__ == "__main__":
    sys.exit(main())
