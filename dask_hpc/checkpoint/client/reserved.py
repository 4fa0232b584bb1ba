"""A program in a reservation: what it is told of its end, and what it tells of how far it is.

``dask-hpc submit`` runs a program in one batch job after the other. It tells each by the environment whether
to commit before the end, and how long that takes. ``Checkpoint`` writes into a file how far the program was
when it committed, in seconds of work, and what commits and restores took; that file outlives any node.

The clock of work runs with the system's, from the start of the process. When a loop goes on from a version,
it is put to what it showed when that version was made. So neither a restore counts nor what is done again.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from time import time
from typing import Any

from dask_hpc.model.errors import InputError, insist, is_number, one_line

#: the environment variable that holds ``Reservation.as_text()``
VARIABLE = "DASK_HPC_RESERVATION"
_FORMAT = "dask-hpc progress 1"
_POINTS = 50  # versions of a name whose work is remembered: more than any store keeps
_LARGEST = 1_000_000  # bytes of the file that are read


@dataclass(frozen=True, slots=True)
class OwnReservation:
    """What a program is told: the file of its progress; the number of the batch job in its chain, and how
    often that was started before; when it was started, by the system's clock; whether it is to commit before
    its end, in how many seconds that is done, and how many times over there is to be room for it."""

    file: str
    number: int
    began: float
    commits: bool = False
    seconds: float = 0.0
    care: float = 1.5
    restarts: int = 0

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> "OwnReservation":
        """Raises ``InputError``."""
        try:
            found = cls(**json.loads(text))
            fine = bool(found.file) and type(found.number) is type(found.restarts) is int
            fine = fine and type(found.commits) is bool
            fine = fine and all(is_number(one, 0, 1e12) for one in (found.began, found.seconds, found.care))
        except (ValueError, TypeError):
            fine = False
        insist(fine, VARIABLE, text, "what dask-hpc submit-step sets")
        return found


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a program is, as its file says. All but ``points`` and ``is_partial`` is of the batch job with
    that number, after so many restarts."""

    number: int = 0
    restarts: int = 0
    #: by name of a checkpoint: iterations that were committed, each with the seconds of work until then
    points: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    #: whether it began with a version of which nobody knows how much work it was
    is_partial: bool = False
    #: whether a checkpoint with a store was opened
    has_store: bool = False
    #: seconds of work that are safe in the store
    saved: float = 0.0
    #: the clock of work showed this at that time of the system's clock
    base: float = 0.0
    since: float = 0.0
    #: what the slowest iteration took, the longest commit until it was safe, and all until the loop went on
    slowest: float = 0.0
    commit: float | None = None
    restore: float | None = None
    #: whether a commit before the end was begun, and whether it was safe in time
    final: str = ""

    def work_at(self, now: float) -> float:
        """What the clock of work shows."""
        return self.base + max(0.0, now - self.since) if self.since else self.saved

    def work_of(self, name: str, step: int) -> float | None:
        """Until that iteration: as it was noted, or in proportion to the one noted before it."""
        known = [point for point in self.points.get(name, ()) if point[0] <= step]
        if step <= 0:
            return 0.0
        return known[-1][1] * step / known[-1][0] if known and known[-1][0] > 0 else None

    @classmethod
    def of(cls, found: Any) -> "Progress":
        """From the file. Raises any of the errors of wrong data."""
        plain = dict(found)
        if plain.pop("format") != _FORMAT:
            raise ValueError
        points = {
            str(name): tuple((int(step), float(work)) for step, work in rows)
            for name, rows in plain.pop("points").items()
        }
        progress = cls(points=points, **plain)
        numbers = (progress.saved, progress.base, progress.since, progress.slowest)
        optional = (progress.commit or 0.0, progress.restore or 0.0, progress.number, progress.restarts)
        if not all(is_number(one, 0, 1e12) for one in (*numbers, *optional)):
            raise ValueError
        return progress


def read_progress(path: Path) -> Progress:
    """What the file says: nothing if there is none. Raises ``InputError`` if it makes no sense."""
    try:
        with open(path, "rb") as file:
            return Progress.of(json.loads(file.read(_LARGEST)))
    except FileNotFoundError:
        return Progress()
    except OSError as error:
        raise InputError("", f"cannot be read: {error.strerror}", file=one_line(str(path))) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError("", "damaged", "progress that a program noted", file=one_line(str(path))) from None


class Reserved:
    """The program's side of a reservation. What cannot be written is told once, and the program goes on."""

    def __init__(self, told: OwnReservation, warn: Callable[[str], None]) -> None:
        self.told = told
        self._warn = warn
        before = Progress()
        try:
            before = read_progress(Path(told.file))
        except InputError as error:
            warn(f"how far the program was is not known: {error}")
        self.progress = before
        if (before.number, before.restarts) != (told.number, told.restarts):  # of a batch job before
            self.progress = Progress(
                told.number, told.restarts, before.points, before.is_partial, saved=before.saved,
                since=told.began,
            )  # fmt: skip

    @classmethod
    def of_environment(cls, warn: Callable[[str], None]) -> "Reserved | None":
        """None if this process is in none of ours."""
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        try:
            return cls(OwnReservation.read(text), warn)
        except InputError as error:
            warn(str(error))
            return None

    def opened(self, has_store: bool) -> None:
        """The program uses checkpoints."""
        if has_store and not self.progress.has_store:
            self._note(has_store=True)

    def loop_begins(self, name: str, step: int, now: float | None = None) -> None:
        """It goes on after that iteration."""
        now = time() if now is None else now
        progress = self.progress
        if step <= 0:
            return
        work = progress.work_of(name, step)
        if work is None:
            self._note(is_partial=True)
        elif work > progress.base:  # else another loop of the program has put it further on
            restore = now - self.told.began
            self._note(base=work, since=now, restore=restore, saved=max(progress.saved, work))

    def commits(self, name: str, step: int, slowest: float, now: float | None = None) -> None:
        """A commit of that iteration begins."""
        now = time() if now is None else now
        points = [one for one in self.progress.points.get(name, ()) if one[0] < step]
        points.append((step, self.progress.work_at(now)))
        known = {**self.progress.points, name: tuple(points[-_POINTS:])}
        self._note(points=known, slowest=slowest)

    def stored(self, name: str, step: int, seconds: float | None = None) -> None:
        """That iteration is safe in the store; how long the commit took, if that is known."""
        work = self.progress.work_of(name, step)
        longest = max(seconds or 0.0, self.progress.commit or 0.0) if seconds else self.progress.commit
        saved = max(self.progress.saved, work or 0.0)
        if (saved, longest) != (self.progress.saved, self.progress.commit):
            self._note(saved=saved, commit=longest)

    def commits_at_end(self, is_safe: bool) -> None:
        """The commit before the end: it begins, or it is safe."""
        self._note(final="safe" if is_safe else self.progress.final or "begun")

    def _note(self, **new: Any) -> None:
        self.progress = replace(self.progress, **new)
        path = Path(self.told.file)
        draft = path.with_name(f".{path.name}.{token_hex(4)}")
        try:
            with open(draft, "x", encoding="ascii") as file:
                json.dump({"format": _FORMAT, **asdict(self.progress)}, file)
                file.flush()
                os.fsync(file.fileno())  # its node may be lost in a moment
            draft.replace(path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            self._warn(f"how far it is cannot be noted in {path}: {error.strerror}")
