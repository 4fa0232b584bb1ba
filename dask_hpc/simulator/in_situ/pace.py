"""When the steps of a pipeline begin: at most two iterations are alive."""

from dataclasses import dataclass

from dask_hpc.model.partition import Mode, Phases


@dataclass(slots=True)
class Pace:
    """Analyses of an iteration begin when its step is done and those of the last iteration are.

    The next step begins meanwhile, in "sync" after those in situ, but not before the analyses of the last
    iteration but one are done: it waits for what does not keep up. Times in seconds; phase times are those
    of the planner's model.
    """

    #: when the analyses that have begun are done
    in_situ: float = 0.0
    in_transit: float = 0.0

    def stepped(self, now: float, phases: Phases, mode: Mode) -> float:
        """A step is done: its analyses begin. Answers when the next step may begin."""
        before = max(now, self.in_situ, self.in_transit)
        self.in_situ = max(now, self.in_situ) + phases.in_situ
        self.in_transit = max(now, self.in_transit) + phases.in_transit
        return max(before, self.in_situ) if mode == "sync" else before

    @property
    def end(self) -> float:
        """When everything that has begun is done."""
        return max(self.in_situ, self.in_transit)
