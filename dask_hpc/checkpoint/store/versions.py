"""The versions of one checkpoint in a store: all of a version is there, or it is not a version.

A version is a folder with a number. First its blocks are written, each whole or not there; then its manifest,
whole or not there. Whoever is killed in between leaves a folder without a manifest, which nobody reads and
the next one to commit deletes. A version goes the other way round: its manifest first. Numbers only rise, and
no clock has a say in which version is the latest.

What did not change since another version that is still there is stored once: its file has another name in the
new version (``Files.same``), by which it outlives the old one.
"""

from collections.abc import Iterator
from typing import Any

from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store.files import Files, Missing, Trouble
from dask_hpc.checkpoint.store.manifest import Manifest, StoredBlock, check_name
from dask_hpc.checkpoint.store.seal import Damaged, Key, Services, WrongKey, has_sum, seal, unseal
from dask_hpc.model.errors import InputError, shown

MANIFEST = "manifest.json"
_DIGITS = 8


class Versions:
    """Those of one name. May raise ``Trouble`` if the store cannot be used."""

    def __init__(self, files: Files, name: str, key: Key | None = None) -> None:
        self.files = files
        self.name = check_name(name)
        self.key = key

    # reading

    def numbers(self) -> list[int]:
        """Of the versions that are there, the oldest first. Whether they are intact is not looked at."""
        found = []
        for folder in self.files.names(self.name):
            if folder.isdecimal() and MANIFEST in self.files.names(f"{self.name}/{folder}"):
                found.append(int(folder))
        return sorted(found)

    def read(self, version: int) -> Manifest:
        """Raises ``Missing``, ``Damaged`` or ``WrongKey``."""
        found = self.files.read(f"{self._folder(version)}/{MANIFEST}")
        return Manifest.read(found, self.name, version, self.key)

    def latest(self) -> tuple[Manifest | None, list[str]]:
        """The newest version whose manifest is intact, and what was wrong with newer ones."""
        wrong: list[str] = []
        for version in reversed(self.numbers()):
            try:
                return self.read(version), wrong
            except Missing:  # pruned by somebody meanwhile
                continue
            except Damaged as error:
                wrong.append(str(error))
        return None, wrong

    def find(self, version: object) -> Manifest:
        """One by number, or ``"latest"``; ``InputError`` if there is none."""
        if version == "latest":
            manifest, wrong = self.latest()
            if manifest is None:
                why = f": {wrong[0]}" if wrong else ""
                raise InputError("version", f"{self.name} has none in {self.files.root}{why}")
            return manifest
        there = self.numbers()
        if type(version) is int and version in there:
            return self.read(version)
        known = ", ".join(map(str, there[-5:])) or "none"
        raise InputError("version", f"found {shown(version)}", f"latest, or one of {known}")

    def block(self, version: int, place: str, block: StoredBlock) -> list[Any]:
        """The frames of a block. Raises ``Missing``, ``Damaged`` or ``WrongKey``."""
        body = self.files.read(f"{self._folder(version)}/{block.file}")
        return unseal(body, self._block_name(block.content), dict(block.note), self.key)

    def problems(self, manifest: Manifest) -> Iterator[str]:
        """Everything that is wrong with a version: each block is read and its sum checked."""
        for label, item in manifest.items.items():
            for place, block in item.blocks.items():
                where = f"{label}[{place}]" if place else label
                try:
                    body = self.files.read(f"{self._folder(manifest.version)}/{block.file}")
                except Missing:
                    yield f"{where} is missing"
                except Trouble as error:
                    yield f"{where} cannot be read: {error.strerror}"
                else:
                    if not has_sum([body], str(block.note.get("sum", ""))):
                        yield f"{where} is damaged"

    # writing

    def next_number(self) -> int:
        """Of a version that is to be written: above all folders, finished or not."""
        numbers = [int(folder) for folder in self.files.names(self.name) if folder.isdecimal()]
        return max(numbers, default=0) + 1

    def put(self, version: int, file: str, frames: list[Any], services: Services) -> StoredBlock:
        """Write a block of a version that is not there yet."""
        content = services.name_of(frames)
        sealed = seal(frames, self._block_name(content), services)
        self.files.write(f"{self._folder(version)}/{file}", sealed.frames)
        nbytes = sum(memoryview(frame).nbytes for frame in frames)
        return StoredBlock(file, nbytes, content, sealed.note)

    def keep(self, version: int, file: str, old: int, block: StoredBlock) -> StoredBlock:
        """A block as it is in an older version, which may be gone: ``Missing`` then."""
        self.files.same(f"{self._folder(old)}/{block.file}", f"{self._folder(version)}/{file}")
        return StoredBlock(file, block.nbytes, block.content, block.note)

    def commit(self, manifest: Manifest) -> None:
        """All its blocks are there: from now on it is a version."""
        path = f"{self._folder(manifest.version)}/{MANIFEST}"
        self.files.write(path, [manifest.write(self.key)], "manifest", make_folder=False)

    def prune(self, keep: int) -> list[int]:
        """Delete all but the last ``keep`` versions, and what was never finished before the last one. Gives
        the numbers of versions that went. One with a damaged manifest does not count as one that is kept."""
        there = self.numbers()
        intact = [number for number in there if self._is_intact(number)]
        if not intact:
            return []
        kept = intact[-max(1, keep) :]
        old = [number for number in there if number < intact[-1] and number not in kept]
        for number in old:
            reach("prune-begun")
            self.files.delete(f"{self._folder(number)}/{MANIFEST}")
            reach("prune-hidden")
            self.files.delete(self._folder(number))
        for folder in self.files.names(self.name):
            if folder.isdecimal() and int(folder) < intact[-1] and int(folder) not in there:
                self.files.delete(f"{self.name}/{folder}")
        self.files.sweep(self.name)
        return old

    def _is_intact(self, version: int) -> bool:
        try:
            return bool(self.read(version))
        except WrongKey:  # not for us to say
            return True
        except (Missing, Damaged):
            return False

    def _folder(self, version: int) -> str:
        return f"{self.name}/{version:0{_DIGITS}}"

    def _block_name(self, content: str) -> str:
        # A block may be in several versions under several names; its contents are what it is.
        return f"{self.name}/{content}"


def names_in(files: Files) -> list[str]:
    """The names of all checkpoints in a store."""
    return [name for name in files.names() if not name.startswith(".") and Versions(files, name).numbers()]
