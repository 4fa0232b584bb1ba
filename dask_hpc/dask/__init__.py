"""Every private name of Dask that we touch, and what several rooms ask of it: others say ``compat``.

Each has a contract test in ``tests/dask/`` that fails with the name in its message, so a new Dask release
tells us which of these to look at. Elsewhere only what Dask documents of a task is read.
"""

from dask_hpc.dask.copies import *
from dask_hpc.dask.data import *
from dask_hpc.dask.job_places import *
from dask_hpc.dask.queue import *
from dask_hpc.dask.running import *
from dask_hpc.dask.scheduler import *
from dask_hpc.dask.tasks import *
from dask_hpc.dask.workers import *
