"""What can be asked of a managed cluster from outside. Everything that comes in is checked here."""

import pickle
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import isawaitable, signature
from typing import Any, cast

from dask_hpc import dask as compat
from dask_hpc.cluster.request import (
    check_word,
    read_change,
    read_number,
    read_request,
    read_workers,
)
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.management import Management
from dask_hpc.cluster.scheduler.sizing import NO_CHANGE
from dask_hpc.cluster.scheduler.status import Status, told
from dask_hpc.cluster.units import read_asks, read_news, read_units
from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.units import count_nodes

_ACTIONS = ("pause", "resume", "undo")


class Calls:
    """The remote calls, ``hpc_*``. Their answers are plain data; bad input is an ``InputError``."""

    def __init__(self, management: Management, status: Status) -> None:
        self._management = management
        self._context = management.context
        self._status = status
        self.feed = status.feed

    def by_name(self, of_others: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """The calls by the names they are called by, with those of others and of services."""
        ours: tuple[Callable[..., Any], ...] = (
            self.story, self.story_since, self.snapshot, self.script, self.preview, self.replay, self.set,
            self.hold, self.release, self.give_back, self.job, self.results, self.keep_back, self.request,
            self.cancel, self.listen, self.adapted, self.size, self.rank, self.told, self.asks,
            self.close,
        )  # fmt: skip
        calls = {f"hpc_{call.__name__}": call for call in ours} | dict(of_others)
        calls |= {"hpc_status": self._status.whole, "hpc_feed": self.feed}
        for service in self._context.services:
            calls |= service.calls()
        return {name: _strict(name, call) for name, call in calls.items()}

    def story(self) -> list[dict[str, Any]]:
        """What was decided and what happened, oldest first. Decisions come with the rule that spoke, what
        it looked at, and what was not done instead."""
        story = self._context.story
        return [told(story, happening) for happening in story.happenings]

    def story_since(self, number: Any = None, most: Any = None) -> dict[str, Any]:
        """What was told from that number on, at most so many rows, for a reader who comes back: see
        ``Story.since``."""
        read_number("number", number)
        if most is not None:
            read_number("most", most)
        story = self._context.story
        first, rows = story.since(number)
        return {"first": first, "rows": [told(story, row) for row in rows[:most]]}

    def snapshot(self) -> bytes:
        """What a decision would look at now, as bytes that Python can unpickle."""
        return pickle.dumps(self._management.control.snapshot())

    def script(self, client: Any = None, request: Any = None) -> str:
        """What this client submits outside of jobs belongs to one job: as ``dask-hpc run`` wants it."""
        is_known = isinstance(client, str) and client in self._context.scheduler.clients
        insist(is_known, "client", client, "the id of a connected client")
        read_request(request, 0.0)
        self._management.control.lifecycle.script_of[client] = cast(dict[str, Any], request)
        return "OK"

    def preview(self, policy: Any = None, name: Any = None) -> list[dict[str, Any]]:
        """What would be decided now, under the policy in force or this one, without doing it."""
        management = self._management
        other = policy is not None or name is not None
        chosen = management.history.now.changed(policy, name).policy if other else None
        return management.control.preview(chosen) if management.is_on else []

    def replay(self) -> dict[str, Any]:
        """Make the recorded decisions again: how many there are, and which came out otherwise."""
        recorded = list(self._management.context.recorded)
        return {
            "decisions": len(recorded),
            "different": [one.id for one in recorded if not one.is_repeatable],
        }

    def set(
        self,
        policy: Any = None,
        name: Any = None,
        changes: Any = None,
        action: Any = None,
        version: Any = None,
    ) -> dict[str, Any]:
        """Swap the policy and change parameters and settings, as ``InForce.changed`` says; or "pause",
        "resume" or "undo". All or nothing. Answers what is in force; without arguments it only does that.
        With a ``version`` only if that is the one in force: nobody undoes what he has not seen.

        A policy also switches control on again after errors have switched it off.
        """
        management = self._management
        if version is not None:
            read_number("version", version)
            if version != management.history.version:
                found = f"found {version}, and version {management.history.version} is in force"
                raise InputError("version", found, "what was changed meanwhile is looked at first")
        if action is not None:
            insist(action in _ACTIONS, "action", action, ", ".join(_ACTIONS))
            if policy is not None or name is not None or changes is not None:
                raise InputError("action", f"found {shown(action)} together with changes", "one of the two")
            if action == "undo":
                management.undo()
            else:
                management.pause(action == "pause")
        elif policy is not None or name is not None or changes is not None:
            management.put_in_force(management.history.now.changed(policy, name, changes))
            if policy is not None:
                management.switch_on()
        now, history = management.history.now, management.history
        return {
            "name": now.policy.name,
            "policy": now.policy.to_yaml(),
            "settings": dict(now.settings),
            "state": management.state,
            "undo": len(history),
            "version": history.version,
        }

    def hold(self, workers: Any = None, why: Any = "asked for") -> dict[str, Any]:
        """Let these workers start no more tasks, until they are released for the same reason."""
        check_word("hold: why", why, may_be_empty=False)
        if not self._management.is_on:
            raise RuntimeError("control is off: no worker can be held")
        holds = self._management.control.holds
        found = read_workers(self._context.scheduler, "hold", workers, self._context.nodes)
        refused = holds.hold(found, why)
        return {"held": [address for address in found if address not in refused], "refused": refused}

    def release(self, workers: Any = None, why: Any = "asked for") -> list[str]:
        """End that hold of these workers, or with no reason all their holds. Those that work again."""
        if why is not None:
            check_word("hold: why", why, may_be_empty=False)
        found = read_workers(self._context.scheduler, "release", workers, self._context.nodes)
        return [address for address in found if self._management.control.holds.release(address, why)]

    async def give_back(self, nodes: Any = None) -> dict[str, Any]:
        """Have services give back so many of the nodes that are lent to them, without losing anything. Which
        they are, when they have, and why not more."""
        read_number("give_back: nodes", nodes)
        if not self._management.is_on:
            raise RuntimeError("control is off: no node is lent")
        return await self._management.control.lending.give_back(nodes, "it was asked for")

    def job(self, id: Any = None) -> dict[str, Any]:
        """One job, also while it waits and after it is done."""
        return self._status.of_job(self._job(id))

    def request(self, id: Any = None, nodes: Any = None) -> dict[str, Any]:
        """A running job asks for so many more nodes, or gives some back. The policy will answer."""
        job = self._job(id)
        lifecycle, model = self._management.control.lifecycle, job.model
        if not model.resizable:
            raise InputError(f"job {job.id}: request", f"found a {model.kind} job", "evolving, malleable")
        if job.state != "running":
            raise InputError(f"job {job.id}: request", f"the job is {job.state}", "a running job")
        change = read_change(nodes)
        size = lifecycle.asked_for(job)
        low, high = model.min_nodes - size, model.max_nodes - size
        if not low <= change <= high:
            found = f"found {change:+d} to {count_nodes(size)}"
            raise InputError(f"job {job.id}: request: nodes", found, f"{low:+d} to {high:+d}")
        lifecycle.ask(job, change)
        return self._status.of_job(job)

    def cancel(self, id: Any = None) -> dict[str, Any]:
        """Stop a job. What it has done stays; a job that is done already stays as it is."""
        job = self._job(id)
        if self._management.is_on and job.state != "done":
            self._management.control.lifecycle.cancel(job)
        return self._status.of_job(job)

    def keep_back(self, id: Any = None, why: Any = "") -> dict[str, Any]:
        """A waiting job is not to start, for this reason, or may again if there is none."""
        job = self._job(id)
        check_word(f"job {job.id}: hold", why)
        if why and job.state != "waiting":
            raise InputError(f"job {job.id}: hold", f"the job is {job.state}", "a waiting job")
        if self._management.is_on:
            self._management.control.lifecycle.keep_back(job, why)
        return self._status.of_job(job)

    def results(self, id: Any = None) -> list[Any]:
        """Keys of a job's results that somebody holds futures of: there already, or still to come."""
        job, scheduler = self._job(id), self._context.scheduler
        tasks = (
            (key, compat.find_task(scheduler, key))
            for key, owner in self._context.owner.items()
            if owner is job
        )
        return [key for key, task in tasks if task is not None and compat.is_wanted(task)]

    def listen(self, id: Any = None, listener: Any = None, seconds: Any = None) -> str:
        """The program of a job, which may be still to come, is told of its changes: ``AdaptationWindows``."""
        if self._management.is_on:
            self._management.control.windows.listen(id, listener, seconds)
        return "OK"

    def adapted(self, id: Any = None, number: Any = None, problems: Any = (), placed: Any = ()) -> str:
        """The program of a job is done with what it was told under that number."""
        if self._management.is_on:
            self._management.control.windows.adapted(id, number, problems, placed)
        return "OK"

    def _job(self, job_id: object) -> LiveJob:
        jobs = self._context.jobs
        if not isinstance(job_id, str) or job_id not in jobs:
            raise InputError("job", f"found {shown(job_id)}", "the id of a job that has submitted something")
        return jobs[job_id]

    def size(self, facts: Any = None) -> dict[str, Any]:
        """What a cluster object that says this of itself is to do about its size."""
        management = self._management
        if management.is_on:
            try:
                return management.control.sizing.decide(facts, self._context.clock())
            except InputError:
                raise
            except Exception as error:
                self._context.count_error("a decision about the size", error)
        return NO_CHANGE

    def rank(self, units: Any = None) -> list[str]:
        """Units (their names, and for each those of its workers), the one that is missed least first."""
        return self._management.control.sizing.rank(read_units(units))

    def told(self, news: Any = None) -> str:
        """Add to the story what happened to a cluster object: pairs of a kind and words."""
        for decision, reason in read_news("news", news):
            self._context.tell(decision, reason)
        return "OK"

    def asks(self, asker: Any = None, asks: Any = None) -> list[dict[str, Any]]:
        """What cluster objects have asked a batch system for and not got yet. With an asker: this is now what
        it waits for."""
        management = self._management
        if asker is not None:
            check_word("asks: asker", asker, may_be_empty=False)
            management.control.sizing.note_asks(asker, read_asks(asks), self._context.clock())
        return management.control.sizing.asks(self._context.clock()) if management.is_on else []

    async def close(self) -> str:
        """End the management."""
        await self._management.stop()
        return "OK"


def _strict(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments that the call does not have are bad input, too. Who asked hears of it, and nobody else."""
    known = signature(call)

    @wraps(call)
    async def checked(**arguments: Any) -> Any:
        try:
            known.bind(**arguments)
        except TypeError:
            allowed = ", ".join(known.parameters) or "no arguments"
            return compat.refusal(InputError(name, f"found {shown(list(arguments))}", allowed))
        try:
            found = call(**arguments)
            return await found if isawaitable(found) else found
        except InputError as error:
            return compat.refusal(error)

    return checked
