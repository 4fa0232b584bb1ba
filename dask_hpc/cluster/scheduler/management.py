"""The management of one cluster: what is in force, whether control is on, and the moment of each decision."""

from collections.abc import Container
from time import monotonic
from typing import Any

from dask_hpc import dask as compat
from dask_hpc import services
from dask_hpc.cluster.scheduler.in_force import History, InForce, difference
from dask_hpc.cluster.scheduler.loop import ControlLoop
from dask_hpc.cluster.scheduler.service import Context, Managed, Service, Timer
from dask_hpc.model.story import Story

_PAUSED = "decides nothing until it is resumed: running jobs run on, waiting jobs wait"


class Management(Managed):
    """Switches control on and off, changes what is in force, and decides when something happened."""

    control: ControlLoop
    history: History
    timeout: Timer

    def __init__(self) -> None:
        # What Dask's hooks look at: they may be called before there is anything to hear of.
        self._is_taken = False
        #: whether an error ended the decision before
        self._was_cut_short = False
        self._owner: dict[Any, Any] = {}
        self._held: dict[str, Any] = {}
        self._tagged: Container[Any] = ()
        self._watching: list[tuple[Service, Container[Any]]] = []

    def take(self, context: Context) -> Context:
        """Manage this cluster from now on."""
        self.context = context
        self.history = History(InForce(context.policy, context.settings))
        self.timeout = Timer(context, "Dask's timeout", self._restart_clocks)
        context.decide = self._decide
        context.give_up = lambda reason: self.release("off", reason)
        context.services = [kind(context) for kind in services.kinds()]
        self.switch_on()
        self._is_taken = True
        return context

    def listen(self) -> None:
        """Hear of tasks: of these, by this control."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Let go of everything."""
        raise NotImplementedError

    @property
    def is_on(self) -> bool:
        """Whether control is on; errors switch it off."""
        return self._is_taken and self.context.is_on

    @property
    def state(self) -> str:
        """In a word: "on", "off", "paused" or "dry run"."""
        if not self.context.is_on:
            return "off"
        return "paused" if self.context.is_paused else "dry run" if self.context.is_dry else "on"

    @property
    def errors(self) -> int:
        """How many there were since control was switched on."""
        return self.context.errors

    @property
    def story(self) -> Story:
        """What was decided and what happened."""
        return self.context.story

    # what people change

    def put_in_force(self, new: InForce) -> None:
        """Another policy, other settings. Nothing is lost; what runs keeps running."""
        old = self.history.now
        self.history.accept(new)
        self._apply(old)

    def undo(self) -> None:
        """What was in force before the last change is so again."""
        old = self.history.now
        self.history.undo()
        self._apply(old, "undone: ")

    def pause(self, is_paused: bool) -> None:
        """Decide nothing until told otherwise; or decide again."""
        context = self.context
        if is_paused != context.is_paused:
            context.is_paused = is_paused
            context.tell("pause" if is_paused else "resume", _PAUSED if is_paused else "decides again")
            context.wake()

    def switch_on(self) -> None:
        """Start anew, as after errors switched control off. Does nothing if it is on."""
        context = self.context
        if context.is_on:
            return
        if self._is_taken:
            self.release("off", "starts anew")
        context.policy, context.settings = self.history.now.policy, self.history.now.settings
        context.is_on = True
        self.control = ControlLoop(context)
        self._owner = context.owner
        self._held = self.control.holds.reasons
        self._tagged = self.control.tagged
        self._watching = context.watching
        self.listen()
        context.tell("policy", f"{context.policy.name} from now on")

    def release(self, decision: str, reason: str) -> None:
        """Let go of all jobs: everything runs as in plain Dask."""
        self.context.is_on = False
        self.timeout.stop()
        self.control.release_all(decision, reason)

    def _apply(self, old: InForce, how: str = "") -> None:
        new = self.history.now
        if new != old:
            self.context.errors = 0
            self.control.change(new, how + difference(old, new))

    # decisions

    def _decide(self) -> None:
        if not self.is_on:
            return
        began = monotonic()
        try:
            if self._was_cut_short:
                self.control.open_gates()
            self.control.decide()
            self._was_cut_short = False
            self.control.cycle = monotonic() - began
            self._mind_timeout()
        except Exception as error:
            self.control.memory = None
            self._was_cut_short = True
            self.context.count_error("a decision", error)
            self.context.wake()  # it may be owed to somebody; a lasting error switches control off

    def _mind_timeout(self) -> None:
        """Keep Dask's ``no-workers-timeout``, if there is one, from failing the tasks we hold."""
        timeout = self.context.scheduler.no_workers_timeout
        if timeout and not self.timeout.is_set and any(True for _ in self.control.held_by_waiting()):
            self.timeout.set(timeout / 2)

    def _restart_clocks(self) -> None:
        if self.is_on:
            compat.restart_no_worker_clock(self.context.scheduler, self.control.held_by_waiting())
            self._mind_timeout()
