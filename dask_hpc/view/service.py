"""The dashboard's pages as a service of a managed cluster."""

from collections.abc import Callable, Mapping
from typing import Any

from dask_hpc.cluster.scheduler.calls import Calls
from dask_hpc.cluster.scheduler.service import Service
from dask_hpc.view.dashboard import Dashboard


class DashboardService(Service):
    """Serves the pages while the cluster is managed."""

    dashboard: Dashboard | None = None

    def start(self) -> None:
        """The pages are there."""
        self.dashboard = Dashboard(self.context.scheduler, self.context.get(Calls))
        self.dashboard.open()

    def close(self) -> None:
        """They are gone."""
        if self.dashboard is not None:
            self.dashboard.close()
            self.dashboard = None

    cancel = close

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        """Where the page is that changes things."""
        return {"hpc_control_page": self.control_page}

    def control_page(self) -> dict[str, Any]:
        """Where the page is on which anybody who has its address may change things."""
        return {"page": None if self.dashboard is None else self.dashboard.control}


SERVICE = DashboardService
