"""Workers are the first process of new batch jobs of Slurm, for as long as a cluster is malleable."""

import sys

from batch_cluster import batch_cluster
from dask_jobqueue import SLURMCluster, config
from distributed.utils_test import gen_test

from dask_hpc import malleable
from dask_hpc.cluster.client.batch_jobs import exec_workers


def slurm_cluster(**options):
    config.reconfigure()  # distributed's tests clear Dask's configuration
    more = {"scheduler_options": {"dashboard_address": ":0"}, "asynchronous": True}
    return SLURMCluster(cores=1, memory="1 GB", interface="lo", **more, **options)


def command(cluster):
    return cluster.job_script().rstrip().splitlines()[-1]


@gen_test()
async def test_the_script_execs_the_worker_until_control_is_closed():
    async with slurm_cluster() as cluster:
        before = cluster.job_script()
        assert command(cluster).startswith(f"{sys.executable} -m distributed.")
        manager = await malleable(cluster)
        assert cluster.job_script() == before.replace(f"\n{sys.executable} -m", f"\nexec {sys.executable} -m")
        await manager.close()
        assert cluster.job_script() == before


@gen_test()
async def test_a_script_that_does_so_already_is_not_changed():
    async with slurm_cluster(python="exec python3") as cluster:
        before = cluster.job_script()
        assert exec_workers(cluster) is None
        assert cluster.job_script() == before


@gen_test()
async def test_a_script_that_goes_on_after_the_worker_is_not_changed():
    async with slurm_cluster(worker_extra_args=["\necho the end"]) as cluster:
        assert command(cluster).startswith("echo the end")
        assert exec_workers(cluster) is None


@gen_test()
async def test_other_batch_systems_are_left_alone():
    async with batch_cluster(asynchronous=True) as cluster:
        assert exec_workers(cluster) is None
        assert "exec" not in cluster.job_script()
