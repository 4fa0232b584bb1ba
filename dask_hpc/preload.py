"""A Dask preload module: the scheduler that loads it is under control from its start, without any code.

``dask scheduler --preload dask_hpc.preload [--policy NAME]``, or for every scheduler, also that of a
LocalCluster, in Dask's configuration::

    distributed:
      scheduler:
        preload: [dask_hpc.preload]

``dask_hpc.manage(client)`` gives the handle. There is no ``dask_teardown``: a scheduler that closes
closes its plugins itself.
"""

import logging
from typing import Any

import click

from dask_hpc.cluster.client.manager import prepare
from dask_hpc.cluster.request import NAME
from dask_hpc.model.errors import InputError

logger = logging.getLogger(__name__)


@click.command()
@click.option("--policy", metavar="NAME", help="Name or file of the policy; by default hpc.policy.")
def dask_setup(scheduler: Any, policy: str | None) -> None:
    """Runs jobs on allotments, as a policy decides."""
    try:
        plugin, _ = prepare(policy)
    except InputError as error:
        logger.error("dask-hpc: not under control, plain Dask goes on: %s", error)
        return
    scheduler.add_plugin(plugin, name=NAME, idempotent=True)  # which the scheduler now starts
