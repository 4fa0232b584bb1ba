"""Output files that are there completely or not at all, and are refused before the work, not after it."""

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dask_hpc.model.errors import InputError, one_line

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@contextmanager
def atomic_file(target: str | Path) -> Iterator[Path]:
    """Yield a path to write to; what was written becomes ``target`` if the block ends well.

    An existing file stays as it was if the block fails. A folder that is missing or may not be written
    to, or a disk without room, is an ``InputError``. A device or pipe such as ``/dev/stdout`` gets the
    content at the end. Only a killed process can leave something behind: a hidden file beside ``target``.
    """
    name = one_line(str(target))
    try:
        final = Path(os.path.realpath(target))  # a link stays, what it points to is replaced
        special = _checked(final, str(target), name)
        draft = _draft(Path(tempfile.gettempdir()) / final.name if special else final)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError("", f"cannot be written: {reason}", file=name) from None
    try:
        yield draft
        if special:
            with draft.open("rb") as source, final.open("wb") as sink:
                shutil.copyfileobj(source, sink)
        else:
            _put_in_place(draft, final)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise InputError("", f"cannot be written: {error.strerror}", file=name) from None
        raise
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: str | Path) -> Iterator[Path]:
    """The same for a folder: yield one to fill, which takes the place of ``target`` if the block ends well.

    Only a folder made by us before (a Zarr store) is replaced.
    """
    name = one_line(str(target))
    final = Path(os.path.realpath(target))
    if not final.parent.is_dir():
        raise InputError("", f"there is no folder {one_line(str(final.parent))}", file=name)
    if final.exists() and not (final / ".zgroup").exists():
        raise InputError("", "exists and is no Zarr store", "a new name, or a store to replace", file=name)
    draft = final.with_name(f".{final.stem[:40]}.{secrets.token_hex(4)}{final.suffix}")
    try:
        yield draft
        if final.exists():
            shutil.rmtree(final)
        draft.replace(final)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _checked(final: Path, written: str, name: str) -> bool:
    """Whether the target is something else than an ordinary file; complain if it cannot be written."""
    if not written or final.is_dir() or written.endswith(os.sep):
        raise InputError("", "is a folder", "a file to write", file=name or "output")
    if not final.parent.is_dir():
        raise InputError("", f"there is no folder {one_line(str(final.parent))}", file=name)
    exists = final.exists()
    if exists and not os.access(final, os.W_OK):
        raise InputError("", "may not be overwritten: it is read-only", file=name)
    return exists and not final.is_file()


def _draft(final: Path) -> Path:
    """A new empty file beside the target, with its suffix: what a library writes may depend on it."""
    draft = final.with_name(f".{final.stem[:40]}.{secrets.token_hex(4)}{final.suffix}")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    return draft


def _put_in_place(draft: Path, final: Path) -> None:
    if final.exists():
        shutil.copymode(final, draft)
    with draft.open("rb") as file:
        os.fsync(file.fileno())  # otherwise a power cut may leave the new name with no content
    draft.replace(final)
