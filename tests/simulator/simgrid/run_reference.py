"""Play the reference again and record what came of it.

    python tests/simulator/simgrid/run_reference.py

It needs a C++ compiler and SimGrid with its headers: Debian's packages ``g++`` and ``libsimgrid-dev``; the
record is of SimGrid 3.32. Three minutes. Tests only read the record, in ``recorded``:

- ``cases.csv``: small jobs that each show one effect;
- a file for 500 jobs, of one kind or of all, by one of the reference's rules, on the machine with a file
  system that is busy now and then or on the one that is ``wide`` enough for all;
- ``figures.csv``: what of 500 jobs is compared, for ten workloads, each played twice: as SimGrid is and, as
  ``finer``, with smaller limits below which it takes something for nothing.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from crossbar import CASES, Case, drawn, plain

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
KINDS = {"rigid": drawn(("rigid",)), "mixed": drawn()}
RUNS = {
    "rigid_wide": (KINDS["rigid"].widened, "example"),
    "rigid": (KINDS["rigid"], "example"),
    **{f"mixed_wide_{rule}": (KINDS["mixed"].widened, rule) for rule in ("example", "point", "hold")},
    **{f"mixed_{rule}": (KINDS["mixed"], rule) for rule in ("example", "point", "hold")},
}
SEEDS = range(26, 36)
FINER = ("--cfg=surf/precision:1e-9", "--cfg=maxmin/precision:1e-9")


def main() -> None:
    """All of it."""
    RECORDED.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        program = Path(folder) / "reference"
        source = str(HERE / "reference.cpp")
        subprocess.run(
            ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-o", str(program), source, "-lsimgrid"],
            check=True,
        )
        for name, (case, rule) in RUNS.items():
            version, *lines = played(program, case, rule)
            record(name, version, "job,submit,start,end", lines)
        rows = []
        for name, case in CASES.items():
            version, *lines = played(program, case, "point")
            rows += [f"{name},{line}" for line in lines]
        record("cases", version, "case,job,submit,start,end", rows)
        rows = []
        for seed in SEEDS:
            for rule in ("example", "point", "hold"):
                for word, limits in (("as it is", ()), ("finer", FINER)):
                    version, *lines = played(program, drawn(seed=seed), rule, *limits)
                    rows.append(f"{seed},{rule},{word},{figures(lines)}")
        record("figures", version, "seed,rule,precision,end,wait,turnaround", rows)


def played(program: Path, case: Case, rule: str, *limits: str) -> Iterator[str]:
    """The version of SimGrid, then a line per job."""
    platform, jobs = program.parent / "platform.xml", program.parent / "jobs.txt"
    platform.write_text(case.platform)
    jobs.write_text(plain(case))
    command = [str(program), str(platform), str(jobs), rule, "--log=root.threshold:warning", *limits]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    yield from ended.stdout.splitlines()


def figures(lines: list[str]) -> str:
    """The last end, the mean wait, the mean turnaround."""
    jobs = [tuple(map(float, line.split(","))) for line in lines]
    wait, turnaround = (sum(job[at] - job[1] for job in jobs) / len(jobs) for at in (2, 3))
    return f"{max(job[3] for job in jobs):.9g},{wait:.9g},{turnaround:.9g}"


def record(name: str, version: str, head: str, rows: list[str]) -> None:
    """What SimGrid said, as data."""
    (RECORDED / f"{name}.csv").write_text("\n".join([f"{version}: recorded", head, *rows, ""]))


if __name__ == "__main__":
    main()
