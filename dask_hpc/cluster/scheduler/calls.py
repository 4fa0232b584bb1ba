"""What can be asked of a managed cluster from outside. Everything that comes in is checked here."""

import pickle
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, cast

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.rescue import status_of_checkpoint
from dask_hpc.cluster.request import (
    check_word,
    read_change,
    read_number,
    read_request,
    read_why,
    read_workers,
)
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.sizing import NO_CHANGE
from dask_hpc.cluster.scheduler.status import feed, status_of, status_of_job, status_of_power, told
from dask_hpc.cluster.units import read_news, read_units
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import count_nodes
from dask_hpc.policy import Policy
from dask_hpc.power.scheduler.status import power_of

if TYPE_CHECKING:
    from dask_hpc.cluster.scheduler.plugin import HpcPlugin

_ACTIONS = ("pause", "resume", "undo")


class Calls:
    """The remote calls, ``hpc_*``. Their answers are plain data; bad input is an ``InputError``."""

    def __init__(self, plugin: "HpcPlugin") -> None:
        self._plugin = plugin
        self._written: tuple[Policy | None, str] = (None, "")

    def by_name(self) -> dict[str, Callable[..., Any]]:
        """The calls by the names they are called by."""
        calls = {
            "hpc_status": self.status,
            "hpc_power": self.power,
            "hpc_story": self.story,
            "hpc_story_since": self.story_since,
            "hpc_feed": self.feed,
            "hpc_snapshot": self.snapshot,
            "hpc_control_page": self.control_page,
            "hpc_script": self.script,
            "hpc_preview": self.preview,
            "hpc_replay": self.replay,
            "hpc_set": self.set,
            "hpc_hold": self.hold,
            "hpc_release": self.release,
            "hpc_job": self.job,
            "hpc_results": self.results,
            "hpc_keep_back": self.keep_back,
            "hpc_request": self.request,
            "hpc_cancel": self.cancel,
            "hpc_size": self.size,
            "hpc_rank": self.rank,
            "hpc_told": self.told,
            "hpc_pipeline": self.pipeline,
            "hpc_close": self.close,
            "hpc_farewell": self._plugin.farewells.farewell,
            "hpc_worker_ends": self._plugin.walltime.worker_ends,
        }
        return {name: _strict(name, call) for name, call in calls.items()}

    def status(self) -> dict[str, Any]:
        """What is going on."""
        plugin = self._plugin
        return status_of(plugin.control) | {
            "time": plugin.clock(),
            "state": self._state(),
            "errors": plugin.errors,
            "results_lost": plugin.lost,
            "pipelines": plugin.pipelines.as_status(),
            "power": status_of_power(plugin.control, plugin.power_trace),
            "checkpoint": status_of_checkpoint(plugin.scheduler),
        }

    def power(self) -> dict[str, Any]:
        """Watts of everything now, and the corridor."""
        return power_of(self._plugin.control)

    def story(self) -> list[dict[str, Any]]:
        """What was decided and what happened, oldest first. Decisions come with the rule that spoke, what
        it looked at, and what was not done instead."""
        story = self._plugin.story
        return [told(story, happening) for happening in story.happenings]

    def story_since(self, number: Any = None, most: Any = None) -> dict[str, Any]:
        """What was told from that number on, at most so many rows, for a reader who comes back: see
        ``Story.since``."""
        read_number("number", number)
        if most is not None:
            read_number("most", most)
        story = self._plugin.story
        first, rows = story.since(number)
        return {"first": first, "rows": [told(story, row) for row in rows[:most]]}

    def feed(self, story: Any = 0, power: Any = 0, jobs: Any = None, parts: Any = ()) -> dict[str, Any]:
        """What is new, for somebody who looks several times a second: see ``feed``."""
        return feed(self._plugin, self._state(), story, power, jobs, parts)

    def snapshot(self) -> bytes:
        """What a decision would look at now, as bytes that Python can unpickle."""
        return pickle.dumps(self._plugin.control.snapshot())

    def script(self, client: Any = None, request: Any = None) -> str:
        """What this client submits outside of jobs belongs to one job: as ``dask-hpc run`` wants it."""
        if not isinstance(client, str) or client not in self._plugin.scheduler.clients:
            raise InputError("client", f"found {shown(client)}", "the id of a connected client")
        read_request(request, 0.0)
        self._plugin.control.script_of[client] = cast(dict[str, Any], request)
        return "OK"

    def control_page(self) -> dict[str, Any]:
        """Where the page is on which anybody who has its address may change things."""
        return {"page": self._plugin.control_page}

    def preview(self, policy: Any = None, name: Any = None) -> list[dict[str, Any]]:
        """What would be decided now, under the policy in force or this one, without doing it."""
        plugin = self._plugin
        other = policy is not None or name is not None
        chosen = plugin.history.now.changed(policy, name).policy if other else None
        return plugin.control.preview(chosen) if plugin.is_on else []

    def replay(self) -> dict[str, Any]:
        """Make the recorded decisions again: how many there are, and which came out otherwise."""
        recorded = list(self._plugin.control.recorded)
        return {
            "decisions": len(recorded),
            "different": [one.plan.id for one in recorded if not one.is_repeatable],
        }

    def set(
        self, policy: Any = None, name: Any = None, changes: Any = None, action: Any = None
    ) -> dict[str, Any]:
        """Swap the policy and change parameters and settings, as ``InForce.changed`` says; or "pause",
        "resume" or "undo". All or nothing. Answers what is in force; without arguments it only does that.

        A policy also switches control on again after errors have switched it off.
        """
        plugin = self._plugin
        if action is not None:
            if not isinstance(action, str) or action not in _ACTIONS:
                raise InputError("action", f"found {shown(action)}", ", ".join(_ACTIONS))
            if policy is not None or name is not None or changes is not None:
                raise InputError("action", f"found {shown(action)} together with changes", "one of the two")
            if action == "undo":
                plugin.undo()
            else:
                plugin.pause(action == "pause")
        elif policy is not None or name is not None or changes is not None:
            plugin.put_in_force(plugin.history.now.changed(policy, name, changes))
            if policy is not None:
                plugin.switch_on()
        return self._in_force()

    def hold(self, workers: Any = None, why: Any = "asked for") -> dict[str, Any]:
        """Let these workers start no more tasks, until they are released for the same reason."""
        reason = read_why(why)
        if not self._plugin.is_on:
            raise RuntimeError("control is off: no worker can be held")
        holds = self._plugin.control.holds
        found = read_workers(self._plugin.scheduler, "hold", workers)
        refused = holds.hold(found, reason)
        return {"held": [address for address in found if address not in refused], "refused": refused}

    def release(self, workers: Any = None, why: Any = "asked for") -> list[str]:
        """End that hold of these workers, or with no reason all their holds. Those that work again."""
        reason = None if why is None else read_why(why)
        found = read_workers(self._plugin.scheduler, "release", workers)
        return [address for address in found if self._plugin.control.holds.release(address, reason)]

    def job(self, id: Any = None) -> dict[str, Any]:
        """One job, also while it waits and after it is done."""
        return status_of_job(self._plugin.control, self._job(id))

    def request(self, id: Any = None, nodes: Any = None) -> dict[str, Any]:
        """A running job asks for so many more nodes, or gives some back. The policy will answer."""
        job = self._job(id)
        control, model = self._plugin.control, job.model
        if not model.resizable:
            raise InputError(f"job {job.id}: request", f"found a {model.kind} job", "evolving, malleable")
        if job.state != "running":
            raise InputError(f"job {job.id}: request", f"the job is {job.state}", "a running job")
        change = read_change(nodes)
        size = control.indices.requests.get(job.id, control.size_ahead(job))
        low, high = model.min_nodes - size, model.max_nodes - size
        if not low <= change <= high:
            found = f"found {change:+d} to {count_nodes(size)}"
            raise InputError(f"job {job.id}: request: nodes", found, f"{low:+d} to {high:+d}")
        control.job_asks(job, change)
        return status_of_job(control, job)

    def cancel(self, id: Any = None) -> dict[str, Any]:
        """Stop a job. What it has done stays; a job that is done already stays as it is."""
        job = self._job(id)
        if self._plugin.is_on and job.state != "done":
            self._plugin.control.cancel(job)
        return status_of_job(self._plugin.control, job)

    def keep_back(self, id: Any = None, why: Any = "") -> dict[str, Any]:
        """A waiting job is not to start, for this reason, or may again if there is none."""
        job = self._job(id)
        check_word(f"job {job.id}: hold", why)
        if why and job.state != "waiting":
            raise InputError(f"job {job.id}: hold", f"the job is {job.state}", "a waiting job")
        if self._plugin.is_on:
            self._plugin.control.keep_back(job, why)
        return status_of_job(self._plugin.control, job)

    def results(self, id: Any = None) -> list[Any]:
        """Keys of a job's results that somebody holds futures of: there already, or still to come."""
        job, scheduler = self._job(id), self._plugin.scheduler
        tasks = (
            (key, compat.find_task(scheduler, key))
            for key, owner in self._plugin.control.gate.owner.items()
            if owner is job
        )
        return [key for key, task in tasks if task is not None and compat.is_wanted(task)]

    def _job(self, job_id: object) -> LiveJob:
        jobs = self._plugin.control.jobs
        if not isinstance(job_id, str) or job_id not in jobs:
            raise InputError("job", f"found {shown(job_id)}", "the id of a job that has submitted something")
        return jobs[job_id]

    def size(self, facts: Any = None) -> dict[str, Any]:
        """What a cluster object that says this of itself is to do about its size."""
        plugin = self._plugin
        if plugin.is_on:
            try:
                return plugin.sizing.decide(facts, plugin.clock())
            except InputError:
                raise
            except Exception as error:
                plugin.count_error("a decision about the size", error)
        return NO_CHANGE

    def rank(self, units: Any = None) -> list[str]:
        """Units (their names, and for each those of its workers), the one that is missed least first."""
        return self._plugin.sizing.rank(read_units(units))

    def told(self, news: Any = None) -> str:
        """Add to the story what happened to a cluster object: pairs of a kind and words."""
        for decision, reason in read_news(news):
            self._plugin.control.tell(decision, reason)
        return "OK"

    def pipeline(
        self, id: Any = None, client_id: Any = None, status: Any = None, news: Any = ()
    ) -> dict[str, Any]:
        """An in situ pipeline says how it goes: see ``Pipelines``. The answer is what it is to decide by, the
        policy in force as YAML, None if nothing is to be changed; and the workers that it is to leave."""
        plugin = self._plugin
        plugin.pipelines.told(id, client_id, status, news)
        decides = plugin.is_on and not plugin.control.is_paused
        leaving = sorted(plugin.control.leaving.addresses) if plugin.is_on else []
        return {"policy": self._policy_text() if decides else None, "leaving": leaving}

    async def close(self) -> str:
        """End the management."""
        await self._plugin.stop()
        return "OK"

    def _policy_text(self) -> str:
        """The policy in force; pipelines ask after every iteration, and it seldom changes."""
        policy, text = self._written
        if policy is not self._plugin.history.now.policy:
            policy = self._plugin.history.now.policy
            text = policy.to_yaml()
            self._written = (policy, text)
        return text

    def _in_force(self) -> dict[str, Any]:
        now = self._plugin.history.now
        return {
            "name": now.policy.name,
            "policy": now.policy.to_yaml(),
            "settings": dict(now.settings),
            "state": self._state(),
            "undo": len(self._plugin.history),
        }

    def _state(self) -> str:
        if not self._plugin.is_on:
            return "off"
        control = self._plugin.control
        return "paused" if control.is_paused else "dry run" if control.is_dry else "on"


def _strict(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments that the call does not have are bad input, too."""
    known = signature(call)

    @wraps(call)
    def checked(**arguments: Any) -> Any:
        try:
            known.bind(**arguments)
        except TypeError:
            allowed = ", ".join(known.parameters) or "no arguments"
            raise InputError(name, f"found {shown(list(arguments))}", allowed) from None
        return call(**arguments)

    return checked
