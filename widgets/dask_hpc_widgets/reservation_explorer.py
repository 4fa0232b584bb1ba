"""How long to ask for a job whose time is not known, and after which requests to commit."""

from math import isfinite
from typing import Any

import traitlets

from dask_hpc import plan_reservation
from dask_hpc.view.kit import module, style
from dask_hpc_widgets.explorer import Explorer
