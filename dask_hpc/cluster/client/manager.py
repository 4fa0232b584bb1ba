"""``dask_hpc.manage``: put a cluster under a policy, and the handle to talk to it."""

import logging
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import Client, Future
from distributed.deploy import Cluster

from dask_hpc import config
from dask_hpc.cluster.request import DRAIN, ask, ask_of_job
from dask_hpc.cluster.scheduler.plugin import HpcPlugin
from dask_hpc.display import mimebundle
from dask_hpc.model.errors import insist
from dask_hpc.policy import Policy

if TYPE_CHECKING:
    from dask_hpc.cluster.client.watch import Watch
    from dask_hpc.view.course import Alert

logger = logging.getLogger(__name__)


def manage(
    client_or_cluster: Any, policy: str | Path | Policy | None = None, *, dry_run: bool = False
) -> Any:
    """Run jobs on this cluster as a policy decides. Gives a ``Manager``, or an awaitable of one if the
    client or cluster is asynchronous.

    ``policy`` is the name of a ready-made policy, the path of a policy file, or a ``Policy``; by default
    what the configuration says (``hpc.policy``, easy-backfill). If the cluster is managed already, a
    policy that is named here replaces the one in force, and nothing is lost.

    With ``dry_run`` decisions are made and told, and nothing is done: every task runs as in plain Dask.
    """
    plugin, change = prepare(policy, dry_run)
    if isinstance(client_or_cluster, Client):
        return client_or_cluster.sync(_managed, client_or_cluster, plugin, change)
    insist(isinstance(client_or_cluster, Cluster), "manage", client_or_cluster, "a Dask client or cluster")
    is_awaited = client_or_cluster.asynchronous
    client = Client(client_or_cluster, asynchronous=is_awaited, set_as_default=False)
    return client.sync(_managed, client, plugin, change, owns_client=True)


def prepare(policy: str | Path | Policy | None, dry_run: bool = False) -> tuple[HpcPlugin, dict[str, str]]:
    """A plugin as configured, and the change a policy named here means to a cluster that has one already.

    Everything that can be wrong is found here, before anything happens.
    """
    chosen, text = _read(config.policy() if policy is None else policy)
    settings = config.settings()
    settings["dry-run"] = dry_run or settings["dry-run"]
    plugin = HpcPlugin(text, chosen.name, settings)
    return plugin, {} if policy is None else {"policy": text, "name": chosen.name}


def _read(policy: str | Path | Policy) -> tuple[Policy, str]:
    insist(isinstance(policy, str | Path | Policy), "policy", policy, "a name, a path or a Policy")
    chosen = Policy.load(policy)
    text = chosen.to_yaml()
    Policy.parse(text, name=chosen.name)  # as the scheduler will
    return chosen, text


async def _managed(
    client: Client, plugin: HpcPlugin, change: dict[str, str], owns_client: bool = False
) -> "Manager":
    try:
        await client
        await client.register_plugin(plugin)  # does nothing if the cluster is managed already
        in_force = await client.scheduler.hpc_set(**change)
        return Manager(client, in_force["name"], owns_client)
    except BaseException:
        if owns_client:
            await client.close()
        raise


class Manager:
    """A handle to a managed cluster. With an asynchronous client its methods give awaitables, and so do those
    of ``awaited`` on the event loop of any client.

    Several handles to one cluster may exist; closing one ends the management for all.
    """

    def __init__(self, client: Client, policy: str, owns_client: bool, is_awaited: bool = False) -> None:
        self._client = client
        self._owns_client = owns_client
        self._is_awaited = is_awaited
        self._policy = policy
        self._is_closed = False
        self._before_close: list[Callable[[], Awaitable[None]]] = []

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"policy {self._policy}"
        return f"<Manager of {self._client.scheduler.address if self._client.scheduler else '?'}: {state}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return None if self._is_closed else mimebundle(self, **kwargs)

    @property
    def client(self) -> Client:
        """The client it asks through."""
        return self._client

    @property
    def awaited(self) -> "Manager":
        """The same for code that runs on the client's event loop: every method gives an awaitable."""
        return Manager(self._client, self._policy, False, is_awaited=True)

    def status(self) -> Any:
        """Nodes and who holds them; jobs, their state, and why those that wait do; power and its corridor,
        if somebody observes it; what is protected and where its copies are; figures of all jobs that have
        ended, of how much was used, and of what changes of size took. Plain data."""
        return self._sync(self._ask, "hpc_status")

    def power(self) -> Any:
        """Power now, in watts, what it is known by and how well: of the machine, of every node, of every job;
        the corridor and whether it can be kept. Plain data. While power is not watched (no power strategy
        is in force, and ``hpc.power-watch`` is off) it is what the model says."""
        return self._sync(self._ask, "hpc_power")

    def story(self) -> Any:
        """What was decided and what happened, oldest first: a list of plain dicts."""
        return self._sync(self._ask, "hpc_story")

    def asks(self) -> Any:
        """The units that a batch system was asked for and that wait in its queue: the shape of each
        (``walltime``, ``partition``, ``qos``, ``nodes``), in how many seconds it is expected to start
        (``starts_in``, and ``low`` and ``high``, which hold in four cases of five; None where nothing is
        known), and ``why`` it was asked for so. Of clusters that ask for what fits
        (``cluster.adapt(ask="fit")``)."""
        return self._sync(self._ask, "hpc_asks")

    def feed(self, story: int = 0, power: int = 0, jobs: float | None = None, parts: Any = ()) -> Any:
        """What is new since so many rows of the story and samples of power were read, for somebody who looks
        several times a second. ``jobs``: with the jobs that have changed since that time (-1: all).
        ``parts``: with these parts of the status: power, checkpoint, pipelines, holds, nodes, and nodes that
        are ``marked`` (on hold, leaving, drained, lent) or all ``machines``, one by one."""
        return self._sync(self._ask, "hpc_feed", story=story, power=power, jobs=jobs, parts=list(parts))

    @property
    def watch(self) -> "Watch":
        """The course of the cluster, kept up to date for those who follow it: see ``Watch``."""
        from dask_hpc.cluster.client.watch import watch_of  # a cluster can be managed without the room view

        return watch_of(self._client)

    def on_alert(self, act: Callable[["Alert"], object]) -> Callable[[], None]:
        """Call this with every ``Alert`` from now on: a job has failed, the corridor cannot be kept, results
        are lost, a job's walltime nears. On the client's event loop: it must not wait. What it raises is
        logged. Answers how to end it."""
        from dask_hpc.cluster.client.watch import tell_alerts

        return tell_alerts(self.watch, act)

    def why(self, number: int) -> Any:
        """One row of the story, numbered from 0, with the rule that spoke, what it looked at and what it did
        not do instead; None if it is not remembered."""
        return self._sync(self._why, number)

    def control_page(self) -> Any:
        """The address of a page on which policy, corridor and control can be changed in any browser. Whoever
        has it may do so. None if there is no dashboard."""
        return self._sync(self._control_page)

    def snapshot(self) -> Any:
        """What a decision would look at now, for ``simulate(snapshot=...)``: what would come next, under this
        policy or another?"""
        return self._sync(self._snapshot)

    def preview(self, policy: str | Path | Policy | None = None) -> Any:
        """What would be decided now, by the policy in force or by another one, without doing it: a list
        of plain dicts with decision, job, nodes and reason."""
        given = {}
        if policy is not None:
            chosen, text = _read(policy)
            given = {"policy": text, "name": chosen.name}
        return self._sync(self._ask, "hpc_preview", **given)

    def replay(self) -> Any:
        """Make the newest decisions again from what they were made from: how many there are, and the ids
        of those that came out otherwise (there should be none)."""
        return self._sync(self._ask, "hpc_replay")

    def set(
        self, policy: str | Path | Policy | None = None, *, version: int | None = None, **changes: Any
    ) -> Any:
        """Change what is in force, all or nothing: another policy (as for ``manage``), then parameters and
        settings by key path: ``set(**{"malleability.guard": "30s", "settings.fair-shares": True})``.

        Nothing is lost, and what runs keeps running. Answers what is in force then: ``name`` and
        ``policy`` (as YAML), ``settings``, ``state`` (on, paused or off) and how many steps ``undo`` can
        go back. Without arguments it only does that. What cannot be used is an ``InputError``; and so is
        another ``version`` than the one in force, for who changes what he has looked at before.
        """
        asked: dict[str, Any] = {"changes": changes} if changes else {}
        if policy is not None:
            chosen, text = _read(policy)
            asked |= {"policy": text, "name": chosen.name}
        if version is not None:
            asked["version"] = version
        return self._sync(self._ask, "hpc_set", **asked)

    def cancel(self, job: str) -> Any:
        """Stop the job of that id: see ``JobContext.cancel``. Answers its status."""
        return self._sync(self._of_job, "hpc_cancel", job)

    def resize(self, job: str, nodes: int) -> Any:
        """Ask for so many more nodes (+2) for a running job of that id, or fewer (-1): see
        ``JobContext.request``. Answers its status."""
        return self._sync(self._of_job, "hpc_request", job, nodes=nodes)

    def hold_job(self, job: str, why: str = "asked for") -> Any:
        """Do not start the waiting job of that id until ``release_job``. Answers its status."""
        return self._sync(self._of_job, "hpc_keep_back", job, why=why)

    def release_job(self, job: str) -> Any:
        """It may start again. Answers its status."""
        return self._sync(self._of_job, "hpc_keep_back", job, why="")

    def results(self, job: str) -> Any:
        """Futures of a running job's results that somebody holds futures of already."""
        return self._sync(self._results, job)

    def pause(self) -> Any:
        """Decide nothing until ``resume()``: running jobs run on, waiting jobs wait. Answers as ``set``."""
        return self._sync(self._ask, "hpc_set", action="pause")

    def resume(self) -> Any:
        """Decide again. Answers as ``set``."""
        return self._sync(self._ask, "hpc_set", action="resume")

    def undo(self) -> Any:
        """Back to what was in force before the last change; again, one more step back. Answers as ``set``."""
        return self._sync(self._ask, "hpc_set", action="undo")

    def hold(self, workers: Any, why: str = "asked for") -> Any:
        """Let these workers (addresses, names, or names of nodes) start no more tasks until ``release``. What
        they run goes on, what they have not started moves to others, their data stays. Says who is held, and
        who cannot be and why."""
        return self._sync(self._ask, "hpc_hold", workers=workers, why=why)

    def drain(self, nodes: Any) -> Any:
        """Let these nodes have nothing to do: they are held, and drained when what they run has ended; their
        data stays. ``release(nodes, "drain")`` ends that. To let them go, retire their workers."""
        return self.hold(nodes, DRAIN)

    def release(self, workers: Any, why: str | None = "asked for") -> Any:
        """End that hold of these workers, or all of their holds if ``why`` is None. Lists those that work
        again."""
        return self._sync(self._ask, "hpc_release", workers=workers, why=why)

    def give_back(self, nodes: int) -> Any:
        """Have those who keep copies give back so many of the nodes that are lent to them: what is there goes
        to others first, and one always stays. Answers when they have: ``nodes``, and the ``reason`` if these
        are fewer."""
        return self._sync(self._ask, "hpc_give_back", nodes=nodes)

    def before_close(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do this first when the management ends."""
        self._before_close.append(step)

    def close(self) -> Any:
        """End the management: jobs that wait run as in plain Dask. May be called again."""
        if self._is_closed and not self._client.asynchronous and not self._is_awaited:
            return None
        return self._sync(self._close)

    def __enter__(self) -> "Manager":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> "Manager":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _ask(self, call: str, **given: Any) -> Any:
        self._check_open()
        found = await ask(self._client, call, **given)
        if call == "hpc_status":
            self._policy = found["policy"]
        elif call == "hpc_set":
            self._policy = found["name"]
        return found

    def _sync(self, function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        return self._client.sync(function, *args, asynchronous=self._is_awaited or None, **kwargs)

    async def _of_job(self, call: str, job: str, **given: Any) -> Any:
        self._check_open()
        return await ask_of_job(self._client, call, job, **given)

    async def _why(self, number: int) -> Any:
        found = await self._ask("hpc_story_since", number=number, most=1)
        return found["rows"][0] if found["rows"] and found["first"] == number else None

    async def _control_page(self) -> str | None:
        page = (await self._ask("hpc_control_page"))["page"]
        status = self._client.dashboard_link
        return None if page is None or not status else f"{status.rpartition('/')[0]}/{page}"

    async def _snapshot(self) -> Any:
        return pickle.loads(await self._ask("hpc_snapshot"))

    async def _results(self, job: str) -> list[Future]:
        self._check_open()
        return [Future(key, self._client) for key in await self._client.scheduler.hpc_results(id=job)]

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this cluster is not managed any more: its manager was closed")

    async def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for step in self._before_close:
            try:
                await step()
            except Exception:
                logger.exception("dask-hpc: a cluster object was not left as it was")
        if self._client.status == "running":
            await self._client.scheduler.hpc_close()
        if self._owns_client:
            await self._client.close()
