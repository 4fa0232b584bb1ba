"""Reading the Standard Workload Format, plain or gzipped.

18 whitespace-separated numbers per job (what some logs append is not looked at), ``-1`` for unknown, ``;``
starts a comment, header comments hold ``Key: value``. We use: 1 job number, 2 submit time, 4 run time, 5 used
processors, 8 requested processors, 9 requested time, 12 user. Rules for what is missing:

* processors: the requested ones, else the used ones (``processors="used"`` turns that round);
* walltime: the requested time, else the run time (the job is then taken to be perfectly estimated);
* a job without processors, with more than any machine has, or without a run time cannot be replayed: it is
  left out and counted.
"""

import gzip
import zlib
from collections import Counter
from collections.abc import Iterator
from math import inf, isfinite
from pathlib import Path

from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.job import TOO_MANY, Job
from dask_hpc.model.units import counted
from dask_hpc.simulator.workload import Arrival, Workload

_FIELDS = 18


def read_swf(path: Path, *, processors: str = "requested", per_node: int = 1) -> Workload:
    """A whole file. Complaints name the file and the line."""
    insist(processors in ("requested", "used"), "processors", processors, "requested, used")
    insist(per_node >= 1, "processors per node", per_node, "1 or more")
    arrivals: dict[str, Arrival] = {}
    header: dict[str, str] = {}
    left_out = Counter[str]()
    for number, line in _lines(path):
        if line.startswith(";"):
            key, colon, value = line.lstrip("; \t").partition(":")
            if colon:
                header.setdefault(key.strip(), value.strip())
            continue
        try:
            arrival = _arrival(line, processors == "used", per_node)
            if isinstance(arrival, str):
                left_out[arrival] += 1
            elif arrivals.setdefault(arrival.job.id, arrival) is not arrival:
                raise InputError("", f"job {arrival.job.id} is there twice")
        except InputError as error:
            raise error.at(f"{path}, line {number}") from None
    notes = tuple(f"{counted(many, 'job')} left out: {why}" for why, many in left_out.items())
    return Workload(path.name, tuple(arrivals.values()), _machine(header, per_node), notes)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that say something, numbered from 1."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    number = 0
    try:
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                text = line.strip()
                if text:
                    yield number, text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        after = f"{path}, after line {number}"
        raise InputError(after, f"not a complete gzip file: {error}") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None


def _arrival(line: str, used_first: bool, per_node: int) -> Arrival | str:
    """The job of a line, or why it cannot be replayed."""
    words = line.split()
    if len(words) < _FIELDS:
        raise InputError("", f"{len(words)} fields", f"{_FIELDS} numbers, -1 for unknown")
    numbers = []
    for word in (words[i] for i in (1, 3, 4, 7, 8)):
        try:
            numbers.append(float(word))
        except ValueError:
            raise InputError("", f"found {shown(word)}", f"{_FIELDS} numbers, -1 for unknown") from None
    submit, runtime, used, wanted, limit = numbers
    if not 0 <= submit < inf:
        raise InputError("field 2 (submit time)", f"found {words[1]}", "0 or more")
    first, second = (used, wanted) if used_first else (wanted, used)
    processors = first if first > 0 else second
    if not (isfinite(processors) and isfinite(runtime)):
        raise InputError("", "found a number that is not finite", "finite numbers")
    if processors >= TOO_MANY:
        return f"{TOO_MANY:,} processors or more"
    if processors <= 0 or runtime < 0:
        return "no processors or no run time"
    walltime = limit if 0 < limit < inf else max(runtime, 1.0)
    job = Job(
        id=words[0],
        nodes=-(-int(processors) // per_node),
        walltime=walltime,
        submitted=submit,
        user="" if words[11] == "-1" else words[11],
    )
    return Arrival(job, runtime)


def _machine(header: dict[str, str], per_node: int) -> int | None:
    for key, divisor in (("MaxProcs", per_node), ("MaxNodes", 1)):
        text = header.get(key, "").split(" ")[0]
        if text.isascii() and text.isdigit() and int(text) > 0:
            return -(-int(text) // divisor)
    return None
