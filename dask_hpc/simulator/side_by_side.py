"""Two runs side by side: on one clock, with what differs, as words and as a page.

A run is a result of ``simulate``, a course (plain data, as ``Result.course`` gives it), a cluster that is
watched, or a study of one policy: of a study there are figures only.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite, nan
from pathlib import Path
from typing import Any

import pandas as pd

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import show_duration, show_large
from dask_hpc.simulator.comparison import compared
from dask_hpc.simulator.report import worth_a_line
from dask_hpc.simulator.result import METRICS, Result, shown_metric
from dask_hpc.simulator.study import Study
from dask_hpc.view import kit
from dask_hpc.view.page import board_page

_TIMES = ("submitted", "started", "ended", "expected_end")
#: what is told of jobs that are over in both runs
_OF_JOBS = (("waited", "waiting, mean"), ("response", "response, mean"))


@dataclass(frozen=True, slots=True)
class OneOfTwo:
    """A run beside another: its name, its course if it has one, and what its figures are made from."""

    name: str
    source: Any
    course: Mapping[str, Any] | None

    @property
    def is_live(self) -> bool:
        """Whether it goes on."""
        return self.course is not None and self.course["head"].get("state") != "simulated"

    @property
    def metrics(self) -> Mapping[str, float] | None:
        """Those of a simulation."""
        if self.course is None or self.is_live:
            return None
        return {
            name: nan if value is None else value
            for name, value in (self.course.get("figures") or {}).items()
            if name in METRICS
        }


def side_by_side(a: Any, b: Any, names: tuple[str, str] | None = None) -> "SideBySide":
    """Two runs on one clock. Where their times have nothing in common, the second begins when the first does.
    ``names`` are theirs; else those of their policies."""
    found = [_run(one) for one in (a, b)]
    if (found[0].course is None) != (found[1].course is None):
        raise InputError("compare", "found a study and a run", "two studies, or two runs")
    told = [one.name for one in found] if names is None else [str(one) for one in names]
    if len(told) != 2:
        raise InputError("names", f"found {shown(names)}", "one for each of the two")
    if told[0] == told[1]:
        told = [f"{told[0]} (1)", f"{told[1]} (2)"]
    first, second = (OneOfTwo(name, one.source, one.course) for name, one in zip(told, found, strict=True))
    by = 0.0
    if first.course is not None and second.course is not None:
        (begin, end), (other_begin, other_end) = _span(first.course), _span(second.course)
        if end < other_begin or other_end < begin:
            by = begin - other_begin
        moved = shifted(second.course, by) if by else dict(second.course)
        moved["order"] = _same_colours(first.course.get("order") or {}, moved.get("order") or {})
        second = OneOfTwo(second.name, second.source, moved)
    return SideBySide(first, second, by)


@dataclass(frozen=True)
class SideBySide:
    """See ``side_by_side``. ``shift``: seconds by which the second was moved."""

    first: OneOfTwo
    second: OneOfTwo
    shift: float = 0.0

    @property
    def names(self) -> list[str]:
        """Of both."""
        return [self.first.name, self.second.name]

    @property
    def courses(self) -> list[Mapping[str, Any] | None]:
        """Of both; None if there is nothing but figures."""
        return [self.first.course, self.second.course]

    @cached_property
    def table(self) -> list[list[str]]:
        """What is compared, in words: the first's, the second's, what the second has more, and whether it is
        better, if many draws say so."""
        return list(self.rows(*self.courses))

    def rows(self, a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> Iterator[list[str]]:
        """The table of these courses: those of clusters go on."""
        if a is None or b is None:
            yield from _of_studies(self.first, self.second)
        elif (mine := self.first.metrics) and (other := self.second.metrics):
            for name in METRICS:
                x, y = mine.get(name, nan), other.get(name, nan)
                if worth_a_line(name, (x, y)) and (x == x or y == y):
                    yield _row(name.replace("_", " "), x, y, partial(shown_metric, name))
        else:
            yield from _of_jobs(a, b)

    @property
    def about(self) -> str:
        """How they are compared."""
        if self.first.course is None:
            seeds = _seeds(self.first), _seeds(self.second)
            if seeds[0] != seeds[1]:
                return "Other seeds: what differs is not sure."
            return f"The same {len(seeds[0])} seeds: what differs seed by seed, with its 95 % interval."
        words = []
        if self.shift:
            words.append(f"{self.second.name} is moved by {show_duration(self.shift)}, to the same begin.")
        if not (self.first.metrics and self.second.metrics):
            words.append("Figures are of the jobs that are over in both.")
        return " ".join(words)

    def __repr__(self) -> str:
        heads = ["", *self.names, "difference", ""]
        lines = [heads, *self.table]
        wide = [max(len(line[column]) for line in lines) for column in range(5)]
        told = (
            "  ".join(cell.ljust(w) for cell, w in zip(line, wide, strict=True)).rstrip() for line in lines
        )
        return "\n".join([*told, *([self.about] if self.about else [])])

    def given(self) -> dict[str, Any]:
        """What the view draws."""
        return {"names": self.names, "courses": self.courses, "table": self.table, "about": self.about}

    def html(self) -> str:
        """A page that needs no other file."""
        body = kit.script("allotment_map", "compare") + kit.shown(["compare"], **self.given())
        return board_page(" and ".join(self.names), (), body)

    def save(self, path: str | Path) -> None:
        """Write that page."""
        Path(path).write_text(self.html(), encoding="utf-8")


def _run(found: Any) -> OneOfTwo:
    if isinstance(found, Result):
        course = found.course()
        if found.workload == "what if":  # what was before is not known to it
            course["samples"] = course["samples"][1:]
        return OneOfTwo(found.policy.name, found, course)
    if isinstance(found, Study):
        policies = list(dict.fromkeys(found.runs["policy"]))
        if len(policies) != 1:
            raise InputError("compare", f"found a study of {len(policies)} policies", "one policy in each")
        return OneOfTwo(str(policies[0]), found, None)
    if hasattr(found, "watch"):
        return OneOfTwo("the cluster", found, found.watch.course.whole())
    if isinstance(found, Mapping) and "head" in found and "nodes" in found:
        return OneOfTwo(str(found["head"].get("policy") or "run"), found, found)
    allowed = "results or studies of simulate(), courses, or a managed cluster"
    raise InputError("compare", f"found {shown(found)}", allowed)


def _span(course: Mapping[str, Any]) -> tuple[float, float]:
    head = course.get("head") or {}
    return head.get("begin") or 0.0, head.get("time") or 0.0


def _same_colours(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    """The numbers of the second's jobs: what both have has the first's."""
    free = max(first.values(), default=-1) + 1
    new = [job for job in second if job not in first]
    return {job: first[job] for job in second if job in first} | {job: free + n for n, job in enumerate(new)}


def shifted(course: Mapping[str, Any], by: float) -> dict[str, Any]:
    """The same course so many seconds later."""

    def later(row: Any, place: int = 0) -> list[Any]:
        return [*row[:place], row[place] + by, *row[place + 1 :]]

    head = {key: value + by if key in ("begin", "time") else value for key, value in course["head"].items()}
    moved = {key: [later(row) for row in course.get(key) or ()] for key in ("changes", "samples", "marks")}
    moved["presence"] = [later(row) for row in course.get("presence") or ()]
    moved["story"] = [later(row, 1) for row in course.get("story") or ()]
    moved["outside"] = [[one + by for one in span] for span in course.get("outside") or ()]
    moved["jobs"] = [
        row | {key: row[key] + by for key in _TIMES if row.get(key) is not None}
        for row in course.get("jobs") or ()
    ]
    return {**course, "head": head, **{key: value for key, value in moved.items() if key in course}}


def _row(
    words: str,
    a: float,
    b: float,
    show: Callable[[float], str],
    half: float = nan,
    verdict: str = "",
) -> list[str]:
    known = isfinite(a) and isfinite(b)
    return [words, show(a), show(b), _signed(b - a, show, half) if known else "", verdict]


def _signed(more: float, show: Callable[[float], str], half: float = nan) -> str:
    sign = "+" if more > 0 else "\N{MINUS SIGN}" if more < 0 else "±"
    return f"{sign}{show(abs(more))}" + (f" ± {show(half)}" if isfinite(half) else "")


def _seeds(one: OneOfTwo) -> list[Any]:
    return sorted(one.source.runs["seed"])


def _of_studies(first: OneOfTwo, second: OneOfTwo) -> Iterator[list[str]]:
    """Means; what differs is sure only where both had the same seeds."""
    both = [one.source.runs.assign(policy=one.name) for one in (first, second)]
    is_paired = _seeds(first) == _seeds(second)
    found = compared(pd.concat(both, ignore_index=True))
    mine, other = found.rows
    for name, words, unit in found.shown:
        a, b = mine.figures[name], other.figures[name]

        show = partial(shown_metric, name) if name in METRICS else partial(_plain, unit=unit)
        x, y = (nan if one.mean is None else one.mean for one in (a, b))
        if not is_paired:
            yield _row(words, x, y, show)
        elif b.verdict == "other jobs":
            yield [words, show(x), show(y), "", "serves other jobs"]
        else:
            yield _row(words, x, y, show, nan if b.more_half is None else b.more_half, b.verdict)


def _plain(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}" if unit == "jobs" else show_large(value, unit)


def _of_jobs(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[list[str]]:
    """Of the jobs that are over in both, so that the same is compared with the same."""
    ended = [{job["id"]: job for job in one["jobs"] if job.get("ended") is not None} for one in (a, b)]
    both = [job for job in ended[0] if job in ended[1]]
    counts = [str(len(one)) for one in ended]
    yield ["jobs that are over", *counts, f"{len(both)} in both", ""]
    for key, words in _OF_JOBS:
        pairs = [
            (ended[0][job][key], ended[1][job][key])
            for job in both
            if ended[0][job].get(key) is not None and ended[1][job].get(key) is not None
        ]
        if pairs:
            mine, other = (sum(found) / len(pairs) for found in zip(*pairs, strict=True))
            yield _row(words, mine, other, show_duration)
    if both:
        mine, other = (max(one[job]["ended"] for job in both) for one in ended)
        yield _row("the last ended at", mine, other, show_duration)
