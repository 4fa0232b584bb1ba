"""The network as a service of a managed cluster: how much the nodes of each job send each other, what they
get of that where links are shared, and what joins them, for policies that pick nodes by it.

1. Nothing is done on a cluster that does not say where its nodes are (``hpc.topology``).
2. What joins nodes is as the file says. Where it does not say what links carry, and of what Slurm tells its
   jobs, usual bandwidths are assumed; the status says of which levels.
3. How much a job sends is what its user says (``dask_hpc.job(traffic=...)``); else what its workers fetch
   from other nodes of it, as Dask notes with each transfer, over the time in which it has had something to
   do on the nodes it has; else, until there is enough of that, what the last job of its name sent. Dask knows
   who fetched from whom. Plans take it as if each node sent as much to each other one (seed 003, 7.3.3).
   What is measured is what arrived: on a network that is full already that is less than was wanted.
4. What a job gets of that are the bounds of ``planning.network``, best cases: no linear programme is solved
   here. They only foretell. What commits take is measured (``checkpoint.scheduler``), so that a slow network
   shows in intervals without them.
5. A node of which it is not known for long where it is, is told once.
"""

from collections.abc import Mapping
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Context, Samples, Service, Timer, WorkerSetting
from dask_hpc.cluster.scheduler.topology import NodePlaces
from dask_hpc.model.units import counted
from dask_hpc.network.worker import METRIC, ReceivedPlugin
from dask_hpc.planning.network.bounds import thetas
from dask_hpc.planning.network.sends import sent_by_all
from dask_hpc.planning.topology_file import ReadTopology

_ENOUGH = 2  # heartbeats of a job that has something to do
_NEWS = 0.1  # of what was known
_NAMES = 1000  # of jobs, whose traffic is remembered
_PATIENCE = 10.0  # seconds in which a node says where it is
_TOLD = 5  # nodes in one row of the story
_SHOWN = 100  # nodes in the status


class JobFlow:
    """What is seen of a job on the nodes that it has."""

    def __init__(self, nodes: tuple[str, ...]) -> None:
        self.nodes = nodes
        self.nbytes = 0
        #: in which it had something to do
        self.seconds = 0.0

    @property
    def of_node(self) -> float:
        """Bytes per second that each of its nodes sends to the others."""
        return self.nbytes / self.seconds / len(self.nodes) if self.seconds else 0.0


class NetworkWatch(Service):
    """Measures, and says."""

    metrics = {
        "network_theta": (False, "Share of what running jobs send that a full network leaves them", "of"),
        "network_traffic_bytes": (False, "Bytes per second that nodes of running jobs send to each other"),
    }
    parts = {"network": "network"}

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._plugin = WorkerSetting(context, ReceivedPlugin)
        self._timer = Timer(context, "the network", self._look)

    # its life

    def begin(self) -> None:
        self._flows: dict[LiveJob, JobFlow] = {}
        #: of each worker what it said last
        self._heard: dict[str, Mapping[str, int]] = {}
        self._listened = self.context.clock()
        #: per node, of the last jobs by name
        self._last: dict[str, float] = {}
        #: the jobs of which it is measured; of others their users said it
        self._measured: set[str] = set()
        #: nodes of which it is not known where they are: since when, and those of which that was told
        self._since: dict[str, float] = {}
        self._told: set[str] = set()
        self._links: ReadTopology | None = None
        self._revision = -1
        self._shares: tuple[Any, dict[str, float]] = (None, {})
        if self._is_wanted:
            if not self.context.is_dry:
                self._plugin.set(())  # it takes no values
            if (places := self.context.find(NodePlaces)) is not None:
                places.look_again()

    def release(self) -> None:
        self._timer.stop()
        self._plugin.set(None)

    async def settle(self) -> None:
        await self._plugin.settle()

    def cancel(self) -> None:
        self._timer.stop()
        self._plugin.cancel()

    @property
    def _is_wanted(self) -> bool:
        return self.context.settings["topology"] is not None

    # what happens

    def worker_leaves(self, address: str) -> None:
        self._heard.pop(address, None)

    def knows_of(self, job: LiveJob) -> Mapping[str, Any]:
        if job.model.traffic is not None:
            return {}
        self._measured.add(job.id)
        return {"traffic": self._last[job.name]} if job.name in self._last else {}

    def job_ends(self, job: LiveJob) -> None:
        flow = self._flows.pop(job, None)
        if flow is not None and job.id in self._measured and self._is_enough(flow):
            self._last.pop(job.name, None)
            self._last[job.name] = flow.of_node
            if len(self._last) > _NAMES:
                del self._last[next(iter(self._last))]
        self._measured.discard(job.id)

    def refresh(self) -> None:
        places = self.context.find(NodePlaces)
        if places is not None and places.revision != self._revision:
            self._revision = places.revision
            self._links = places.links()
            self.context.indices.topology = None if self._links is None else self._links.topology

    def keep(self) -> None:
        if self._is_wanted and self.context.indices.running and not self._timer.is_set:
            self._timer.set(compat.heartbeat_seconds(self.context.scheduler))

    # every so often

    def _look(self) -> None:
        self._listen()
        self._miss_places()
        self.keep()

    def _listen(self) -> None:
        """To what heartbeats have said."""
        context, now = self.context, self.context.clock()
        passed, self._listened = now - self._listened, now
        holders, node_of = context.holders(), context.nodes.node_of
        for address, said in compat.metrics(context.scheduler, METRIC):
            before, self._heard[address] = self._heard.get(address, {}), said
            node = node_of(address)
            job = holders.get(node)
            if job is None or said == before:
                continue
            flow = self._flow_of(job)
            for sender, total in said.items():
                new = total - before.get(sender, 0)
                other = node_of(sender)
                if other != node and holders.get(other) is job:
                    flow.nbytes += max(0, new)
        for job in context.running_jobs():
            flow = self._flow_of(job)
            if job.unfinished:
                flow.seconds += passed
            if job.id in self._measured and self._is_enough(flow):
                known, found = job.model.traffic, flow.of_node
                if known is None or abs(found - known) > _NEWS * known:
                    context.learn_of(job, traffic=found)

    def _flow_of(self, job: LiveJob) -> JobFlow:
        flow = self._flows.get(job)
        if flow is None or flow.nodes != job.nodes:
            flow = self._flows[job] = JobFlow(job.nodes)
        return flow

    def _is_enough(self, flow: JobFlow) -> bool:
        return flow.seconds >= _ENOUGH * compat.heartbeat_seconds(self.context.scheduler)

    def _miss_places(self) -> None:
        """Nodes of which it is not known for long where they are."""
        if self._links is None and self.context.settings["topology"] != "slurm":
            return  # there is no such file, and that was told
        now, nodes = self.context.clock(), self.context.indices.nodes
        missing = (name for name, node in nodes.items() if not node.place)
        self._since = {name: self._since.get(name, now) for name in missing}
        late = [name for name, since in self._since.items() if now - since >= _PATIENCE]
        if late := [name for name in late if name not in self._told]:
            self._told.update(late)
            more = f" and {len(late) - _TOLD} more" if len(late) > _TOLD else ""
            names = f"{counted(len(late), 'node')}: {', '.join(late[:_TOLD])}{more}"
            self.context.tell("warning", f"hpc.topology: does not say where they are, of {names}")

    # what is shown

    def _thetas(self) -> dict[str, float]:
        """What running jobs get of what they send, by job."""
        indices = self.context.indices
        topology, state = indices.topology, (indices.revision, id(indices.topology))
        if topology is None:
            return {}
        if self._shares[0] != state:
            demands = sent_by_all(topology, indices.running.values())
            self._shares = state, thetas(topology, demands)
        return self._shares[1]

    def of_job(self, job: LiveJob) -> Mapping[str, Any]:
        return {"traffic": job.model.traffic, "theta": self._theta_of(job)}

    def _theta_of(self, job: LiveJob) -> float | None:
        """None of one that does not run, and where nobody knows."""
        indices = self.context.indices
        if indices.topology is None or job.model.traffic is None or job.id not in indices.running:
            return None
        return self._thetas().get(job.id, 1.0)

    def status(self) -> Mapping[str, Any]:
        return {"network": self.part("network")}

    def part(self, name: str) -> Any:
        """None if nobody knows what joins nodes."""
        if self._links is None:
            return None
        jobs = {
            job.id: {
                "traffic": job.model.traffic,
                "is_measured": job.id in self._measured,
                "theta": self._theta_of(job),
            }
            for job in self.context.running_jobs()
        }
        nodes = self.context.indices.nodes
        unplaced = [name for name, node in nodes.items() if not node.place]
        return {
            "levels": [
                {"name": one.name, "bandwidth": one.bandwidth, "is_assumed": one.name in self._links.assumed}
                for one in self._links.topology.levels
            ],
            "unplaced": unplaced[:_SHOWN],
            "jobs": jobs,
        }

    def samples(self, status: Mapping[str, Any]) -> dict[str, Samples]:
        told = status["network"]
        if told is None:
            return {}
        known = [job for job in told["jobs"].values() if job["theta"] is not None]
        found = [job["theta"] for job in known]
        of = {"mean": sum(found) / len(found), "least": min(found)} if found else {}
        sent = {
            job.id: job.model.traffic * len(job.nodes)
            for job in self.context.running_jobs()
            if job.model.traffic is not None
        }
        return {"network_theta": of, "network_traffic_bytes": {"": sum(sent.values())} if sent else {}}


SERVICE = NetworkWatch
