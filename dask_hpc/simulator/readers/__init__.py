"""Workloads from files, and built-in ones by name."""

from pathlib import Path

from dask_hpc.model.errors import InputError, shown
from dask_hpc.simulator.built_in import PREFIX, parse_built_in
from dask_hpc.simulator.readers.elastisim import load_elastisim
from dask_hpc.simulator.readers.swf import read_swf
from dask_hpc.simulator.readers.yaml_workload import read_yaml_workload
from dask_hpc.simulator.workload import Workload


def load_workload(
    path: str | Path, *, processors: str = "requested", per_node: int = 1, start: str = "fewest"
) -> Workload:
    """Read a workload: Standard Workload Format (``.swf``, ``.swf.gz``), our YAML, ElastiSim's ``.json``
    (a configuration or a jobs file), or a built-in one by name (``builtin:esp?malleable=0.5``).

    ``processors`` ("requested" or "used") and ``per_node`` say how SWF's processors become nodes, ``start``
    ("fewest" or "most") on how many nodes ElastiSim's jobs of several sizes start.
    """
    if str(path).startswith(PREFIX):
        return parse_built_in(str(path))
    path = Path(path)
    name = path.name.lower()
    if name.endswith((".swf", ".swf.gz")):
        return read_swf(path, processors=processors, per_node=per_node)
    if name.endswith((".yaml", ".yml")):
        return read_yaml_workload(path)
    if name.endswith(".json"):
        return load_elastisim(path, start=start)
    raise InputError(
        shown(str(path)), "unknown kind of workload file", ".swf, .swf.gz, .yaml, .json, builtin:NAME"
    )
