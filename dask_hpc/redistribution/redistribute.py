"""``dask_hpc.redistribute``: lay arrays out anew on the nodes of a cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from distributed import Client, default_client, futures_of

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.layout import Layout
from dask_hpc.redistribution import arrays
from dask_hpc.redistribution.plan import Progress, Redistribution, Wish


def redistribute(
    obj: Any,
    nodes: int | None = None,
    *,
    workers: Sequence[Any] | None = None,
    layout: Any = "block",
    progress: Progress | None = None,
    client: Client | None = None,
) -> Any:
    """Lay the dask arrays in a Dataset, a DataArray, or a dask array out anew, and give the same with its
    arrays there. Values, coordinates, attributes and encodings stay as they are, and so does what is no dask
    array. What is not computed yet is computed first. With an asynchronous client this gives an awaitable.

    ``nodes`` says on how many nodes (hosts, or workers where the cluster is local; see ``hpc.node``): those
    are taken for which least has to move. By default all; results of a running job stay within its nodes.
    ``workers`` says exactly on which workers instead, by name or address.

    ``layout`` is one word for the dimension with the most chunks, or a layout for each dimension:
    ``{"x": "block", "y": "block"}``. The words:

    * ``"block"``: runs, as even as whole chunks allow if that is near enough, else chunks are cut;
      ``"block:100"``: runs of 100 elements;
    * ``"cyclic"``: whole chunks in turn; ``"block-cyclic:100"``: 100 elements in turn;
    * a list of sizes, one for each node: ``[500, 300, 200]``;
    * ``"replicated"``: everything on every node. Dask would reduce that to one copy within seconds; of these
      chunks it does not, as long as they are there. Copies that are lost with a worker do not come back.

    All variables of a Dataset lie on the same node for the same index. A variable without any of the divided
    dimensions lies on one of the nodes.

    As few bytes move as any plan could (``plan_redistribution`` tells how many). Chunks that stay whole move
    as they are and keep their keys, so what else uses them finds them at their new place. Chunks that are
    cut are made anew, with the old ones in memory as long as anybody has them: drop ``obj``
    (``u = redistribute(u, 4)``). Only the pieces that are needed elsewhere travel, from worker to worker,
    a bounded number of bytes at a time. If a worker dies meanwhile, Dask computes again what it had, and
    another one takes its place.

    ``progress`` is called now and then with the bytes that are done, and all of them.
    """
    found = _redistribution(obj, nodes, workers, layout, client)
    return found.carry_out(progress)


def plan_redistribution(
    obj: Any,
    nodes: int | None = None,
    *,
    workers: Sequence[Any] | None = None,
    layout: Any = "block",
    client: Client | None = None,
) -> Any:
    """What ``redistribute`` would do, as a ``Redistribution``; nothing moves before its ``carry_out()``.

    It tells ``nodes``, which nodes are ``leaving``, ``bytes_moved``, the ``lower_bound`` of any plan, and how
    many chunks it ``cuts``. What is not computed yet is computed: before that nobody knows where it lies.
    """
    found = _redistribution(obj, nodes, workers, layout, client)
    return found.client.sync(found.made)


def _redistribution(obj: Any, nodes: Any, workers: Any, layout: Any, client: Client | None) -> Redistribution:
    arrays.check(obj)
    wish = _read(nodes, workers, layout)
    client = _client(obj, client)
    lost = [future for future in futures_of(obj) if future.status == "cancelled"]
    if lost:
        raise InputError(
            "redistribute", f"{len(lost)} chunks were lost or cancelled", "results that are there"
        )
    is_ours = not arrays.is_persisted(obj)
    persisted = client.persist(obj) if is_ours else obj
    return Redistribution(client, obj, arrays.found_in(persisted), is_ours, wish)


def _read(nodes: Any, workers: Any, layout: Any) -> Wish:
    if nodes is not None and workers is not None:
        raise InputError("redistribute", "found nodes and workers", "one of them")
    if nodes is not None and (isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1):
        raise InputError("redistribute: nodes", f"found {shown(nodes)}", "a whole number, 1 or more")
    if isinstance(workers, str | int):
        workers = [workers]
    if workers is not None and (
        not isinstance(workers, Sequence)
        or not workers
        or not all(type(one) in (str, int) for one in workers)
    ):
        raise InputError("redistribute: workers", f"found {shown(workers)}", "names or addresses of workers")
    try:
        found = Layout.read(layout)
    except InputError as error:
        raise error.at("redistribute") from None
    return Wish(found, _word(layout), nodes, workers)


def _word(layout: Any) -> str:
    if isinstance(layout, Mapping):
        return ", ".join(f"{name}: {_word(one)}" for name, one in layout.items())
    return layout if isinstance(layout, str) else shown(layout)


def _client(obj: Any, client: Client | None) -> Client:
    if client is None:
        client = next((future.client for future in futures_of(obj)), None)
    if client is None:
        try:
            client = default_client()
        except ValueError:
            raise InputError("redistribute: client", "there is none", "a Dask client") from None
    if not isinstance(client, Client):
        raise InputError("redistribute: client", f"found {shown(client)}", "a Dask client")
    return client
