"""The cluster a script runs on: started here, started by Slurm, or there already. Nothing of ours remains."""

import json
import logging
import os
import secrets
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep
from typing import Any, NamedTuple

import dask
from dask.system import CPU_COUNT
from distributed import Client

from dask_hpc import config
from dask_hpc.cli import ignore_ctrl_c
from dask_hpc.cli.group import cluster_client
from dask_hpc.cluster.client import script
from dask_hpc.cluster.client.malleable import malleable
from dask_hpc.cluster.client.manager import manage
from dask_hpc.cluster.request import login, make_request
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.job import is_over
from dask_hpc.model.units import count_nodes
from dask_hpc.policy import Policy

_INHERIT = "DASK_INTERNAL_INHERIT_CONFIG"
_OURS = ("local", "slurm")
_MOST_WORKERS = 8  # of a local cluster when nobody says how many
_PATIENCE = 5.0  # seconds for the scheduler to notice that the script's clients are gone


class Place(NamedTuple):
    """Where a script is to run: ``--cluster``, ``--policy``, ``--nodes``, ``--dry-run``."""

    where: str
    policy: Policy | None
    nodes: tuple[int, int] | None
    dry_run: bool


class RunCluster:
    """A managed cluster, seen from the script that runs on it."""

    def __init__(
        self, client: Client, policy: Policy, described: str, name: str, nodes: tuple[int, int]
    ) -> None:
        self._client = client
        self.policy = policy
        self.described = described
        low, high = nodes
        # A policy that resizes lets the job grow; one that does not had better start it large.
        wishes = {"nodes": low if policy.malleability else high, "min_nodes": low, "max_nodes": high}
        word = "".join(c for c in one_line(name) if c.isprintable())[:80] or "script"
        self._request = {
            "id": f"{word}-{secrets.token_hex(4)}",
            **make_request(word, login=login(), **wishes),
        }
        self.job = self._request["id"]
        self._first = self._ask("hpc_story_since", number=10**12)["first"]
        self.began = self.status()["time"]

    def environment(self) -> dict[str, str]:
        """What makes the script's clients find the cluster, and work for the script's job."""
        client: dict[str, Any] = dict(dask.config.get("distributed.client"))
        client["preload"] = [*client["preload"], script.__name__]
        if client["preload-argv"] and not isinstance(client["preload-argv"][0], str):
            client["preload-argv"] = [*client["preload-argv"], []]  # one list for each module
        more: dict[str, Any] = {"distributed": {"client": client}}
        if "logging-file-config" not in dask.config.config:
            more["logging"] = {"distributed.preloading": "warning", **dask.config.get("logging", {})}
        # Dask's own way to hand configuration to another process
        inherited = dask.config.deserialize(os.environ[_INHERIT]) if _INHERIT in os.environ else {}
        return {
            _INHERIT: dask.config.serialize(dask.config.merge(inherited, more)),
            "DASK_SCHEDULER_ADDRESS": self._client.scheduler.address,
            script.VARIABLE: json.dumps(self._request),
        }

    def status(self) -> dict[str, Any]:
        """As ``Manager.status()``."""
        found: dict[str, Any] = self._ask("hpc_status")
        return found

    def story(self) -> tuple[int, list[dict[str, Any]]]:
        """How many rows since the start are forgotten, and the others."""
        page = self._ask("hpc_story_since", number=self._first)
        return page["first"] - self._first, list(page["rows"])

    def settle(self) -> None:
        """Wait until the script's jobs are over, now that it is."""
        limit = monotonic() + _PATIENCE
        while monotonic() < limit:
            status = self.status()
            jobs = [job for job in status["jobs"] if job["script"] == self.job]
            if self.job not in status["scripts"] and all(is_over(job["state"]) for job in jobs):
                return
            sleep(0.05)

    def _ask(self, call: str, **arguments: Any) -> Any:
        found = self._client.sync(getattr(self._client.scheduler, call), **arguments)
        if found is None:
            raise ConnectionError("this cluster is not managed any more")
        return found


@contextmanager
def the_cluster(place: Place, name: str) -> Iterator[RunCluster]:
    """The cluster that ``--cluster`` names, managed; as it was before, or gone, at the end."""
    where_it_is = _started(place) if place.where in _OURS else _found(place)
    with where_it_is as (client, described, there):
        in_force = client.sync(client.scheduler.hpc_set)
        chosen = Policy.parse(in_force["policy"], name=in_force["name"])
        described += ", a dry run" if in_force["state"] == "dry run" else ""
        yield RunCluster(client, chosen, described, name, place.nodes or there)


@contextmanager
def _found(place: Place) -> Iterator[tuple[Client, str, tuple[int, int]]]:
    with cluster_client(place.where) as client:
        was_managed = client.sync(client.scheduler.hpc_status) is not None
        if was_managed and place.dry_run:
            raise InputError("--dry-run", "this cluster is managed already", "a cluster that is not")
        policy = place.policy if was_managed else place.policy or _default()
        manager = manage(client, policy, dry_run=place.dry_run)
        try:
            yield client, place.where, (1, max(1, len(manager.status()["nodes"])))
        finally:
            with suppress(OSError, RuntimeError):  # the cluster is gone, or closed already
                if not was_managed and _is_idle(manager.status()):
                    manager.close()


@contextmanager
def _started(place: Place) -> Iterator[tuple[Client, str, tuple[int, int]]]:
    """As large as the work needs, between the two sizes; in a dry run as large as it may be."""
    low, high = place.nodes or (1, min(CPU_COUNT, _MOST_WORKERS))
    low = high if place.dry_run else low
    take = partial(manage, dry_run=True) if place.dry_run else malleable
    with (
        _local(low, high) if place.where == "local" else _slurm() as cluster,
        Client(cluster, set_as_default=False) as client,
        take(cluster, place.policy or _default()),
    ):
        if low < high:
            cluster.adapt(minimum_jobs=low, maximum_jobs=high)
        elif place.where == "slurm":
            cluster.scale(jobs=high)
        size = count_nodes(high) if low == high else f"{low} to {count_nodes(high)}"
        machine = "this machine" if place.where == "local" else "Slurm"
        yield client, f"{size} of {machine}, dashboard {_page(client)}", place.nodes or (1, high)


def _default() -> str:
    """A script's job can change its size, so the policy had better use that; unless another is configured."""
    configured = config.policy()
    return "elastic" if configured == config.DEFAULTS["hpc"]["policy"] else configured


def _page(client: Client) -> str:
    return str(client.dashboard_link).removesuffix("status") + "hpc"


def _local(low: int, high: int) -> Any:
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=low,
        threads_per_worker=max(1, CPU_COUNT // high),
        dashboard_address=":0",
        silence_logs=logging.ERROR,
        preload=[ignore_ctrl_c.__name__],
    )


def _slurm() -> Any:
    where = "--cluster slurm"
    handler = signal.getsignal(signal.SIGINT)
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError:
        raise InputError(where, "dask-jobqueue is not installed", "pip install 'dask-hpc[slurm]'") from None
    finally:
        signal.signal(signal.SIGINT, handler)  # dask-jobqueue puts its own there when it is imported
    if not shutil.which("sbatch"):
        raise InputError(where, "found no sbatch", "a machine from which Slurm jobs can be submitted")
    try:
        return SLURMCluster(scheduler_options={"dashboard_address": ":0"})
    except (ValueError, TypeError) as error:
        path = os.path.join(dask.config.PATH, "jobqueue.yaml")
        raise InputError(where, str(error), f"cores, memory, ... under jobqueue.slurm in {path}") from None


def _is_idle(status: dict[str, Any]) -> bool:
    """Whether nobody needs the cluster to be managed. Called when our own script is over."""
    return not status["scripts"] and all(is_over(job["state"]) for job in status["jobs"])
