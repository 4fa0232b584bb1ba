"""Large calculations with deadlines and values on a machine that fails every eleven minutes (seed 003, 4)."""

import random
import zlib
from functools import cache
from typing import Annotated, Literal, NamedTuple

from dask_hpc.model.errors import insist
from dask_hpc.model.job import Job
from dask_hpc.planning.resilience.choose import choose
from dask_hpc.planning.resilience.hardware import Calculation, Case, Hardware
from dask_hpc.planning.resilience.recovery import recovery
from dask_hpc.planning.resilience.redundancy import redundancy
from dask_hpc.planning.resilience.rollback import multilevel, restart
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.resilience import sample_times
from dask_hpc.simulator.workload import Arrival, Workload

_HOUR = 3600.0
#: seed 003, table 4.1: share of messages, GB that a node keeps
TYPES = {"L32": (0.0, 32e9), "L64": (0.0, 64e9), "H32": (0.75, 32e9), "H64": (0.75, 64e9)}
#: per cent of the machine: eleven of them, of which only the ends are published
SIZES = (1, *range(10, 101, 10))
HOURS = (3, 6, 12, 24)
#: where soft and hard deadlines are, from the submission on, in times of the undisturbed length
_SOFT, _HARD = 1.5, 2.5
#: run times that are played for each type, size and length under a protocol; a job's is one of them
_PLAYED = 40
#: what has taken so many times its length is past its deadline, and not played any further
_GIVE_UP = 3.0
#: nor played at all if that is so much less than what is foretold
_CHANCE = 0.5
_ROLLING = {"restart": restart, "multilevel": multilevel, "recovery": recovery}
#: nodes of which a per cent, and half as many again, is a whole number
_WHOLE = 200
_MACHINE = Hardware()

Pattern = Literal["unbiased", "high-memory", "high-communication", "large"]
Protocol = Literal["best", "restart", "multilevel", "recovery", "redundancy-1.5", "redundancy-2", "none"]


def exascale(
    *,
    jobs: Annotated[int, 0, 10**5] = 500,
    pattern: Pattern = "unbiased",
    protocol: Protocol = "best",
    gap: Annotated[float, 0.01, 10**4] = 6.0,
    nodes: Annotated[int, 200, 120_000] = 120_000,
    seed: int = 0,
) -> Workload:
    """Large jobs with deadlines and values on 120,000 nodes, whose run times are those under failures.

    Seed 003, 4.7 to 4.9: the machine is full at first, then 500 more come, one every ``gap`` hours (Poisson).
    Each keeps 32 or 64 GB per node, spends 0 or 75 % of its time on messages, would take 3, 6, 12 or 24
    hours, and has from 1 to 100 % of the nodes. Its value is its share of the machine in per cent times its
    length over six hours; it is worth all of that until 1.5 times its length after its submission, and is
    removed at 1.5 to 2.5 times. ``protocol`` protects them all: "best" is of restart, multilevel and
    recovery the one that is foretold to be done first, "none" is without failures. A ``pattern`` has
    jobs of one kind only: all of 64 GB, of 75 % messages, or of half of the machine and more.

    With fewer ``nodes`` each of them stands for several that fail and write as one, which is quicker to play;
    the whole machine's is their ``mtbf`` and bandwidth then times the share of nodes.

    The walltime is the undisturbed length, which they may overstay; what was recorded of them is what they
    will take. Who fills the machine at first is drawn like the others, the last one cut to what is left.
    """
    insist(nodes % _WHOLE == 0, "nodes", nodes, f"a multiple of {_WHOLE}")
    draw = random.Random(f"exascale {seed}")
    types = {"high-memory": ("L64", "H64"), "high-communication": ("H32", "H64")}.get(pattern, tuple(TYPES))
    sizes = SIZES[5:] if pattern == "large" else SIZES
    arrivals: list[Arrival] = []
    left, time = 100, 0.0
    while left or jobs:
        kind, size, hours = draw.choice(types), draw.choice(sizes), draw.choice(HOURS)
        factor, lot = draw.uniform(_SOFT, _HARD), draw.randrange(_PLAYED)
        if left:
            size = min(size, left)
            left -= size
        else:
            jobs -= 1
            time += draw.expovariate(1 / (gap * _HOUR))
        number = str(len(arrivals) + 1)
        arrivals.append(_arrival(number, _LargeJob(kind, size, hours), factor, lot, time, protocol, nodes))
    return Workload("exascale", arrivals, platform=Platform(nodes))


class _LargeJob(NamedTuple):
    """What jobs of one kind have alike: their type, per cent of the machine, hours."""

    type: str
    size: int
    hours: int


def _arrival(
    name: str, kind: _LargeJob, factor: float, lot: int, time: float, protocol: Protocol, nodes: int
) -> Arrival:
    work, (messages, memory) = kind.hours * _HOUR, TYPES[kind.type]
    runtime = work if protocol == "none" else _times(kind, protocol)[lot]
    job = Job(
        id=name,
        # with replicas it may be more than the machine has: such a job is rejected
        nodes=round(_degree(protocol) * kind.size * nodes / 100),
        walltime=work,
        submitted=time,
        value=kind.size * kind.hours / 6,
        soft_deadline=time + _SOFT * work,
        deadline=time + factor * work,
        memory=memory,
        messages=messages,
        user=kind.type,
        recorded=runtime,
    )
    return Arrival(job, runtime, overstays=True)


def _degree(protocol: str) -> float:
    """How many nodes there are for each."""
    return float(protocol.removeprefix("redundancy-")) if protocol.startswith("redundancy") else 1.0


@cache
def _times(kind: _LargeJob, protocol: str) -> tuple[float, ...]:
    """Run times under failures. Each job has failures of its own, whoever runs beside it (digest, G3), so
    that they need not be played on the machine."""
    work, (messages, memory) = kind.hours * _HOUR, TYPES[kind.type]
    nodes = _MACHINE.nodes * kind.size // 100
    case = Case(Calculation(nodes=nodes, work=work, memory=memory, messages=messages), _MACHINE)
    if protocol == "best":
        return _times(kind, choose(case).best.protocol)
    way = _ROLLING[protocol](case) if protocol in _ROLLING else redundancy(case, _degree(protocol))
    if way.efficiency * _GIVE_UP < _CHANCE:
        return (_GIVE_UP * work,) * _PLAYED
    # the same luck for all protections, as far as that goes
    seed = zlib.crc32(repr(tuple(kind)).encode())
    times = sample_times(way, _PLAYED, seed, give_up=_GIVE_UP)
    return tuple(min(float(time), _GIVE_UP * work) for time in times)
