"""A Dask preload module for the clients of a script that ``dask-hpc run`` started: they work for one job.

Every ``Client`` that the script makes tells the scheduler so itself, hence threads, asynchronous clients
and several clients in a row are all the same, and the script's own code is not touched.
"""

import json
import logging
import os
from typing import Any

logger = logging.getLogger(__name__)

#: the environment variable that holds the job's request, as JSON
VARIABLE = "HPC_SCRIPT_JOB"


async def dask_setup(client: Any) -> None:
    """Say whose work it is that this client submits outside of jobs."""
    request = json.loads(os.environ[VARIABLE])
    if await client.scheduler.hpc_script(client=client.id, request=request) is None:
        logger.info(
            "dask-hpc: %s is a cluster of the script's own, not under control", client.scheduler.address
        )
