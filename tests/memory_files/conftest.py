"""A small cluster of workers in this process, with a file system."""

from types import SimpleNamespace

import pytest
from distributed import Client, LocalCluster

import dask_hpc
from dask_hpc.memory_files.client.filesystem import MemoryFileSystem


@pytest.fixture(scope="module")
def small_cluster():
    """Three workers; its files are those of ``scratch``, which has small blocks."""
    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit="2GB"
        ) as cluster,
        Client(cluster) as client,
        dask_hpc.MemoryFiles("scratch", block="4 kiB", client=client) as files,
    ):
        yield SimpleNamespace(cluster=cluster, client=client, files=files)


@pytest.fixture
def fs(small_cluster):
    return MemoryFileSystem()
