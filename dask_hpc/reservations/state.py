"""STATE.json: where a chain of batch jobs is kept, so that each of them, and a person, finds it."""

import re
from collections.abc import Iterator
from contextlib import suppress
from getpass import getuser
from pathlib import Path
from secrets import token_hex

from dask_hpc.checkpoint.client.reserved import Progress, read_progress
from dask_hpc.data_file import DataFile, data_path
from dask_hpc.model.errors import InputError, insist, one_line
from dask_hpc.reservations.chain import Event, Instruction, JobChain
from dask_hpc.reservations.chain_rules import follow

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")
_OURS = "the state of a chain that dask-hpc submit made"
_STATE, _PROGRESS = "state.json", "progress.json"


def own_chains(root: str | None, user: str | None = None) -> Path:
    """The folder of the user's chains: in the data directory, which all nodes must see, or in another one."""
    return (data_path("chains") if root is None else Path(root).absolute()) / (user or getuser())


class ChainFile:
    """The state of one chain. Writers take turns; a reader sees a whole state without waiting."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: where the program says how far it is
        self.progress = path.with_name(_PROGRESS)
        self._file = DataFile(path, JobChain.of, _OURS)

    @classmethod
    def of_name(cls, name: str, root: str | None) -> "ChainFile":
        """That of the user's chain of that name."""
        fine = _NAME.fullmatch(name) is not None
        insist(fine, "--name", name, "at most 80 letters, digits and . _ + -, a letter or digit first")
        return cls(own_chains(root) / name / _STATE)

    def exists(self) -> bool:
        return self.path.exists()

    def since(self) -> float:
        """When the first chain of that name was made: its lock is older than it, and stays."""
        lock = self.path.with_suffix(".lock")
        return (lock if lock.exists() else self.path).stat().st_mtime

    def read(self) -> JobChain:
        """Raises ``InputError`` if there is none, it makes no sense, or it is somebody else's."""
        chain = self._file.read()
        if chain is None:
            raise InputError("", "no such file", _OURS, file=one_line(str(self.path)))
        if chain.user != getuser():
            raise InputError(
                "", f"belongs to {one_line(chain.user)}", "your own", file=one_line(str(self.path))
            )
        return chain

    def progress_now(self) -> Progress:
        """How far the program is, as far as anybody knows."""
        with suppress(InputError):
            return read_progress(self.progress)
        return Progress()

    def create(self, chain: JobChain) -> None:
        """In place of one that is over. Raises ``InputError`` or ``OSError``."""

        def text(before: JobChain | None) -> str:
            if before is not None and not before.over:
                raise InputError("--name", f"{chain.name} goes on already", f"{_DO} {chain.name}")
            return chain.as_text()

        self._file.update(text)
        self.progress.unlink(missing_ok=True)  # of the one before

    def follow(self, event: Event, chain_id: str) -> tuple[JobChain, tuple[Instruction, ...]]:
        """Something happened to the chain with that id. Raises ``InputError`` or ``OSError``."""
        found: list[tuple[JobChain, tuple[Instruction, ...]]] = []

        def text(chain: JobChain | None) -> str:
            if chain is None:
                chain = self.read()  # says what is wrong with it
            if chain.id != chain_id:
                allowed = f"{chain_id}: a newer chain has taken its place"
                raise InputError("", f"is of chain {chain.id}", allowed, file=one_line(str(self.path)))
            found.append(follow(chain, event))
            return found[-1][0].as_text()

        self._file.update(text)
        return found[-1]


_DO = "another name, or dask-hpc submit --status NAME and --cancel NAME of"


def new_id() -> str:
    """Tells a chain from all others."""
    return token_hex(6)


def all_chains(root: str | None) -> Iterator[ChainFile]:
    """The user's, by name."""
    for path in sorted(own_chains(root).glob(f"*/{_STATE}")):
        yield ChainFile(path)
