"""Protected work whose workers die: whether all of it is safe again, and, if something does not come, why."""

import asyncio
import os
import signal
import sys
import threading
import time
import traceback
from functools import partial

#: seconds for one step, most of them for a new worker beside other tests; whatever takes longer hangs
PATIENCE = 60.0
NAME = "dask-hpc-checkpoint"


def is_whole(dask_scheduler, workers, names):
    """All agents are there, all that these names mean is in memory, and everything has as many copies as it
    should, away from its holders."""
    controller = dask_scheduler.plugins[NAME]
    known = controller.catalogue
    held = {key for name in names for key in controller.protected[name].keys}
    return (
        len(dask_scheduler.running) == len(controller.agents.facts()) == workers
        and all(not controller.protected[name].pending for name in names)
        and all(dask_scheduler.tasks[key].state == "memory" for key in held)
        and all(known.where(key)[1] for key in held)
        and not any(lacking(controller, one) for one in list(known.contents))
    )


def lacking(controller, content):
    """How many copies a block has too few."""
    placement = controller.placement
    held = placement._holders(controller.catalogue.keys_of(content))
    return placement.lacking(content, held)


def until(client, what, patience=PATIENCE, **kwargs):
    """Poll: the scheduler has no event for it."""
    deadline = time.monotonic() + patience
    while not client.run_on_scheduler(what, **kwargs):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what.__name__} did not come\n{described(client)}")


def within(client, what, work):
    """What a coroutine gives, if it does not hang."""
    try:
        return client.sync(partial(asyncio.wait_for, timeout=PATIENCE), work)
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}\n{described(client)}") from error


def gathered(client, futures):
    """Their values."""
    return within(client, "gather", client._gather(futures))


def kill(client, address):
    """And wait until the scheduler knows: a second death would come too early."""
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGKILL)
    until(client, is_gone, address=address)


def is_gone(dask_scheduler, address):
    """Whether it has no such worker any more."""
    return address not in dask_scheduler.workers


def described(client):
    """All that may say why something does not come, as text."""
    lines = [client.run_on_scheduler(_described)]
    running = client.run_on_scheduler(_running)
    for address, found in client.run(_worker, running, on_error="return").items():
        lines += [f"{address}:", *(found if isinstance(found, list) else [repr(found)])]
    return "\n".join(lines)


def _running(dask_scheduler):
    return [task.key for task in dask_scheduler.tasks.values() if task.state == "processing"]


def _worker(running, dask_worker):
    """What it does, what was with these tasks, and where its threads are."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = [f"  {task!r}" for task in dask_worker.state.tasks.values() if task.state != "memory"]
    lines += [f"  {line}" for line in dask_worker.state.story(*running)[-60:]]
    for ident, frame in sys._current_frames().items():
        if names.get(ident, "").startswith("Dask-Default-Threads"):
            lines += [f"  {line.strip()}" for line in traceback.format_stack(frame)[-6:]]
    for task in asyncio.all_tasks(dask_worker.loop.asyncio_loop):
        where = [f"{f.f_code.co_qualname}:{f.f_lineno}" for f in _frames(task)]
        lines.append(f"  {task.get_coro().__qualname__} at {where}")
    return lines


def _frames(task):
    """Of a task that waits, and of all that it awaits."""
    one = task.get_coro()
    while one is not None and hasattr(one, "cr_frame"):
        if one.cr_frame is not None:
            yield one.cr_frame
        one = one.cr_await


def _described(dask_scheduler):
    """What the scheduler and the service know."""
    lines = [f"workers: { {a: w.status.name for a, w in dask_scheduler.workers.items()} }"]
    for task in dask_scheduler.tasks.values():
        if task.state != "memory":
            lines.append(
                f"{task.key!r}: {task.state}, waits for {sorted(one.key for one in task.waiting_on or ())}, "
                f"needs {sorted(one.key for one in task.dependencies)}, "
                f"on {task.processing_on and task.processing_on.address}, "
                f"wanted by {len(task.who_wants or ())} clients and {len(task.waiters or ())} tasks, "
                f"{getattr(task.run_spec, 'func', task.run_spec)!r:.60}, failed: {task.exception_text!r}"
            )
    lines += [f"  {line}" for line in dask_scheduler.story(*_running(dask_scheduler))[-60:]]
    controller = dask_scheduler.plugins.get(NAME)
    if controller is not None:
        lines += _service(dask_scheduler, controller)
    lines += [str(event) for _, event in list(dask_scheduler.get_events(NAME))[-40:]]
    return "\n".join(lines)


def _service(scheduler, controller):
    known, placement = controller.catalogue, controller.placement
    for content, copies in known.contents.items():
        held = sorted(placement._holders(known.keys_of(content)))
        where = f"on {sorted(copies.where)}, held by {held}, lacks {lacking(controller, content)}"
        yield f"{content[:14]}: {where}, {copies.needed_by}"
    for name, one in controller.protected.items():
        for which, version in [("base", one.base), ("target", one.target)] + [("", v) for v in one.pending]:
            if version is not None:
                yield f"{name} {which}: {list(version.keys)}, awaits {sorted(version.awaited)}"
    yield f"replaced: {sorted(controller.recipes._replaced)}, soon: {sorted(controller.recipes._soon)}"
    yield f"lapsed: {sorted(placement._lapsed)}, owed: {list(placement.owed)}, {controller.keeper._task}"
    yield f"asked: {list(placement._asking.values())}"
    for address in controller.agents.facts():
        able, asked = controller.agents.is_able(address), controller.agents.asked(address)
        yield f"agent {address}: able {able}, asked {asked}"
