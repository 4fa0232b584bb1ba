"""``dask_hpc.protect``: results of a cluster survive the workers that hold them."""

import warnings
from collections.abc import Iterable, Mapping, ValuesView
from typing import Any

from dask.base import is_dask_collection
from distributed import Client, default_client, futures_of

from dask_hpc import config
from dask_hpc.checkpoint.client.restore import read_key, store_settings
from dask_hpc.checkpoint.scheduler.context import NAME
from dask_hpc.checkpoint.scheduler.controller import Controller, ask
from dask_hpc.checkpoint.scheduler.stored import SUFFIX
from dask_hpc.checkpoint.store.files import Files
from dask_hpc.checkpoint.store.manifest import check_name
from dask_hpc.checkpoint.version import LEVELS, PARTNER, STORE, read_levels, read_seconds
from dask_hpc.checkpoint.worker.loaders import may_be_stored
from dask_hpc.model.errors import InputError, shown
from dask_hpc.strategies.checkpoint.when import AUTO, DALY, YOUNG, Every
from dask_hpc.strategies.checkpoint.which import OBJECTIVES

_RULES = (AUTO, YOUNG, DALY)
_EVERY = 'auto, young, daly, a time such as "30s", or a time for each level'
_OBJECTS = "a persisted collection, futures, or lists and dictionaries of them"
_MOST_COPIES = 16


def protect(
    obj: Any,
    name: str,
    every: str | float | Mapping[str, str | float] = AUTO,
    levels: Iterable[str] | str | None = None,
    copies: int = 1,
    *,
    objective: str = "time",
    unpickle: bool = False,
    client: Client | None = None,
) -> Any:
    """Keep copies of the results that ``obj`` consists of on other nodes, and load them from there when a
    worker dies: computed and scattered results alike, those that are there and those that are still to come.

    ``obj`` is a persisted collection (xarray, dask array, dataframe, bag, delayed), futures, or lists and
    dictionaries of them. It is given back at once (or an awaitable of it, if the client is asynchronous):
    copies are made in the background, beside the computation.

    ``every`` is how long a new result may be without a copy. ``"auto"`` weighs what commits cost against what
    failures do, for each level; ``"young"`` and ``"daly"`` are the well-known formulas; or say a time, or a
    time for each level. If all of ``obj`` is ready, it is copied at once. If you protect something new under
    the same name, in each step of a program, the new is copied when it is due, and what was copied last
    stays until then: what has to be computed again is never more than one interval's work.

    ``levels`` are ``"partner"`` (memory of another node), ``"disk"`` (the disk of that node, too) and
    ``"store"``: the directory or URL of the configuration ``hpc.checkpoint.store``, from where results are
    loaded when no other copy is left, and by the next cluster, if it protects results of the same graph under
    the same name (what has begun by then is computed). Without ``levels``, those of ``hpc.checkpoint.levels``
    that there are. Results that have to be pickled are loaded from the store only with ``unpickle=True``, as
    reading them can run anything: only for stores that nobody else can write to.

    ``levels="auto"`` chooses among them, again and again: those with which commits, restores and work that is
    done again are expected to take least time, or with ``objective="energy"`` least energy; it may be none,
    as long as computing again is less dear than copies. The story says what was chosen, what it is expected
    to lose in an hour, and what the next best would.

    ``copies`` is how many nodes keep one: so many nodes may die at once.
    """
    check_name(name)
    settings = config.checkpoint()
    aim = read_aim(levels, every, objective)
    if levels is None or levels == AUTO:  # those that are possible
        levels = possible_levels(settings, settings["store"] is not None)
    chosen, often = read_levels(levels, has_store=True), _every(every)
    if PARTNER not in chosen:
        raise InputError("levels", f"found {shown(levels)}", "partner, alone or with others")
    if isinstance(every, Mapping) and (unknown := [one for one in every if one not in chosen]):
        raise InputError("every", f"found {shown(unknown[0])}", ", ".join(chosen))
    if type(copies) is not int or not 1 <= copies <= _MOST_COPIES:
        raise InputError("copies", f"found {shown(copies)}", f"a whole number, 1 to {_MOST_COPIES}")
    store = _store(name, settings, unpickle) if STORE in chosen else None
    wanted = {"name": name, "keys": _keys(obj), "copies": copies, "levels": list(chosen), "every": often}
    wanted |= {"store": store, "aim": aim}
    client = client or default_client()
    return client.sync(_protect, client, obj, wanted)


def unprotect(name: str, *, client: Client | None = None) -> Any:
    """Copies of what was protected under this name are not kept any longer."""
    client = client or default_client()
    return client.sync(_ask, client, "hpc_unprotect", check_name(name))


def protected(name: str, *, wait: bool = False, client: Client | None = None) -> Any:
    """How much of what is protected under this name has copies, how often they are made, and why so.
    ``wait``: have all that is ready copied first."""
    client = client or default_client()
    call = "hpc_protected_commit" if wait else "hpc_protected"
    return client.sync(_ask, client, call, check_name(name))


async def _protect(client: Client, obj: Any, wanted: dict[str, Any]) -> Any:
    await ask(client, "hpc_protect", **wanted)
    return obj


async def _ask(client: Client, call: str, name: str) -> Any:
    await client.register_plugin(Controller(), name=NAME)
    found = await getattr(client.scheduler, call)(name=name)
    if found == {}:
        raise InputError("name", f"found {shown(name)}", "a name under which something is protected")
    return found


def _keys(obj: Any) -> list[Any]:
    futures = futures_of(obj)
    if not futures:
        parts = obj.values() if isinstance(obj, Mapping) else obj
        parts = parts if isinstance(parts, list | tuple | set | frozenset | ValuesView) else (obj,)
        lazy = any(map(is_dask_collection, parts))
        allowed = "a collection that was persisted: u = u.persist()" if lazy else _OBJECTS
        raise InputError("protect", f"found {shown(obj)}", allowed)
    keys = list(dict.fromkeys(future.key for future in futures))
    if shuffled := [key for key in keys if not may_be_stored(key)]:
        warnings.warn(
            f"{len(shuffled)} of {len(keys)} results are parts of a shuffle. They get no copies: if they are "
            "lost, Dask shuffles again.",
            stacklevel=4,
        )
    return keys


def _store(name: str, settings: Mapping[str, Any], unpickle: object) -> dict[str, Any]:
    if settings["store"] is None:
        raise InputError(
            "levels",
            "found store, and no store is configured",
            "hpc.checkpoint.store: dask.config.set({'hpc.checkpoint.store': '/shared/checkpoints'})",
        )
    check_name(name + SUFFIX)
    key = read_key(settings["key"])
    root, keep, compress = Files(settings["store"]).root, settings["keep"], settings["compress"]
    return store_settings(root, keep, compress, key, unpickle is True)


def read_aim(levels: Any, every: Any, objective: Any) -> tuple[str, bool] | None:
    """The objective, and whether levels are chosen for it; None if it is as it always was."""
    if objective not in OBJECTIVES:
        raise InputError("objective", f"found {shown(objective)}", " or ".join(OBJECTIVES))
    chooses = isinstance(levels, str) and levels == AUTO
    if not chooses and objective == OBJECTIVES[0]:
        return None
    if every != AUTO:
        asked = 'levels="auto"' if chooses else f"objective={shown(objective)}"
        raise InputError("every", f"found {shown(every)}, and {asked}", "auto, or to leave it out")
    return objective, chooses


def possible_levels(settings: Mapping[str, Any], has_store: bool) -> tuple[str, ...]:
    """Those that are configured, and another node's memory in any case."""
    return read_levels({PARTNER, *settings["levels"]}, has_store)


def _every(found: Any) -> Every:
    if isinstance(found, str) and found in _RULES:
        return found
    if isinstance(found, Mapping) and found and all(isinstance(level, str) for level in found):
        return {level: read_seconds(f"every: {level}", one, _EVERY) for level, one in found.items()}
    return dict.fromkeys(LEVELS, read_seconds("every", found, _EVERY))
