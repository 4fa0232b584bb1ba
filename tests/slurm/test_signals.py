"""Who learns that Slurm ends a job: it depends on the job script, on the nanny and on who is signalled."""

import asyncio
import sys
from contextlib import ExitStack

import pytest
from dask_on_slurm import dask_cluster
from distributed import Client, WorkerPlugin

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

SHELL = sys.executable  # the script's shell waits for Python
EXEC = f"exec {sys.executable}"  # Python takes the shell's place
ALL = ("scancel",)
FIRST = ("scancel", "--batch", "--signal=TERM")  # only the first process, as with cgroups
#: script, nanny, signal: whether the worker has a second for its farewell
CASES = {
    (SHELL, True, ALL): False,
    (SHELL, True, FIRST): False,
    (EXEC, True, ALL): False,
    (EXEC, True, FIRST): True,
    (EXEC, False, ALL): True,
    (EXEC, False, FIRST): True,
}


class Farewell(WorkerPlugin):
    """Takes a second."""

    def __init__(self, path):
        self.path = path

    async def teardown(self, worker):
        await asyncio.sleep(1)
        with open(self.path, "w") as file:
            file.write("farewell")


def test_a_worker_is_told_only_if_it_or_its_nanny_is_the_jobs_first_process(slurm, tmp_path):
    said = {case: tmp_path / str(number) for number, case in enumerate(CASES)}
    with ExitStack() as stack:
        clients = {}
        for case in CASES:
            python, nanny, _ = case
            cluster = stack.enter_context(dask_cluster(slurm, cores=1, python=python, nanny=nanny))
            clients[case] = stack.enter_context(Client(cluster, set_as_default=False))
            cluster.scale(jobs=1)
        for case, client in clients.items():
            client.wait_for_workers(1, timeout=60)
            client.register_plugin(Farewell(str(said[case])))
        for (_, _, signal), client in clients.items():
            slurm.run(*signal, *(worker.job_id for worker in client.cluster.workers.values()))
        slurm.wait_until_empty()
    assert {case: said[case].exists() for case in CASES} == CASES
