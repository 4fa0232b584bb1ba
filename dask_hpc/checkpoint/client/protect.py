"""``dask_hpc.protect``: results of a cluster survive the workers that hold them."""

import warnings
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from dask.base import is_dask_collection
from distributed import Client, default_client, futures_of

from dask_hpc import config
from dask_hpc.checkpoint.client.restore import read_key
from dask_hpc.checkpoint.levels import LEVELS, STORE
from dask_hpc.checkpoint.scheduler.controller import NAME, Controller, ask
from dask_hpc.checkpoint.scheduler.stored_results import SUFFIX
from dask_hpc.checkpoint.store.files import Files
from dask_hpc.checkpoint.store.manifest import check_name
from dask_hpc.checkpoint.worker.rescue import may_be_stored
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import parse_quantity
from dask_hpc.strategies.checkpoint.when import AUTO, DALY, YOUNG, Every

_RULES = (AUTO, YOUNG, DALY)
_EVERY = 'auto, young, daly, a time such as "30s", or a time for each level'
_OBJECTS = "a persisted collection, futures, or lists and dictionaries of them"
_MOST_COPIES = 16


def protect(
    obj: Any,
    name: str,
    every: str | float | Mapping[str, str | float] = AUTO,
    levels: Iterable[str] | None = None,
    copies: int = 1,
    *,
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

    ``copies`` is how many nodes keep one: so many nodes may die at once.
    """
    check_name(name)
    settings = config.checkpoint()
    if levels is None:
        levels = _configured(settings)
    chosen, often = _levels(levels), _every(every)
    if isinstance(every, Mapping) and (unknown := [one for one in every if one not in chosen]):
        raise InputError("every", f"found {shown(unknown[0])}", ", ".join(chosen))
    if type(copies) is not int or not 1 <= copies <= _MOST_COPIES:
        raise InputError("copies", f"found {shown(copies)}", f"a whole number, 1 to {_MOST_COPIES}")
    store = _store(name, settings, unpickle) if STORE in chosen else None
    wanted = {"name": name, "keys": _keys(obj), "copies": copies, "levels": chosen, "every": often}
    wanted["store"] = store
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
        lazy = any(map(is_dask_collection, _parts(obj)))
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


def _parts(obj: Any) -> Iterable[Any]:
    if isinstance(obj, Mapping):
        return obj.values()
    return obj if isinstance(obj, list | tuple | set | frozenset) else (obj,)


def _levels(found: Any) -> list[str]:
    words = [found] if isinstance(found, str) else found
    if not isinstance(words, Iterable) or not (chosen := list(words)):
        raise InputError("levels", f"found {shown(found)}", ", ".join(LEVELS))
    for word in chosen:
        if word not in LEVELS:
            raise InputError("levels", f"found {shown(word)}", ", ".join(LEVELS))
    if "partner" not in chosen:
        raise InputError("levels", f"found {shown(chosen)}", "partner, alone or with others")
    return [level for level in LEVELS if level in chosen]


def _configured(settings: Mapping[str, Any]) -> list[str]:
    """The levels that are used if nothing is said: those that are possible."""
    found = [one for one in LEVELS if one in settings["levels"] or one == "partner"]
    return [one for one in found if one != STORE or settings["store"] is not None]


def _store(name: str, settings: Mapping[str, Any], unpickle: object) -> dict[str, Any]:
    if settings["store"] is None:
        raise InputError(
            "levels",
            "found store, and no store is configured",
            "hpc.checkpoint.store: dask.config.set({'hpc.checkpoint.store': '/shared/checkpoints'})",
        )
    check_name(name + SUFFIX)
    key = read_key(settings["key"])
    return {
        "root": Files(settings["store"]).root,
        "keep": settings["keep"],
        "compress": settings["compress"],
        "secret": key.secret if key is not None else None,
        "unpickle": unpickle is True,
    }


def _every(found: Any, where: str = "every") -> Every:
    if isinstance(found, str) and found in _RULES:
        return found
    if isinstance(found, Mapping):
        if not found or not all(isinstance(level, str) for level in found):
            raise InputError(where, f"found {shown(found)}", _EVERY)
        return {level: _seconds(one, f"{where}: {level}") for level, one in found.items()}
    return dict.fromkeys(LEVELS, _seconds(found, where))


def _seconds(found: Any, where: str) -> float:
    try:
        seconds = parse_quantity(found, "s")
    except InputError as error:
        raise InputError(where, error.found, _EVERY) from None
    if not 0 < seconds < inf:
        raise InputError(where, f"found {shown(found)}", "more than 0 s")
    return seconds
