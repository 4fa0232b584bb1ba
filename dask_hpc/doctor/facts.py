"""What was found out about a site, before anybody judges it. ``None`` and "" say that nobody knows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["ok", "lacking", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer."""

    area: str
    state: State
    found: str
    #: what a person can do about it, or should know
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What a program printed, or why there is nothing."""

    text: str = ""
    problem: str = ""


NOT_ASKED = CommandAnswer(problem="not asked")


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """A directory that jobs may want to use together."""

    name: str
    path: str
    #: type of its file system
    kind: str = ""
    #: what went wrong with a lock, and with a file that takes another's place; empty if nothing did
    lock: str = ""
    rename: str = ""
    #: what went wrong with looking at all
    problem: str = ""
    #: of the nodes of this allocation: whether they saw a file that was put there
    seen: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node of this allocation, asked from here."""

    name: str
    #: seconds by which its clock is ahead of ours, and how exactly that is known; None if nobody knows
    ahead: float | None = None
    within: float = 0.0
    #: why it could not connect to us
    problem: str = ""
    python: str = ""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of this machine, with an IPv4 address."""

    name: str
    address: str
    is_up: bool = True
    #: Mbit/s; 0 if unknown
    speed: int = 0


@dataclass(frozen=True, slots=True)
class PowerFacts:
    """Where the power of this node can be known from."""

    source: str = "modelled"
    used: tuple[str, ...] = ()
    problem: str = ""
    fix: str = ""
    #: why it cannot be capped; empty if it can
    cap: str = ""


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """Everything."""

    host: str = ""
    python: str = ""
    #: of Python, those that are tested
    pythons: tuple[str, ...] = ()
    #: versions of packages, None if they are not installed
    packages: Mapping[str, str | None] = field(default_factory=dict)
    #: what we need of them
    requirements: Mapping[str, str] = field(default_factory=dict)
    #: by name of a batch system that has a program here: what that says of its version
    systems: Mapping[str, CommandAnswer] = field(default_factory=dict)
    #: of Slurm: ``scontrol show config``; ``sinfo``; ``sacctmgr show assoc`` of this user
    slurm_config: CommandAnswer = NOT_ASKED
    partitions: CommandAnswer = NOT_ASKED
    own_limits: CommandAnswer = NOT_ASKED
    #: the job that we are in, and what its nodes say
    job: str = ""
    nodes: tuple[NodeFacts, ...] = ()
    nodes_problem: str = ""
    directories: tuple[DirectoryFacts, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    #: the address that Dask would take, and why nobody could connect to it from here
    address: str = ""
    address_problem: str = ""
    power: PowerFacts | None = None
    #: open files and processes: what is allowed now, and what could be (-1: any number)
    files: tuple[int, int] | None = None
    processes: tuple[int, int] | None = None
    #: cores and bytes of memory: what this process may use, and what the machine has
    cores: tuple[int, int] = (1, 1)
    memory: tuple[float, float] = (0.0, 0.0)
    #: by batch system: what Dask's configuration says of a job, under ``jobqueue``
    jobqueue: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    config_directory: str = ""
    #: what is wrong with our own configuration
    config_problem: str = ""
    #: ``hpc.farewell`` in seconds
    farewell: float = 25.0
    store: str | None = None

    @property
    def answering(self) -> list[str]:
        """The batch systems that can be asked."""
        return [name for name, answer in self.systems.items() if not answer.problem]

    @property
    def is_alone(self) -> bool:
        """Whether there are no other nodes, as far as anybody can tell."""
        return not self.job and not self.answering
