"""The one exception for bad input: what was found, where, and what is allowed."""

from collections.abc import Iterator
from contextlib import contextmanager
from reprlib import Repr
from typing import Any


class InputError(ValueError):
    """Input from outside that cannot be used; its message is one line, fit for a person.

    The CLI prints it and exits with 2; from Python it is an ordinary ``ValueError``. ``where`` is a key
    path, a line or a field; ``file`` is what it was read from, if it was read from anything.
    """

    def __init__(self, where: str, found: str, allowed: str = "", file: str = "") -> None:
        self.where = where
        self.found = found
        self.allowed = allowed
        self.file = file
        text = ": ".join(part for part in (file, where, found) if part)
        if allowed:
            text += f"; allowed: {allowed}"
        super().__init__(one_line(text))

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, str, str, str]]:
        return type(self), (self.where, self.found, self.allowed, self.file)

    def at(self, where: str) -> "InputError":
        """The same complaint, seen from one level further out."""
        inner = f"{where}: {self.where}" if self.where else where
        return InputError(inner, self.found, self.allowed, self.file)

    def in_file(self, file: str) -> "InputError":
        """The same complaint, about this file."""
        return InputError(self.where, self.found, self.allowed, file)


@contextmanager
def within(where: str) -> Iterator[None]:
    """What is complained about inside is said to be at ``where``."""
    try:
        yield
    except InputError as error:
        raise (error.at(where) if where else error) from None


def insist(is_fine: bool, where: str, value: object, allowed: str) -> None:
    """Complain that ``value`` was found unless it is fine."""
    if not is_fine:
        raise InputError(where, f"found {shown(value)}", allowed)


def one_line(text: str) -> str:
    """Text as one line that any terminal can show: no control characters, no stray surrogates."""
    words = " ".join(text.split())
    if words.isprintable():
        return words
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)


def is_number(value: Any, low: float, high: float) -> bool:
    """Whether ``value`` is a number from ``low`` to ``high``. Answers for anything, even an array."""
    try:
        return bool(low <= value <= high)
    except (ArithmeticError, TypeError, ValueError):
        return False


# A few aliases in a YAML file make a structure whose full picture would fill the memory.
_picture = Repr()
_picture.maxlevel = 3
_picture.maxstring = _picture.maxother = _picture.maxlong = 200


def shown(value: object, limit: int = 60) -> str:
    """A short, single-line picture of any value for an error message."""
    try:
        text = _picture.repr(value)
    except Exception:  # an int too long to print, a repr that fails
        text = f"a {type(value).__name__} too large to show"
    text = text.encode("ascii", "backslashreplace").decode("ascii")
    return text if len(text) <= limit else text[: limit - 3] + "..."
