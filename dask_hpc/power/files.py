"""Small files of the kernel's, and why one cannot be read."""

from collections.abc import Callable

#: the text of a file, or an OSError
Read = Callable[[str], str]


def read_text(path: str) -> str:
    """The file's text."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def number(read: Read, path: str) -> float | None:
    """The number in a file; None if there is none."""
    try:
        return float(read(path))
    except (OSError, ValueError):
        return None


def why_not(error: Exception, path: str) -> str:
    """In words, without the kernel's numbers."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror.lower()}: {path}"
    return f"{error or type(error).__name__}: {path}"
