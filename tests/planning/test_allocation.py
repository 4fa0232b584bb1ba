"""What a batch system gave to a job, read from variables; what runs beside sees of it."""

import re
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.allocation import (
    AllocatedNode,
    Allocation,
    beside_command,
    beside_environment,
    counts,
    read_slurm_job,
    step_environment,
    why_no_growth,
    write_counts,
)

JOB = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_CPUS_PER_NODE": "72(x2),36"}


def test_a_job_of_three_nodes():
    found = read_slurm_job(JOB | {"SLURM_MEM_PER_CPU": "100", "SLURM_JOB_END_TIME": "1000"})
    memory = 100 * 2.0**20
    assert found == Allocation(
        (
            AllocatedNode("n1", 72, 72 * memory),
            AllocatedNode("n2", 72, 72 * memory),
            AllocatedNode("n3", 36, 36 * memory),
        ),
        "17",
        1000.0,
    )


@pytest.mark.parametrize(
    "more, memory",
    [
        ({}, inf),
        ({"SLURM_MEM_PER_NODE": "0"}, inf),  # all there is
        ({"SLURM_MEM_PER_NODE": "2048"}, 2.0**31),
        ({"SLURM_MEM_PER_NODE": "2048", "SLURM_MEM_PER_CPU": "1"}, 2.0**31),
        ({"SLURM_MEM_PER_NODE": "some"}, inf),
    ],
)
def test_memory_of_a_node(more, memory):
    found = read_slurm_job(JOB | more)
    assert (found.nodes[2].memory, found.end) == (memory, inf)


def test_what_slurm_said_of_the_names_wins_and_one_number_is_for_all():
    found = read_slurm_job(
        {"SLURM_JOB_ID": "1", "SLURM_NODELIST": "x[1-2]", "SLURM_CPUS_ON_NODE": "4"}, ["b", "a"]
    )
    assert [(node.name, node.cores) for node in found.nodes] == [("b", 4), ("a", 4)]
    assert read_slurm_job({"SLURM_JOB_ID": "1", "SLURM_NODELIST": "c"}).nodes == (AllocatedNode("c", 1),)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"SLURM_JOB_ID": ""}, "SLURM_JOB_ID: found ''; allowed: a program inside of sbatch or salloc"),
        ({"SLURM_JOB_NODELIST": ""}, "SLURM_JOB_NODELIST: found ''"),
        ({"SLURM_JOB_NODELIST": "n[1-"}, "SLURM_JOB_NODELIST: found 'n[1-'"),
        ({"SLURM_JOB_CPUS_PER_NODE": "8(x2)"}, "numbers of cores of 3 nodes"),
        ({"SLURM_JOB_CPUS_PER_NODE": "0"}, "numbers of cores of 3 nodes"),
        ({"SLURM_JOB_CPUS_PER_NODE": "many"}, "SLURM_JOB_CPUS_PER_NODE: found 'many'"),
        ({"SLURM_JOB_CPUS_PER_NODE": "1(x9999999)"}, "at most 1,000,000 nodes"),
    ],
)
def test_what_makes_no_sense_is_said(change, message):
    with pytest.raises(InputError, match=re.escape(message)):
        read_slurm_job(JOB | change)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=50))
def test_counts_come_back(numbers):
    assert counts(write_counts(numbers)) == numbers


def test_counts_are_short():
    assert write_counts([72, 72, 36, 72]) == "72(x2),36,72"


@given(st.text(max_size=12))
def test_no_text_does_more_than_complain(text):
    for name in ("SLURM_JOB_NODELIST", "SLURM_JOB_CPUS_PER_NODE", "SLURM_MEM_PER_NODE", "SLURM_JOB_END_TIME"):
        try:
            assert read_slurm_job(JOB | {name: text}).nodes
        except InputError:
            assert name in ("SLURM_JOB_NODELIST", "SLURM_JOB_CPUS_PER_NODE")


def test_a_step_is_not_told_what_the_job_was():
    before = JOB | {"SLURM_CONF": "/c", "PATH": "/bin", "SRUN_CPUS_PER_TASK": "1", "PMI_RANK": "0"}
    assert step_environment(before) == {"SLURM_CONF": "/c", "PATH": "/bin"}


NODES = (AllocatedNode("n2", 4), AllocatedNode("n3", 4))


def test_a_program_beside_sees_its_nodes_alone():
    found = beside_environment(JOB | {"SLURM_NTASKS": "9", "PATH": "/bin"}, NODES)
    assert found["SLURM_JOB_NODELIST"] == found["SLURM_NODELIST"] == found["DASK_HPC_NODES"] == "n2,n3"
    assert found["SLURM_JOB_NUM_NODES"] == found["SLURM_NNODES"] == "2"
    assert found["SLURM_JOB_CPUS_PER_NODE"] == found["SLURM_TASKS_PER_NODE"] == "4(x2)"
    assert "SLURM_NTASKS" not in found and found["PATH"] == "/bin" and found["SLURM_JOB_ID"] == "17"
    assert beside_environment({"PATH": "/bin"}, NODES) == {"PATH": "/bin", "DASK_HPC_NODES": "n2,n3"}


WHERE = ["--nodes=2", "--nodelist=n2,n3", "--overlap"]


@pytest.mark.parametrize(
    "command, expected",
    [
        (["./model", "-v"], ["srun", "--jobid=17", *WHERE, "--ntasks-per-node=3", "./model", "-v"]),
        (["srun", "-n", "4", "./model"], ["srun", *WHERE, "-n", "4", "./model"]),
        (["/usr/bin/srun", "./model"], ["/usr/bin/srun", *WHERE, "./model"]),
        (["/opt/mpi/bin/mpirun", "./model"], ["/opt/mpi/bin/mpirun", "./model"]),
    ],
)
def test_how_a_program_is_started_beside(command, expected):
    assert beside_command(command, NODES, "17", 3) == expected
    assert beside_command(command, NODES, "", 3) == command  # no Slurm


@pytest.mark.parametrize("command", [[], [""]])
def test_no_command(command):
    with pytest.raises(InputError, match="a list of words"):
        beside_command(command, NODES, "17")


@pytest.mark.parametrize(
    "text, why",
    [
        ("SchedulerParameters     = bf_interval=2,permit_job_expansion\n", ""),
        ("SchedulerParameters     = permit_job_expansion_of_others\n", "does not permit it"),
        ("SchedulerParameters     = \nOther = permit_job_expansion\n", "does not permit it"),
        ("SchedulerParameters=permit_job_expansion\nAccountingStorageType=x/none\n", "no slurmdbd"),
        ("", "does not permit it"),
    ],
)
def test_whether_jobs_may_grow(text, why):
    found = why_no_growth(f"AccountingStorageType   = accounting_storage/slurmdbd\n{text}B = 2\n")
    assert why in found and bool(found) == bool(why)
