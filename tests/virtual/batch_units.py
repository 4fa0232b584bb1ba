"""A cluster object of batch jobs in virtual time: a simulated Slurm starts, preempts and requeues them, and
their workers are those of the virtual cluster."""

import asyncio
from contextlib import asynccontextmanager
from math import inf

from distributed import SpecCluster
from distributed.deploy.spec import ProcessInterface
from simulated_slurm import SimulatedSlurm

from dask_hpc.batch import command

KILL_WAIT = 30.0  # seconds between SIGTERM and SIGKILL
A_WHILE = 10.0
LOOK = 0.5  # seconds between what happens on the nodes


class BatchUnit(ProcessInterface):
    """A batch job of one worker, as dask-jobqueue has them."""

    submit_command = "sbatch"

    def __init__(self, scheduler, site, name, **options):
        super().__init__()
        self.site, self.name, self.job_id = site, str(name), None

    async def start(self):
        self.job_id = self.site.slurm.submit()
        if self.job_id is None:
            raise RuntimeError("sbatch: error: no")
        self.site.names[self.job_id] = self.name
        await super().start()

    async def close(self):
        self.site.slurm.cancel(self.job_id)
        self.site.end(self.job_id)
        await super().close()


class BatchCluster(SpecCluster):
    """Its units and their workers have the same names, as those of dask-jobqueue."""

    def _new_worker_name(self, worker_number):
        return f"unit-{worker_number}"


class VirtualSite:
    """The machine: its Slurm, and the workers of its jobs."""

    def __init__(self, cluster, waits):
        self._cluster = cluster
        self.slurm = SimulatedSlurm(cluster.time, lambda: next(waits))
        self.names = {}
        #: by job, its worker's name while it lives, and tasks that end workers
        self._alive, self._ending = {}, {}
        self.most = 0
        #: units that were told to end, and of which nobody was there until they had who could take anything
        self.alone = []

    def there(self):
        """How many jobs run or wait."""
        return sum(job.state(self.slurm.now) in ("PENDING", "RUNNING") for job in self.slurm.there())

    def lasting(self):
        """Jobs whose workers have been there for a while, and whose end is not in sight."""
        lasting = [job for job in self.slurm.running() if job.end == inf]
        return [job.id for job in lasting if self.slurm.now >= job.starts + job.boot + A_WHILE]

    def end(self, job):
        """Its worker gets SIGTERM, and SIGKILL if that is not enough."""
        name = self._alive.pop(job, None)
        if name is not None:
            self._ending[job] = asyncio.ensure_future(self._end(job, name))

    async def _end(self, job, name):
        closing = self._cluster.within(
            name, self._cluster.workers[name].close(executor_wait=False, reason="signal-15")
        )
        over, is_alone = self._cluster.time() + KILL_WAIT, True
        while not closing.done() and self._cluster.time() < over:
            is_alone = is_alone and not self._alive
            await asyncio.wait([closing], timeout=LOOK)
        self._cluster.workers.pop(name, None)
        if not closing.done():
            self._cluster.kill(name)
        self._ending.pop(job, None)
        self.alone += [name] * is_alone

    async def run(self):
        """What happens on the nodes, until cancelled."""
        while True:
            for job in self.slurm.tick():
                self.end(job)
            for job in self.slurm.there():
                if self.slurm.connects(job.id) and job.id not in self._alive and job.id not in self._ending:
                    self._alive[job.id] = self.names[job.id]
                    await self._cluster.add_worker(name=self.names[job.id])
            self.most = max(self.most, self.there())
            await asyncio.sleep(LOOK)


@asynccontextmanager
async def batch_cluster_on(cluster, site, monkeypatch):
    """A cluster object whose units are batch jobs of this site, on the scheduler of a virtual cluster."""
    monkeypatch.setattr(command, "hear", site.slurm.hear)
    running = asyncio.ensure_future(site.run())
    async with BatchCluster(
        scheduler={"cls": lambda: cluster.scheduler},
        worker={"cls": BatchUnit, "options": {"site": site}},
        asynchronous=True,
    ) as found:
        yield found
        running.cancel()
