"""``python tests/never_ran.py FILE`` prints the tests that were left out wherever they were to run, and why.
The file is what runs of the tests added to where the variable DASK_HPC_RAN named it. Exit code 1 if there are
any, but for those that want what CI cannot install."""

import sys
from pathlib import Path

#: how reasons begin that are the machine's own
ALLOWED = (
    "mount: ",
    "this machine has no address but its own",
    "this machine shows no counters of its processor",
    "counters are not allowed here",
)


def never_ran(lines):
    """The tests, and modules, that were skipped each time, with the last reason."""
    ran, skipped = set(), {}
    for line in lines:
        what, name, why = line.split("\t")
        if what == "ran":
            ran |= {name, name.partition("::")[0]}
        else:
            skipped[name] = why
    return {name: why for name, why in skipped.items() if name not in ran}


if __name__ == "__main__":
    left_out = never_ran(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())
    for name, why in left_out.items():
        print(f"{name}: {why}")
    sys.exit(int(any(not why.removeprefix("Skipped: ").startswith(ALLOWED) for why in left_out.values())))
