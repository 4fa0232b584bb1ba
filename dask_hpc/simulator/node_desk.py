"""Nodes for services on a simulated machine: no job gets them until they are given back."""

from collections.abc import Iterable, Sequence

from dask_hpc.model.lending import NodeDesk
from dask_hpc.model.plan import Plan
from dask_hpc.model.snapshot import Indices
from dask_hpc.model.story import Explanation, Happening, Word
from dask_hpc.simulator.service import MachineService, Site


class MachineDesk(NodeDesk):
    """Of one machine."""

    def __init__(self, site: Site, services: Iterable[MachineService]) -> None:
        super().__init__()
        self._site = site
        self._services = {one.borrows: one for one in services if one.borrows}

    @property
    def indices(self) -> Indices:
        return self._site.indices

    def borrower(self, service: str) -> MachineService | None:
        return self._services.get(service)

    def tell(
        self,
        word: Word,
        service: str,
        reason: str,
        nodes: Sequence[str] = (),
        plan: Plan | None = None,
        why: Explanation | None = None,
    ) -> None:
        number = self.indices.revision if plan is None else plan.id
        self._site.story.tell(
            Happening(number, self.indices.now, str(word), service, tuple(nodes), reason, why)
        )

    def wake(self) -> None:
        self._site.decide_soon()
