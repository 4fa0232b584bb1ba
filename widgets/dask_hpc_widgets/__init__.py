"""The notebook face of dask-hpc: see a managed cluster, and tune it."""

from dask_hpc import __version__
from dask_hpc_widgets.allotment_map import AllotmentMap
from dask_hpc_widgets.checkpoint_view import CheckpointView
from dask_hpc_widgets.compare import Compare
from dask_hpc_widgets.control_room import ControlRoom, control_room_of
from dask_hpc_widgets.corridor_chart import CorridorChart
from dask_hpc_widgets.corridor_explorer import CorridorExplorer
from dask_hpc_widgets.jobs_table import JobsTable
from dask_hpc_widgets.neighbours_view import NeighboursView
from dask_hpc_widgets.nodes_table import NodesTable
from dask_hpc_widgets.partition_explorer import PartitionExplorer
from dask_hpc_widgets.policy_panel import PolicyPanel
from dask_hpc_widgets.reservation_explorer import ReservationExplorer
from dask_hpc_widgets.resilience_explorer import ResilienceExplorer
from dask_hpc_widgets.scratch_files_view import ScratchFilesView
from dask_hpc_widgets.story_view import StoryView
from dask_hpc_widgets.what_if import WhatIf

__all__ = [
    "AllotmentMap",
    "CheckpointView",
    "Compare",
    "ControlRoom",
    "CorridorChart",
    "CorridorExplorer",
    "JobsTable",
    "NeighboursView",
    "NodesTable",
    "PartitionExplorer",
    "PolicyPanel",
    "ReservationExplorer",
    "ResilienceExplorer",
    "ScratchFilesView",
    "StoryView",
    "WhatIf",
    "__version__",
    "control_room_of",
]
