"""The cluster a script runs on: started here, started by Slurm, or there already. Nothing of ours remains."""

import json
import logging
import os
import secrets
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic, sleep
from typing import Any

import dask
from dask.system import CPU_COUNT
from distributed import Client

from dask_hpc.cli.cluster import cluster_client
from dask_hpc.live import manage, script
from dask_hpc.live.request import make_request
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.units import count_nodes
from dask_hpc.policy import Policy

_INHERIT = "DASK_INTERNAL_INHERIT_CONFIG"
_MOST_WORKERS = 8  # of a local cluster when nobody says how many
_PATIENCE = 5.0  # seconds for the scheduler to notice that the script's clients are gone


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
        self._request = {"id": f"{word}-{secrets.token_hex(4)}", **make_request(word, **wishes)}
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
            if self.job not in status["scripts"] and all(job["state"] == "done" for job in jobs):
                return
            sleep(0.05)

    def _ask(self, call: str, **arguments: Any) -> Any:
        return self._client.sync(getattr(self._client.scheduler, call), **arguments)


@contextmanager
def the_cluster(
    where: str, policy: Policy | None, nodes: tuple[int, int] | None, name: str
) -> Iterator[RunCluster]:
    """The cluster that ``--cluster`` names, managed; as it was before, or gone, at the end."""
    with ExitStack() as stack:
        client, described, nodes = _client(stack, where, nodes)
        was_managed = client.sync(client.scheduler.hpc_status) is not None
        manager = manage(client, policy)
        in_force = manager.set()
        chosen = Policy.parse(in_force["policy"], name=in_force["name"])
        cluster = RunCluster(client, chosen, described, name, nodes)
        try:
            yield cluster
        finally:
            if not was_managed and _is_idle(cluster):
                manager.close()


def _client(
    stack: ExitStack, where: str, nodes: tuple[int, int] | None
) -> tuple[Client, str, tuple[int, int]]:
    if where not in ("local", "slurm"):
        client = stack.enter_context(cluster_client(where))
        hosts = {worker["host"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()}
        return client, where, nodes or (1, max(1, len(hosts)))
    low, high = nodes or (1, min(CPU_COUNT, _MOST_WORKERS))
    cluster = stack.enter_context(_local(high) if where == "local" else _slurm(high))
    client = stack.enter_context(Client(cluster, set_as_default=False))
    described = f"{count_nodes(high)} of {'this machine' if where == 'local' else 'Slurm'}"
    return client, f"{described}, dashboard {client.dashboard_link}", (low, high)


@contextmanager
def _local(nodes: int) -> Iterator[Any]:
    from distributed import LocalCluster

    # Ctrl-C is for the script: the workers, which are in our process group, inherit that they ignore it.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        cluster = LocalCluster(
            n_workers=nodes,
            threads_per_worker=max(1, CPU_COUNT // nodes),
            dashboard_address=":0",
            silence_logs=logging.ERROR,
        )
    finally:
        signal.signal(signal.SIGINT, handler)
    with cluster:
        yield cluster


@contextmanager
def _slurm(nodes: int) -> Iterator[Any]:
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
        cluster = SLURMCluster(scheduler_options={"dashboard_address": ":0"})
    except (ValueError, TypeError) as error:
        path = os.path.join(dask.config.PATH, "jobqueue.yaml")
        raise InputError(where, str(error), f"cores, memory, ... under jobqueue.slurm in {path}") from None
    with cluster:
        cluster.scale(jobs=nodes)
        yield cluster


def _is_idle(cluster: RunCluster) -> bool:
    """Whether nobody else needs the cluster to be managed."""
    try:
        status = cluster.status()
    except OSError:
        return False
    others = [job for job in status["jobs"] if job["state"] != "done" and job["script"] != cluster.job]
    return not others and not set(status["scripts"]) - {cluster.job}
