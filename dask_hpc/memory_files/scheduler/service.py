"""Scratch files in memory as a service of a managed cluster: what is shown of them, and the nodes they need.

Files work without management, too; all this looks at the plugin that has them. To say how they are takes the
longer the more blocks there are, and many ask: where it takes long it is said anew only now and then.
"""

import logging
from collections.abc import Iterable, Mapping
from math import inf
from time import perf_counter
from typing import Any

from dask_hpc.cluster.scheduler.service import Context, Samples, Service
from dask_hpc.memory_files.scheduler.plugin import NAME, FilesPlugin
from dask_hpc.policy import Policy

logger = logging.getLogger(__name__)
#: seconds that it may take to say how files are, whoever asks; longer, and it takes this share of all time
_QUICK, _SHARE = 0.005, 0.01


class ScratchFilesService(Service):
    """Shows the file systems that there are, and lets an adaptive cluster have the nodes that they want."""

    metrics = {
        "files": (False, "Scratch files that are kept in memory", "file_system"),
        "files_bytes": (False, "Bytes of those files", "file_system"),
        "files_nodes": (False, "Nodes that keep them", "file_system"),
        "files_blocks": (False, "Blocks of them that nodes have, copies included", "file_system"),
        "files_bytes_per_second": (False, "Speed of the newest operations, on average", "file_system"),
        "files_recommended_bytes_per_second": (False, "The speed that they should have", "file_system"),
        "files_writers": (False, "Files that somebody is writing", "file_system"),
        "files_to_store": (False, "Files that are not in the store as they are in memory", "file_system"),
        "files_lost_blocks": (False, "Blocks that nobody has any more", "file_system"),
    }
    parts = {"files": "files"}
    nodes_for = "files in memory"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._said: Any = None
        #: by the clock, until when that is as good as new
        self._said_until = -inf

    @property
    def _plugin(self) -> FilesPlugin | None:
        """Who has the files, if there are any."""
        found = self.context.scheduler.plugins.get(NAME)
        return found if isinstance(found, FilesPlugin) and found.is_on else None

    def nodes_wanted(self) -> int:
        plugin = self._plugin
        return 0 if plugin is None else plugin.nodes_wanted

    def foresees(self, policy: Policy) -> Iterable[tuple[str, str]]:
        if (plugin := self._plugin) is not None and not self.context.is_dry:
            for system, found in plugin.foresee(policy.files):
                yield "files", f"{system.table.name}: {found.reason}"

    def status(self) -> Mapping[str, Any]:
        """A row for each file system; None if there are none. An error of files is none of the
        cluster's."""
        plugin = self._plugin
        began = perf_counter()
        if plugin is None:
            self._said, self._said_until = None, -inf
        elif began >= self._said_until:
            try:
                self._said = plugin.rows()
            except Exception as error:
                logger.warning("dask-hpc: no status of files: %s: %s", type(error).__name__, error)
                self._said = None
            took = perf_counter() - began
            self._said_until = began + (took / _SHARE if took > _QUICK else 0.0)
        return {"files": self._said}

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        found: dict[str, Samples] = {}
        for row in status["files"] or ():
            said = {
                "": row["files"],
                "_bytes": row["nbytes"],
                "_nodes": len(row["nodes"]),
                "_blocks": sum(node["blocks"] for node in row["nodes"]),
                "_bytes_per_second": row["throughput"],
                "_recommended_bytes_per_second": row["settings"]["recommended"] or None,
                "_writers": row["writers"],
                "_to_store": row["to_store"],
                "_lost_blocks": row["lost"],
            }
            for name, value in said.items():
                if value is not None:
                    found.setdefault(f"files{name}", {})[row["name"]] = value
        return found


SERVICE = ScratchFilesService
