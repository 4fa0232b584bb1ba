"""Clusters of dask-jobqueue whose batch jobs are processes of this machine."""

import asyncio
from contextlib import suppress

from dask_jobqueue import config
from dask_jobqueue.local import LocalCluster as JobQueue
from dask_jobqueue.local import LocalJob


class TidyJob(LocalJob):
    """Leaves neither pipes nor zombies behind, and is counted."""

    submissions = 0

    async def _submit_job(self, script_filename):
        TidyJob.submissions += 1
        return await super()._submit_job(script_filename)

    async def close(self):
        await super().close()
        self.process.stdout.close()
        self.process.stderr.close()
        await asyncio.to_thread(self.process.proc.wait)

    @classmethod
    async def _close_job(cls, job_id, cancel_command):
        with suppress(ProcessLookupError):
            await super()._close_job(job_id, cancel_command)


def batch_cluster(cores=4, processes=2, memory="2 GB", **more):
    """One with jobs of that layout; ``processes=None`` lets dask-jobqueue choose."""
    config.reconfigure()  # distributed's tests clear Dask's configuration
    if processes is not None:
        more["processes"] = processes
    return JobQueue(
        job_cls=TidyJob,
        cores=cores,
        memory=memory,
        interface="lo",
        scheduler_options={"dashboard_address": ":0"},
        worker_extra_args=["--no-dashboard"],
        **more,
    )


def napping(seconds):
    """A task that takes so long. Made here, so that it travels as code: the jobs cannot import this file."""

    def nap(x):
        from time import sleep

        sleep(seconds)
        return x

    return nap


def names_of(client):
    """Names of the connected workers.

    Not those of ``scheduler_info()``: every two seconds the client overwrites it with one without workers.
    """
    return client.run_on_scheduler(lambda dask_scheduler: {w.name for w in dask_scheduler.workers.values()})


def ups_and_downs(client):
    """How many workers came, how many left, and how many results were lost by it."""
    events = [event for _, event in client.get_events("all")]
    kinds = [event.get("action") for event in events]
    lost = sum(len(event.get("lost-computed-tasks", ())) for event in events)
    return kinds.count("add-worker"), kinds.count("remove-worker"), lost
