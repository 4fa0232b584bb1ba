"""A run of a pipeline as a job: which nodes it may use, from its first task to its last.

Unlike in ``with dask_hpc.job(...)``, only what the pipeline itself submits belongs to it: what its user does
between two iterations does not.
"""

from secrets import token_hex
from typing import Any

import dask
from distributed import Client

from dask_hpc.live.job_context import tell_closed
from dask_hpc.live.remote import ask, is_managed
from dask_hpc.live.request import ANNOTATION, make_request
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import count_nodes


def read_request(name: str, nodes: Any, **rest: Any) -> dict[str, Any] | None:
    """What a pipeline asks for, as ``dask_hpc.job`` reads it; None if it is to be no job."""
    if nodes is None:
        if said := [key for key, value in rest.items() if value is not None]:
            raise InputError("nodes", "found none", f"a whole number, with {' and '.join(said)}")
        return None
    return make_request(name, nodes=nodes, **rest)


class PipelineJob:
    """One job of a managed cluster. It is there from when its nodes are first asked for, until ``close``."""

    def __init__(self, client: Client, request: dict[str, Any], is_dry: bool) -> None:
        self._client = client
        self._request = request
        #: jobs are only thought about: none of them has to wait, or to do with few nodes
        self._is_dry = is_dry
        #: whether it was seen to run, and not to wait again
        self._has_begun = False
        self.id = f"{request['name']}-{token_hex(4)}"

    @staticmethod
    async def on(client: Client, request: dict[str, Any]) -> "PipelineJob | None":
        """A new job; None on a cluster that is not managed, where jobs are plain Dask."""
        if not await is_managed(client):
            return None
        in_force = await ask(client, "hpc_set")
        return PipelineJob(client, request, in_force["state"] == "dry run")

    def __str__(self) -> str:
        return f"job {self.id}, which asks for {count_nodes(self._request['nodes'])}"

    @property
    def annotations(self) -> dict[str, Any]:
        """What its tasks are submitted with."""
        return {ANNOTATION: {"id": self.id, **self._request}}

    async def nodes(self) -> frozenset[str] | None:
        """The nodes that it has and is not giving up, once it has any. None if it may use all: nobody manages
        the cluster any more. A job that was cancelled is an error."""
        while not self._is_dry:
            if not self._has_begun:
                await self._start()
            try:
                found = await ask(self._client, "hpc_job", id=self.id)
            except RuntimeError:
                return None
            except InputError as error:
                if error.where != "job":
                    raise
                self._has_begun = False  # management began anew
                continue
            if found["state"] == "done":
                if found["cancelled"]:
                    raise RuntimeError(f"job {self.id} was cancelled")
                return None
            if found["state"] == "running":
                return frozenset(found["nodes"]) - frozenset(found["gives_up"])
            self._has_begun = False  # it has lost all nodes, and waits again
        return None

    async def close(self) -> None:
        """It is over when its tasks are."""
        await tell_closed(self._client, self.id)

    async def _start(self) -> None:
        """Wait for the first moment at which a task of it can run."""
        with dask.annotate(**self.annotations):
            future = self._client.submit(_begins, key=f"in-situ-begins-{token_hex(4)}", pure=False)
        await future
        self._has_begun = True


def _begins() -> None:
    """Nothing: a task that runs when its job does."""
