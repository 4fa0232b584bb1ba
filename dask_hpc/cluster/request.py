"""What a job asks for: checked on the client when it is said, checked again on the scheduler."""

import asyncio
from collections.abc import Callable, Mapping
from getpass import getuser
from math import inf
from typing import Any

from distributed import Client

from dask_hpc import dask as compat
from dask_hpc.model.errors import InputError, insist, shown, within
from dask_hpc.model.job import KINDS, Job
from dask_hpc.model.node import Nodes
from dask_hpc.model.power import PowerRange
from dask_hpc.model.units import parse_duration, parse_quantity

#: the annotation that carries a request with every task of the job
ANNOTATION = "hpc_job"
#: the event topic on which the client says that a context was closed, or that data come in it
TOPIC = "hpc"

#: why workers are held that are to have nothing to do any more
DRAIN = "drain"

#: seconds that a change of a job's nodes waits for its program at most
LONGEST_WINDOW = 86_400.0
MOST_NODES = 10_000_000  # far more than any machine, and small enough for every wire format
_LONGEST = 100  # characters of a name
_SIZES = ("nodes", "min_nodes", "max_nodes")
#: how the persisted arrays of a job may lie on its nodes: in whole chunks, which the scheduler knows
LAYOUTS = ("block", "cyclic")
_FIELDS = frozenset(
    ("id", "name", *_SIZES, "kind", "constraint", "walltime", "priority", "power", "user", "layout", "value",
     "deadline", "soft_deadline", "commits", "impure", "traffic", "login")
)  # fmt: skip
#: a walltime that follows from past runs of that name
AUTO = "auto"
#: counted from the submission in a request, and on the clock of the cluster in a job
_DEADLINES = ("deadline", "soft_deadline")


def make_request(name: Any, **fields: Any) -> dict[str, Any]:
    """Plain data for a job of that name. ``None`` stands for the default. Raises ``InputError``."""
    check_word("job name", name, may_be_empty=False)
    where = f"job {shown(name)}"
    found = {key: value for key, value in fields.items() if value is not None}
    found.setdefault("nodes", 1)
    for key in _SIZES:
        value = found.get(key, 1)
        fine = type(value) is int and 1 <= value <= MOST_NODES
        insist(fine, f"{where}: {key}", value, f"a whole number from 1 to {MOST_NODES:,}")
    times = ((key, parse_duration) for key in ("walltime", *_DEADLINES))
    others: tuple[tuple[str, Callable[[Any], Any]], ...] = (("power", PowerRange.read), ("traffic", _rate))
    for key, read in (*times, *others):
        if key in found and (key, found[key]) != ("walltime", AUTO):
            with within(f"{where}: {key}"):
                found[key] = read(found[key])
    for key in ("kind", "constraint", "user", "login"):
        check_word(f"{where}: {key}", found.get(key, ""))
    priority = found.get("priority", 0)
    fine = isinstance(priority, int | float) and not isinstance(priority, bool) and -1e15 < priority < 1e15
    insist(fine, f"{where}: priority", priority, "a number")
    value = found.get("value", 0)
    fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
    insist(fine, f"{where}: value", value, "a number, 0 or more")
    for key in ("commits", "impure"):
        insist(type(found.get(key, False)) is bool, f"{where}: {key}", found.get(key), "true, false")
    layout = found.get("layout", LAYOUTS[0])
    insist(layout in LAYOUTS, f"{where}: layout", layout, ", ".join(LAYOUTS))
    if found.get("walltime") == inf:
        del found["walltime"]
    if "kind" not in found:
        low, high = found.get("min_nodes", found["nodes"]), found.get("max_nodes", found["nodes"])
        found["kind"] = "malleable" if low != high else "rigid"
    insist(found["kind"] in KINDS, f"{where}: kind", found["kind"], ", ".join(KINDS))
    _model(found | {"id": name})
    return {"name": name, **found}


def _rate(found: Any) -> float:
    return parse_quantity(found, "B/s")


def login() -> str:
    """Who runs this process, for people to see; empty if nobody knows."""
    try:
        found = getuser()
        check_word("login", found)
    except Exception:  # no such user in this container, or a name that no screen can show
        return ""
    return found


def read_request(request: object, submitted: float) -> tuple[str, Job]:
    """The name and the job of a request that came over the wire. Raises ``InputError``."""
    if not isinstance(request, Mapping) or not _FIELDS.issuperset(request):
        raise InputError("job", f"found {shown(request)}", "what dask_hpc.job() makes")
    fields = dict(request)
    job_id = fields.pop("id", None)
    check_word("job id", job_id, may_be_empty=False, longest=2 * _LONGEST)
    checked = make_request(fields.pop("name", None), nodes=fields.pop("nodes", 1), **fields)
    name = checked.pop("name")
    return name, _model(checked | {"id": job_id, "submitted": submitted})


def read_workers(scheduler: Any, where: str, given: object, nodes: Nodes | None = None) -> list[str]:
    """Addresses of connected workers, named as Dask knows them or by their node. Raises ``InputError``."""
    one: Any = [given] if type(given) in (str, int) else given
    fine = isinstance(one, list | tuple | set) and all(type(name) in (str, int) for name in one)
    insist(fine, f"{where}: workers", given, "addresses or names of workers, or nodes")
    of_nodes = {} if nodes is None else {name: nodes.workers(str(name)) for name in one}
    found = {
        name: of_nodes.get(name) or those for name, those in compat.named_workers(scheduler, one).items()
    }
    unknown = [name for name, addresses in found.items() if not addresses]
    insist(not unknown, f"{where}: workers", unknown, "workers that are connected")
    return list(dict.fromkeys(address for addresses in found.values() for address in addresses))


def _model(fields: dict[str, Any]) -> Job:
    submitted = fields.get("submitted", 0.0)
    known = {key: value for key, value in fields.items() if key not in ("layout", "login")}
    if known.get("walltime") == AUTO:
        del known["walltime"]
    return Job(**known | {key: submitted + known[key] for key in _DEADLINES if key in known})


def read_change(nodes: Any) -> int:
    """How many nodes more, or less, a job wants. Raises ``InputError``."""
    fine = type(nodes) is int and 0 < abs(nodes) <= MOST_NODES
    insist(fine, "request: nodes", nodes, "+1, -1 and so on")
    return nodes


def read_number(where: str, number: Any) -> None:
    """A place in a row of things that are numbered from 0, or an ``InputError``."""
    insist(type(number) is int and number >= 0, where, number, "a whole number >= 0")


def check_word(where: str, value: object, *, may_be_empty: bool = True, longest: int = _LONGEST) -> None:
    """A name that fits on one line of any screen, or an ``InputError``."""
    fine = isinstance(value, str) and len(value) <= longest and value.isprintable()
    fine = fine and bool(str(value).strip() or may_be_empty)
    insist(fine, where, value, f"a word of at most {longest} characters")


def window_topic(client: str) -> str:
    """The event topic on which the client of that id hears of changes of its jobs' nodes."""
    return f"hpc-window-{client}"


NAME = "dask-hpc"  # of our plugin, among those of a scheduler
_ON_ITS_WAY = 2.0  # seconds for a graph that was submitted just before we ask about its job
_LOOK = 0.05


async def is_managed(client: Client) -> bool:
    """Whether somebody there answers ``ask``: nobody does on a scheduler that does not know our package."""
    try:
        return bool(await client.run_on_scheduler(_has_plugin))
    except Exception:
        return False


def _has_plugin(dask_scheduler: Any) -> bool:
    return NAME in dask_scheduler.plugins


async def ask(client: Client, call: str, **given: Any) -> Any:
    """The answer to one of the calls ``hpc_*``, as plain data."""
    found = await getattr(client.scheduler, call)(**given)
    if found is None:  # what a scheduler answers to a call it does not know
        raise RuntimeError("this cluster is not managed (any more)")
    return _with_lists(found)


async def ask_of_job(client: Client, call: str, job_id: str, **given: Any) -> Any:
    """The answer to a call that concerns one job. A graph and a question travel on ways of their own, so
    a job that is not known yet may be so in a moment."""
    clock = asyncio.get_running_loop().time
    limit = clock() + _ON_ITS_WAY
    while True:
        try:
            return await ask(client, call, id=job_id, **given)
        except InputError as error:
            if error.where != "job" or not isinstance(job_id, str) or clock() > limit:
                raise
        await asyncio.sleep(_LOOK)


def _with_lists(found: Any) -> Any:
    """Lists come out of Dask's messages as tuples; plain data has lists."""
    if isinstance(found, dict):
        return {key: _with_lists(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_with_lists(value) for value in found]
    return found
