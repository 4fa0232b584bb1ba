"""Names of Dask that we touch and that no other test here would miss."""

import inspect

import pytest
from distributed import (
    Client,
    Worker,
)
from distributed import scheduler as ds
from distributed.core import ConnectionPool
from distributed.stealing import WorkStealing
from distributed.utils_test import gen_cluster, inc

from dask_hpc import dask as compat

one = gen_cluster(client=True, nthreads=[("", 1)])


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (ds.TaskState, "worker_restrictions"),
        (ds.TaskState, "host_restrictions"),
        (ds.TaskState, "loose_restrictions"),
        (ds.TaskState, "dependencies"),
        (ds.TaskState, "dependents"),
        (ds.TaskState, "priority"),
        (ds.TaskState, "actor"),
        (ds.TaskState, "state"),
        (ds.TaskState, "key"),
        (ds.TaskState, "prefix"),
        (ds.WorkerState, "name"),
        (ds.WorkerState, "host"),
        (ds.WorkerState, "address"),
        (ds.WorkerState, "status"),
        (ds.WorkerState, "processing"),
        (ds.WorkerState, "executing"),
        (ds.WorkerState, "long_running"),
        (ds.WorkerState, "occupancy"),
        (ds.WorkerState, "nthreads"),
        (ds.WorkerState, "last_seen"),
        (ds.WorkerState, "metrics"),
        (ds.TaskState, "resource_restrictions"),
        (ds.TaskState, "group"),
        (ds.TaskState, "run_spec"),
        (ds.TaskState, "_queueable"),
        (ds.TaskGroup, "dependencies"),
        (ds.TaskGroup, "prefix"),
        (ds.Scheduler, "stimulus_queue_slots_maybe_opened"),
        (ds.Scheduler, "bulk_schedule_unrunnable_after_adding_worker"),
        (ds.Scheduler, "get_comm_cost"),
        (ds.Computation, "annotations"),
        (ds.Scheduler, "transitions"),
        (ds.Scheduler, "coerce_hostname"),
        (ds.Scheduler, "remove_plugin"),
        (ds.Scheduler, "client_releases_keys"),
        (ds.Scheduler, "report"),
        (ds.ClientState, "client_key"),
        (ds.TaskState, "who_wants"),
        (ds.TaskState, "who_has"),
        (ds.TaskState, "who_wants"),
        (ds.TaskState, "waiters"),
        (ds.TaskState, "processing_on"),
        (ds.TaskState, "nbytes"),
        (ds.WorkerState, "address"),
        (ds.WorkerState, "has_what"),
        (ds.WorkerState, "memory"),
        (ds.WorkerState, "memory_limit"),
        (ds.WorkerState, "nbytes"),
        (ds.MemoryState, "process"),
        (ds.MemoryState, "spilled"),
        (ds.MemoryState, "unmanaged_old"),
        (ds.Scheduler, "request_acquire_replicas"),
        (ds.Scheduler, "request_remove_replicas"),
        (ds.Scheduler, "check_idle_saturated"),
        (Worker, "handle_stimulus"),
        (ds.Scheduler, "worker_send"),
        (ds.TaskState, "suspicious"),
        (Client, "_send_to_scheduler"),
        (ds.Scheduler, "_task_to_msg"),
        (ds.TaskState, "run_id"),
        (ds.TaskState, "annotations"),
        (ds.WorkerState, "add_to_processing"),
        (ds.WorkerState, "remove_from_processing"),
        (ds.TaskPrefix, "duration_average"),
        (ds.TaskPrefix, "all_durations"),
        (WorkStealing, "remove_key_from_stealable"),
        (ConnectionPool, "connect"),
        (ConnectionPool, "reuse"),
    ],
)
def test_name_exists(owner, name):
    assert hasattr(owner, name), f"{owner.__name__}.{name} is gone"


@one
async def test_what_has_no_test_of_its_own_exists(c, s, a):
    assert isinstance(s.extensions["amm"].policies, set), "ActiveMemoryManagerExtension.policies changed"
    stealing = s.extensions.get("stealing")
    assert stealing is not None, "Scheduler.extensions has no stealing"
    for name in ("in_flight_occupancy", "in_flight_tasks"):
        assert hasattr(stealing, name), f"WorkStealing.{name} is gone"
    await c.submit(inc, 1)
    assert s.task_prefixes["inc"].state_counts["memory"] == 1, "TaskPrefix.state_counts is gone"
    assert c.id in s.client_comms, "Scheduler.client_comms is not by client"
    assert hasattr(s.http_application, "add_application"), "RoutingApplication.add_application is gone"


@one
async def test_scheduler_attributes_exist(c, s, a):
    for name, kind in [
        ("tasks", dict), ("unrunnable", dict), ("handlers", dict), ("host_info", dict), ("plugins", dict),
    ]:  # fmt: skip
        assert isinstance(getattr(s, name, None), kind), f"Scheduler.{name} is not a {kind.__name__}"
    assert hasattr(s, "computations"), "Scheduler.computations is gone"
    assert "no_workers_timeout" in vars(s), "Scheduler.no_workers_timeout is gone"
    assert s.no_workers_timeout is None
    assert set(s.workers) == {a.address}, "Scheduler.workers is not by address"
    assert compat.workers_by_name(s) == [a.address]
    assert compat.worker_identity(s, a.address) == (0, "127.0.0.1")


def test_states():
    known = set(inspect.signature(ds.SchedulerState._transition).parameters) and set(ds.ALL_TASK_STATES)
    assert known >= compat.UNFINISHED | {"released", "memory", "erred", "forgotten"}, "task states changed"


def test_only_compat_touches_private_names():
    """The names above appear in no other file of the live body."""
    from pathlib import Path

    import dask_hpc.cluster

    private = (
        "worker_restrictions", "host_restrictions", "loose_restrictions", "unrunnable", ".transitions(",
        ".computations", ".handlers", ".tasks[", ".tasks.get", "host_info", ".stream_comms", ".who_has",
        ".has_what", ".who_wants", ".waiters", ".processing_on", ".request_acquire", ".request_remove",
        ".idle_task_count", "WORKER_SATURATION", ".queued.", ".run_spec", "stimulus_queue",
        "cumulative_worker_metrics", "data_producer",
        ".prefix.", ".task_prefixes", "duration_average", "who_wants", "client_key",
        "scheduler.generation", "http_application", "template_variables(",
    )  # fmt: skip
    live = Path(dask_hpc.cluster.__file__).parent
    for file in live.rglob("*.py"):
        found = [name for name in private if name in file.read_text()]
        assert not found, f"{file.name} touches {found}"


def test_names_of_leaving_workers_exist():
    for owner, name in [
        (ds.Scheduler, "register_worker_plugin"), (ds.Scheduler, "unregister_worker_plugin"),
        (ds.Scheduler, "remove_worker"), (ds.TaskState, "prefix"), (ds.WorkerState, "status"),
    ]:  # fmt: skip
        assert hasattr(owner, name), f"{owner.__name__}.{name} is gone"
    known = inspect.signature(ds.Scheduler.remove_worker).parameters
    assert {"expected", "close", "stimulus_id"} <= set(known), "Scheduler.remove_worker has other arguments"


@pytest.mark.parametrize(
    "name",
    ["run_spec", "waiters", "who_wants", "retries", "annotations", "resource_restrictions", "add_dependency"],
)
def test_names_of_recipes_exist(name):
    assert hasattr(ds.TaskState, name), f"TaskState.{name} is gone"
