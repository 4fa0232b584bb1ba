"""The whole queue of Slurm, as anybody may see it: nodes, partitions, everybody's jobs, reservations, QOS.

Four commands that need no rights (``scontrol show node``, ``partition`` and ``reservation``, ``squeue``) and
one that some sites do not have (``sacctmgr show qos``). Readers never raise: what makes no sense is left out.
What could not be found out is said in ``QueueView.unknown``.
"""

import asyncio
import getpass
import grp
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from time import monotonic, time

from dask_hpc.batch.clock import read_local_time
from dask_hpc.batch.command import hear
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import counted, parse_duration
from dask_hpc.planning.asks.queue import (
    Maintenance,
    PendingAsk,
    QueueNode,
    QueuePartition,
    QueueQos,
    QueueView,
    RunningAsk,
    in_order,
)

NODES = ("scontrol", "-o", "show", "node")
PARTITIONS = ("scontrol", "-a", "-o", "show", "partition")
RESERVATIONS = ("scontrol", "-o", "show", "reservation")
#: id, state, partitions, nodes, cores, memory, limit, start, submission, priority, user, node list, QOS,
#: sharing, array, reason
JOBS = ("squeue", "-a", "-h", "-t", "PD,CF,R,S,CG", "-o", "%i|%T|%P|%D|%C|%m|%l|%S|%V|%Q|%u|%N|%q|%h|%K|%r")
QOS = ("sacctmgr", "-nP", "show", "qos", "format=Name,Priority,MaxWall,MaxTRES,MaxJobsPU,MaxTRESPU,Preempt")
_FIELDS = 16
_MOST_NODES = 100_000
_MOST_OF_ARRAY = 50  # tasks of one waiting array that are counted
_QOS_LASTS = 3600.0  # seconds; they hardly change
_WORD = re.compile(r"(?:^| )([A-Za-z][A-Za-z0-9_/:]*)=")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
#: a job waits for nodes, and for nothing else
_IN_LINE = frozenset(
    {"None", "Resources", "Priority", "BeginTime", "Nodes", "NodeDown", "Cleaning", "Prolog"}
)
_DOWN = re.compile(r"DOWN|DRAIN|FAIL|NOT_RESPONDING|UNKNOWN|FUTURE|POWERED_DOWN|POWERING_DOWN|REBOOT|\*$")
_SCALES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def expand_nodes(text: str) -> list[str]:
    """Names of nodes from a list as Slurm writes it: ``n[1-3,07],gpu1``. Nonsense is left out."""
    return list(islice(_expand(text), _MOST_NODES))


def _expand(text: str) -> Iterator[str]:
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        if part in ("(null)", "None", "N/A", "ALL"):
            continue
        yield from _of_brackets(part)


def _of_brackets(part: str) -> Iterator[str]:
    head, bracket, rest = part.partition("[")
    inside, _, tail = rest.partition("]")
    if not bracket:
        yield part
        return
    for piece in inside.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            continue
        first, last = match[1], match[2] or match[1]
        if len(last) > 9 or int(last) - int(first) >= _MOST_NODES:
            continue
        for number in range(int(first), int(last) + 1):
            for end in _of_brackets(tail) if tail else ("",):
                yield f"{head}{number:0{len(first)}d}{end}"


def read_words(line: str) -> dict[str, str]:
    """The ``Key=value`` words of one line of ``scontrol -o``. A value may have blanks in it."""
    found = list(_WORD.finditer(line))
    ends = [*(one.start() for one in found[1:]), len(line)]
    return {one[1]: line[one.end() : end].strip() for one, end in zip(found, ends, strict=False)}


def read_nodes(text: str) -> dict[str, QueueNode]:
    """The answer of ``NODES``."""
    nodes = {}
    for line in text.splitlines():
        words = read_words(line)
        name, cores = words.get("NodeName", ""), _count(words.get("CPUEfctv") or words.get("CPUTot"))
        if not name or cores is None:
            continue
        memory = _count(words.get("RealMemory"))
        has = inf if not memory else memory * 2.0**20
        free = has - (_count(words.get("AllocMem")) or 0) * 2.0**20
        is_up = _DOWN.search((words.get("State") or "UNKNOWN").upper()) is None
        spare = max(0, cores - (_count(words.get("CPUAlloc")) or 0))
        nodes[name] = QueueNode(name, cores, has, spare, max(free, 0.0), is_up)
    return nodes


def read_partitions(text: str, groups: Collection[str] = (), account: str = "") -> dict[str, QueuePartition]:
    """The answer of ``PARTITIONS``, for a user of these groups."""
    partitions = {}
    for line in text.splitlines():
        words = read_words(line)
        name = words.get("PartitionName", "")
        if not name:
            continue
        qos = words.get("AllowQos", "ALL")
        partitions[name] = QueuePartition(
            name,
            tuple(expand_nodes(words.get("Nodes", ""))),
            max_time=_seconds(words.get("MaxTime"), inf),
            min_nodes=max(1, _count(words.get("MinNodes")) or 1),
            max_nodes=_limit(words.get("MaxNodes")),
            tier=_count(words.get("PriorityTier")) or 1,
            is_up=words.get("State", "UP").upper() == "UP",
            is_default=words.get("Default") == "YES",
            is_open=_is_open(words, groups, account),
            is_exclusive=words.get("OverSubscribe", "").upper().startswith("EXCLUSIVE"),
            is_preemptible=words.get("PreemptMode", "OFF").upper() not in ("OFF", "GANG"),
            qos=() if qos in ("ALL", "(null)", "") else tuple(qos.split(",")),
        )
    return partitions


def _is_open(words: Mapping[str, str], groups: Collection[str], account: str) -> bool:
    allowed = words.get("AllowGroups", "ALL")
    by_group = allowed in ("ALL", "(null)", "") or not set(allowed.split(",")).isdisjoint(groups)
    accounts = words.get("AllowAccounts", "ALL")
    by_account = accounts in ("ALL", "(null)", "") or account in accounts.split(",")
    denied = account and account in words.get("DenyAccounts", "").split(",")
    return by_group and by_account and not denied and words.get("RootOnly", "NO") != "YES"


def read_jobs(text: str) -> tuple[list[RunningAsk], list[PendingAsk]]:
    """The answer of ``JOBS``: who runs, and who waits, in no order."""
    running, pending = [], []
    for line in text.splitlines():
        parts = line.strip().split("|", _FIELDS - 1)
        if len(parts) != _FIELDS:
            continue
        job, state, names, nodes, cores, memory, limit, start, submitted, priority, user = parts[:11]
        where, qos, sharing, array, reason = parts[11:]
        size, seconds, since = _count(nodes), _seconds(limit, inf), _moment(start)
        if not job or not size or seconds <= 0:
            continue
        if state == "PENDING":
            asks = PendingAsk(
                job,
                tuple(name for name in names.split(",") if name),
                size,
                seconds,
                cores=_count(cores) or 0,
                memory=read_bytes(memory),
                priority=_number(priority),
                submitted=_moment(submitted, -inf) or -inf,
                not_before=since if reason == "BeginTime" and since is not None else -inf,
                user=user,
                qos=qos,
                expected=None if reason == "BeginTime" else since,
                is_exclusive=sharing == "NO",
                is_held=not _is_in_line(reason),
            )
            pending += [asks, *(replace(asks, id=f"{job}+{at}") for at in range(1, _tasks(array)))]
        elif since is not None and (held := expand_nodes(where)):
            one = RunningAsk(job, tuple(held), since, seconds, _count(cores) or 0, user, names)
            running.append(replace(one, submitted=_moment(submitted, -inf) or -inf))
    return running, pending


def _is_in_line(reason: str) -> bool:
    return reason in _IN_LINE or reason.startswith("ReqNodeNotAvail")


def _tasks(array: str) -> int:
    """How many tasks of a waiting array may run at once."""
    tasks, _, most = array.partition("%")
    count = 0
    for piece in tasks.strip("[]").split(","):
        match = _RANGE.match(piece)
        if match is None:
            return 1
        count += int((match[2] or match[1])[:9]) - int(match[1][:9]) + 1
    return max(1, min(count, _count(most) or count, _MOST_OF_ARRAY))


def read_reservations(text: str) -> list[Maintenance]:
    """The answer of ``RESERVATIONS``. All are for others: nobody has told us which are for us."""
    found = []
    for line in text.splitlines():
        words = read_words(line)
        start, end = _moment(words.get("StartTime")), _moment(words.get("EndTime"))
        nodes = tuple(expand_nodes(words.get("Nodes", "")))
        if start is not None and end is not None and start < end and nodes:
            found.append(Maintenance(words.get("ReservationName", "a reservation"), start, end, nodes))
    return found


def read_qos(text: str) -> dict[str, QueueQos]:
    """The answer of ``QOS``."""
    rows = [line.split("|") for line in text.splitlines()]
    rows = [row for row in rows if len(row) == 7 and row[0]]
    preempted = {name for row in rows for name in row[6].split(",") if name}
    found = {}
    for name, priority, wall, per_job, jobs, per_user, _ in rows:
        found[name] = QueueQos(
            name,
            priority=_number(priority),
            max_time=_seconds(wall, inf),
            max_nodes=_of_tres(per_job, "node"),
            user_jobs=_limit(jobs),
            user_nodes=_of_tres(per_user, "node"),
            user_cores=_of_tres(per_user, "cpu"),
            is_preemptible=name in preempted,
        )
    return found


def _of_tres(text: str, kind: str) -> float:
    words = dict(word.split("=", 1) for word in text.split(",") if "=" in word)
    return _limit(words.get(kind))


def _count(text: str | None) -> int | None:
    """A whole number, as ``2-4`` the first; None for anything else."""
    match = re.match(r"\d{1,12}(?!\d)", text or "", re.ASCII)
    return int(match[0]) if match else None


def _limit(text: str | None) -> float:
    found = _count(text)
    return inf if found is None else float(found)


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if abs(found) < inf else 0.0


def _seconds(text: str | None, otherwise: float) -> float:
    """Slurm's durations; ``UNLIMITED`` and the like are ``otherwise``. A bare number is in minutes."""
    if not text:
        return otherwise
    try:
        found = parse_duration(text)
    except InputError:
        return otherwise
    return found * 60 if text.isdecimal() else found


def _moment(text: str | None, otherwise: float | None = None) -> float | None:
    if text and text.isascii() and text.isdecimal() and len(text) < 13:
        return float(text)
    found = read_local_time(text)
    return otherwise if found is None else found


def read_limit(text: str | None) -> float:
    """Seconds of a walltime as it is asked for; infinity if there is none."""
    return _seconds(text, inf)


def read_bytes(text: str) -> float:
    """Bytes of an amount of memory such as 4000M; 0 if it makes no sense."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)([KMGT]?)[nc]?", text, re.ASCII)
    return float(match[1]) * _SCALES.get(match[2] or "M", 2**20) if match else 0.0


def view_of(
    now: float,
    nodes: str | None,
    partitions: str | None,
    jobs: str | None,
    reservations: str | None = None,
    qos: str | None = None,
    *,
    me: str = "",
    groups: Collection[str] = (),
    account: str = "",
) -> QueueView | None:
    """The queue from all answers (None: there was none), at this time of the system's clock. None if too
    little is known: without nodes, partitions and jobs nothing can be predicted."""
    has_nodes, has_parts = read_nodes(nodes or ""), read_partitions(partitions or "", groups, account)
    if not has_nodes or not has_parts or jobs is None:
        return None
    running, pending = read_jobs(jobs)
    held = {name for one in running for name in one.nodes}
    unseen = [one.name for one in has_nodes.values() if one.is_up and one.free_cores < one.cores]
    unseen = [name for name in unseen if name not in held]
    unknown = []
    if unseen:
        unknown.append(f"who holds {counted(len(unseen), 'busy node')} ({unseen[0]}): taken never to end")
    unknown += ["reservations: scontrol does not tell"] * (reservations is None)
    unknown += ["limits of the qualities of service: sacctmgr does not tell"] * (qos is None)
    return in_order(
        QueueView(
            now,
            has_nodes,
            has_parts,
            tuple(running),
            tuple(pending),
            tuple(read_reservations(reservations or "")),
            read_qos(qos or ""),
            me,
            tuple(unknown),
        )
    )


@dataclass
class SlurmQueue:
    """Asks Slurm for its whole queue, for all who want to know: no more often than the most eager of them."""

    account: str = ""
    #: rounds of questions so far
    asked: int = 0
    _view: QueueView | None = None
    _asked_at: float = -inf
    _qos: str | None = None
    _qos_at: float = -inf
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of_process(cls, account: str = "") -> "SlurmQueue":
        """The one that all clusters of this process share which pay from that account on this Slurm."""
        key = (account, os.environ.get("SLURM_CONF", ""), id(asyncio.get_running_loop()))
        return _OF_PROCESS.setdefault(key, cls(account=account))

    async def look(self, age: float) -> QueueView | None:
        """The queue, as it was so many seconds ago at most; None if Slurm does not answer."""
        async with self._turn:
            if monotonic() - self._asked_at >= age:
                self._asked_at = monotonic()
                self.asked += 1
                self._view = await self._ask()
        return self._view

    async def _ask(self) -> QueueView | None:
        if monotonic() - self._qos_at >= _QOS_LASTS:
            self._qos, self._qos_at = await _said(QOS), monotonic()
        nodes, partitions, jobs, reservations = await asyncio.gather(
            *map(_said, (NODES, PARTITIONS, JOBS, RESERVATIONS))
        )
        return view_of(
            time(),
            nodes,
            partitions,
            jobs,
            reservations,
            self._qos,
            me=_user(),
            groups=_groups(),
            account=self.account,
        )


_OF_PROCESS: dict[tuple[str, str, int], SlurmQueue] = {}


async def _said(command: Iterable[str]) -> str | None:
    heard = await hear(tuple(command))
    return heard.out if heard is not None and heard.code == 0 else None


def _user() -> str:
    with suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return ""


def _groups() -> frozenset[str]:
    found = set()
    for number in {os.getgid(), *os.getgroups()}:
        with suppress(KeyError):
            found.add(grp.getgrgid(number).gr_name)
    return frozenset(found)
