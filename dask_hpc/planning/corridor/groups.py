"""Parts that differ in nothing the corridor's program looks at, as one part."""

from collections import defaultdict
from dataclasses import replace

from dask_hpc.model.power import PowerRange
from dask_hpc.planning.corridor.problem import CorridorProblem, Part


class Groups:
    """``merged`` is the problem with one part for all parts of equal power that can stop at any size.

    That loses nothing: if each of them changes only towards where the group goes, the group changes by just
    the difference. A part whose size now is not allowed any more has to change by a fixed number first.
    """

    def __init__(self, problem: CorridorProblem) -> None:
        self._members: dict[str, list[Part]] = defaultdict(list)
        by_power: dict[PowerRange, list[Part]] = defaultdict(list)
        for part in problem.parts:
            if part.is_contiguous:
                by_power[part.power].append(part)
        parts = [part for part in problem.parts if not part.is_contiguous]
        for power, members in by_power.items():
            low = sum(part.sizes[0] for part in members)
            high = min(sum(part.sizes[-1] for part in members), problem.nodes)
            now = sum(_allowed(part) for part in members)
            self._members[members[0].id] = members
            parts.append(Part(members[0].id, power, range(low, high + 1), now))
        self.merged = replace(problem, parts=tuple(parts))

    def split(self, sizes: dict[str, int]) -> dict[str, int]:
        """The sizes of all parts, from those of the groups."""
        found: dict[str, int] = {}
        for name, size in sizes.items():
            members = self._members.get(name)
            if members is None:
                found[name] = size
                continue
            nows = [_allowed(part) for part in members]
            more = size - sum(nows)
            for part, now in zip(members, nows, strict=True):
                step = max(part.sizes[0] - now, min(part.sizes[-1] - now, more))
                found[part.id] = now + step
                more -= step
        return found


def _allowed(part: Part) -> int:
    """The allowed size that is nearest to the size now."""
    return max(part.sizes[0], min(part.now, part.sizes[-1]))
