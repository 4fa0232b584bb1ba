"""The verbs: decision code, one idea per file. Found by concern and name."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from dask_hpc.strategies.checkpoint.agent_rule import AgentRule
from dask_hpc.strategies.failure.node_stealing import NodeStealing
from dask_hpc.strategies.files.throughput import Throughput
from dask_hpc.strategies.io.io_aware import IoAware, IoAwareQueue
from dask_hpc.strategies.io.io_lanes import IoLanes
from dask_hpc.strategies.lending.favor_checkpoints import FavorCheckpoints
from dask_hpc.strategies.lending.favor_jobs import FavorJobs
from dask_hpc.strategies.malleability.dask_adaptive import DaskAdaptive
from dask_hpc.strategies.malleability.egs import Egs
from dask_hpc.strategies.malleability.elastic import Elastic, ElasticQueue
from dask_hpc.strategies.malleability.fcfs_malleable import FcfsMalleable
from dask_hpc.strategies.malleability.fpsma import Fpsma
from dask_hpc.strategies.malleability.give_way import GiveWay
from dask_hpc.strategies.malleability.malleable_easy import MalleableEasy, MalleableEasyQueue
from dask_hpc.strategies.malleability.parsl_simple import ParslSimple
from dask_hpc.strategies.malleability.performance_aware import PerformanceAware
from dask_hpc.strategies.malleability.restart import Restart
from dask_hpc.strategies.memory.memory_lanes import MemoryLanes
from dask_hpc.strategies.nodes.contiguous import Contiguous
from dask_hpc.strategies.nodes.first import First
from dask_hpc.strategies.nodes.least_congested import LeastCongested
from dask_hpc.strategies.nodes.spread import SpreadOut
from dask_hpc.strategies.placement.in_situ import InSitu
from dask_hpc.strategies.power.corridor import PowerCorridor
from dask_hpc.strategies.queue.conservative_backfill import ConservativeBackfill
from dask_hpc.strategies.queue.easy_backfill import EasyBackfill, EasySjbf
from dask_hpc.strategies.queue.fcfs import Fcfs
from dask_hpc.strategies.queue.flexible_backfill import FlexibleBackfill
from dask_hpc.strategies.queue.max_value import MaxValue
from dask_hpc.strategies.queue.moldable import Moldable
from dask_hpc.strategies.queue.order import Area, Ljf, Priority, Sjf
from dask_hpc.strategies.queue.random_order import RandomOrder
from dask_hpc.strategies.queue.slack import Slack
from dask_hpc.strategies.queue.window_backfill import WindowBackfill
from dask_hpc.strategies.size.demand import Demand
from dask_hpc.strategies.tail.backup_tasks import BackupTasks
from dask_hpc.strategies.together.good_neighbours import GoodNeighbours

_OURS: tuple[Any, ...] = (
    Fcfs, Sjf, Ljf, Area, Priority, Slack, MaxValue, RandomOrder,  # in order of something
    EasyBackfill, EasySjbf, WindowBackfill, FlexibleBackfill, ConservativeBackfill,  # with overtaking
    Moldable, MalleableEasyQueue, MalleableEasy,  # on other sizes than asked for
    IoAwareQueue, IoAware,  # by balance of I/O
    FcfsMalleable, Fpsma, Egs, PerformanceAware,  # grow and shrink
    Restart,  # by stopping and starting again
    ElasticQueue, Elastic, GiveWay,  # ours
    DaskAdaptive, ParslSimple,  # what people know from elsewhere
    NodeStealing,  # after failures
    First, Contiguous, SpreadOut, LeastCongested,  # where jobs are
    FavorCheckpoints, FavorJobs,  # nodes for services
    PowerCorridor,  # within bounds of power
    InSitu,  # in situ pipelines
    IoLanes,  # what reads at the same time, and beside what
    GoodNeighbours,  # which kinds of tasks share a node
    MemoryLanes,  # what runs in the memory of a worker
    BackupTasks,  # what runs twice
    Throughput,  # where scratch files are kept
    AgentRule,  # where copies of results are kept
    Demand,  # how many nodes there are at all
)  # fmt: skip

#: what a policy decides about; "none" may be said of every concern but the queue and the size
CONCERNS: tuple[str, ...] = (
    "queue", "malleability", "nodes", "failure", "lending", "power", "placement", "io", "together", "memory",
    "tail", "files", "checkpoint", "size",
)  # fmt: skip


@cache
def strategies(concern: str) -> Mapping[str, Any]:
    """Strategy classes of a concern by name: ours, and those of the group ``dask_hpc.strategies``."""
    found = {cls.name: cls for cls in _OURS if cls.concern == concern}
    for cls in _theirs():
        if cls.concern == concern:
            found.setdefault(cls.name, cls)
    return found


@cache
def _theirs() -> tuple[Any, ...]:
    # once: it reads what all installed packages say of themselves
    return tuple(point.load() for point in entry_points(group="dask_hpc.strategies"))
