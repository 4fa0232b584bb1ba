"""``dask_hpc.AllocationCluster``: a Dask cluster inside of one allocation of several nodes, which it shares
with a program that runs beside.

Failure conditions:

1. A step dies, or its workers do: its unit is gone, and another one is asked for, by whoever adapts the
   cluster, else by the cluster itself; on another node if there is one, as one where units die young rests,
   each time longer, and after four in a row is not used again.
2. A node is lost: Slurm says so when a unit there has died, and it is not used again. (Slurm itself ends
   the whole job when it loses a node, unless this was submitted with ``--no-kill``.)
3. A unit that is to leave for the sake of the other program cannot: its node stays with Dask, ``lend``
   answers with fewer nodes, and the story says why.
4. The script ends, whichever way: what it started has a pipe to it as standard input, and ends with that.
5. A satellite ends, with its walltime or its nodes: who adapts the cluster finds out and replaces it. Without
   that nobody asks Slurm, and it stays in the account, as batch jobs do after a plain ``scale``.
"""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import time
from typing import Any

import dask.config
from distributed import Scheduler, Security
from distributed.deploy import SpecCluster

from dask_hpc import dask as compat
from dask_hpc.cluster.client.beside import Beside, WishFiles
from dask_hpc.cluster.client.node_unit import AllocationDesk, NodeUnit, WorkerWords
from dask_hpc.cluster.client.places import UnitPlaces
from dask_hpc.cluster.client.satellites import Extension, Satellite, grow_in_place
from dask_hpc.cluster.client.steps import steps_here
from dask_hpc.cluster.units import is_closing, members
from dask_hpc.model.errors import InputError, insist
from dask_hpc.model.units import count_nodes, parse_duration
from dask_hpc.planning.allocation import Allocation, beside_command, beside_environment

logger = logging.getLogger(__name__)

_WHERE = "AllocationCluster"
_LOOK, _LOOK_LATER = 0.5, 10.0  # seconds between looks at what the program beside wishes; if it got less
_INHERIT = "DASK_INTERNAL_INHERIT_CONFIG"  # Dask's own way to hand configuration to another process


class AllocationCluster(SpecCluster):
    """A Dask cluster on the nodes of the Slurm job that this program runs in (``sbatch``, ``salloc``); where
    there is no Slurm, on this machine, which is taken for ``nodes`` nodes.

    A unit is a node, or one of the ``parts`` of it, with so many worker ``processes``; ``units`` of them are
    started (by default as many as have a place), and ``scale``, ``adapt`` and ``dask_hpc.malleable`` change
    that. Units for which there is no place wait for one. Scheduler and script run where the script was
    started, beside the workers of that node. ``interface`` is the network of all of them ("ib0").

    The last ``keep`` nodes are not Dask's: ``beside`` runs a program there, and ``lend`` and ``take_back``
    move nodes between the two, without losing work, when the program is at the border of an iteration::

        with dask_hpc.AllocationCluster(keep=2) as cluster, dask_hpc.malleable(cluster):
            for chunk in range(10):
                with cluster.beside(["mpirun", "./model", f"--chunk={chunk}"]):
                    analyse(chunk - 1)
                cluster.take_back(1) if is_late() else cluster.lend(1)
    """

    def __init__(
        self,
        units: int | None = None,
        *,
        keep: int = 0,
        parts: int = 1,
        processes: int = 1,
        nodes: int | None = None,
        nanny: bool = True,
        interface: str | None = None,
        local_directory: str | None = None,
        log_directory: str | None = None,
        python: str = sys.executable,
        worker_extra_args: Iterable[str] = (),
        scheduler_options: dict[str, Any] | None = None,
        security: Security | None = None,
        **more: Any,
    ) -> None:
        steps = steps_here(nodes)
        given = steps.allocation.nodes
        _check(units, keep, parts, processes, nanny, len(given))
        self._places = UnitPlaces(given, parts, keep)
        host = None if interface else steps.host
        extra = tuple(map(str, worker_extra_args))
        words = WorkerWords(processes, parts, nanny, host, interface, local_directory, python, extra)
        self._own_logs = log_directory is None
        logs = Path(tempfile.mkdtemp(prefix="dask-hpc-") if log_directory is None else log_directory)
        logs.mkdir(parents=True, exist_ok=True)
        variables = _configuration(security)
        self._desk = AllocationDesk(steps, self._places, words, variables, logs, self._unit_is_gone)
        self._numbers = count()
        self._programs: list[Beside] = []
        self._watching: set[asyncio.Task[None]] = set()
        self._moving: asyncio.Lock | None = None
        least = min(given, key=lambda node: node.cores)
        memory = min((words.memory(node) or 0 for node in given), default=0)
        options = {"desk": self._desk, "nthreads": words.threads(least), "memory_limit": memory or None}
        worker: dict[str, Any] = {"cls": NodeUnit, "options": options}
        if processes > 1:
            worker["group"] = [f"-{number}" for number in range(processes)]
        to_begin_with = self._places.size if units is None else units
        scheduler = {"host": host, "interface": interface, "security": security, "dashboard": True}
        scheduler |= {"protocol": "tls://" if security and security.require_encryption else "tcp://"}
        try:
            super().__init__(
                workers={f"unit-{next(self._numbers)}": worker for _ in range(to_begin_with)},
                scheduler={"cls": Scheduler, "options": scheduler | dict(scheduler_options or {})},
                worker=worker,
                security=security,
                **{"name": _WHERE, "silence_logs": logging.WARNING} | more,
            )
        except BaseException:
            self._clean()
            raise

    # what it has

    @property
    def allocation(self) -> Allocation:
        """The nodes it was given, and when they are taken away."""
        return self._desk.steps.allocation

    @property
    def kept(self) -> list[str]:
        """Names of the nodes that are not Dask's now."""
        return self._places.names("beside")

    def nodes(self) -> list[tuple[str, str, str]]:
        """For each node its name, who has it ("Dask", "beside", "not used"), and its units or why there are
        none."""
        return self._places.table()

    def new_worker_spec(self) -> dict[str, Any]:
        """A unit more, under a name that none had before."""
        return {f"unit-{next(self._numbers)}": self.new_spec}

    # when a unit is gone

    def _unit_is_gone(self, unit: NodeUnit, why: str) -> None:
        """On the event loop. Who adapts the size finds out, and replaces it as the policy says."""
        if is_closing(self) or unit.name not in self.worker_spec:
            return  # it was to go
        logger.warning("dask-hpc: %s is gone: %s", unit.name, why)
        if compat.adaptive_of(self) is None:
            self.workers.pop(unit.name, None)
            del self.worker_spec[unit.name]
            self._add_units(1)

    def _add_units(self, number: int) -> None:
        for _ in range(number):
            self.worker_spec.update(self.new_worker_spec())
        compat.correct_soon(self)

    # the program beside

    def beside(
        self,
        command: Sequence[str],
        *,
        nodes: int | None = None,
        tasks_per_node: int = 1,
        wishes: str | Path | None = None,
        **how: Any,
    ) -> Beside:
        """Start a program on the nodes that are kept, or on the first ``nodes`` of them.

        ``srun`` and ``mpirun`` find out by themselves where; any other command runs ``tasks_per_node`` times
        on each node (where there is no Slurm once). In its environment are ``DASK_HPC_NODES``, the names, and
        ``DASK_SCHEDULER_ADDRESS``, for ``dask_hpc.Bridge``. ``how`` is for ``subprocess.Popen``.

        ``wishes`` is a directory that all nodes see, for a program that lives on while it gets and gives
        nodes: ``DASK_HPC_WISH`` names the file into which it writes how many it wants, at the border of an
        iteration, when it has left the last ones of its list; ``DASK_HPC_NODES_FILE`` the one in which it
        finds its list.
        """
        kept = self.kept
        number = len(kept) if nodes is None else nodes
        allowed = f"1 to {len(kept)} nodes: AllocationCluster(keep=...) or lend() give some"
        insist(type(number) is int and 1 <= number <= len(kept), "beside: nodes", number, allowed)
        fine = type(tasks_per_node) is int and tasks_per_node >= 1
        insist(fine, "beside: tasks_per_node", tasks_per_node, "a whole number >= 1")
        fine = not isinstance(command, str | bytes) and isinstance(command, Sequence)
        insist(fine, "beside", command, "a command: a list of words")
        if busy := sorted(set(kept[:number]) & self._busy()):
            raise InputError("beside", f"a program runs on {', '.join(busy)} already", "when it is over")
        chosen = [self._places.node(name) for name in kept[:number]]
        words = beside_command(command, chosen, self.allocation.job, tasks_per_node)
        environment = beside_environment({**os.environ, **(how.pop("env", None) or {})}, chosen)
        environment["DASK_SCHEDULER_ADDRESS"] = self.scheduler_address
        files = None if wishes is None else WishFiles(wishes)
        program = Beside(words, environment, kept[:number], self._program_is_over, files, **how)
        self._programs.append(program)
        if files is not None:
            self.loop.add_callback(self._watch, program)
        return program

    def _busy(self) -> set[str]:
        """Nodes on which a program runs that does not say which it has left."""
        running = (program for program in self._programs if not program.is_over)
        return {name for program in running for name in program.nodes}

    def _program_is_over(self, program: Beside) -> None:
        with suppress(ValueError):
            self._programs.remove(program)

    def _watch(self, program: Beside) -> None:
        task = asyncio.ensure_future(self._follow(program))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _follow(self, program: Beside) -> None:
        """Give and take nodes as the program wishes, as far as there are some."""
        files = program.files
        assert files is not None
        pause = _LOOK
        while not program.is_over and not is_closing(self):
            await asyncio.sleep(pause)
            have, wish = list(program.nodes), files.wish()
            pause = _LOOK
            if wish is None or wish == len(have):
                continue
            if wish < len(have):
                program.nodes = tuple(have[:wish])
                files.tell(program.nodes)
                await self._take_back(have[wish:])
                continue
            free = [name for name in self.kept if name not in self._busy()]
            least = len(self._places.names("dask")) - 1  # one is left to Dask
            free += await self._lend(min(least, max(0, wish - len(have) - len(free))))
            program.nodes = (*have, *free[: wish - len(have)])
            files.tell(program.nodes)
            pause = _LOOK if len(program.nodes) == wish else _LOOK_LATER

    # nodes that change hands

    def lend(self, nodes: int = 1) -> Any:
        """Give so many of Dask's nodes to the program beside: those without units, then those that are
        easiest to miss. Their units finish what they run and hand over their data first. The names of those
        that are free now; they may be fewer (see the story)."""
        most = len(self._places.names("dask"))
        insist(type(nodes) is int and 0 <= nodes <= most, "lend", nodes, f"0 to {most} nodes of Dask's")
        return self.sync(self._lend, nodes)

    def take_back(self, nodes: int = 1) -> Any:
        """Give so many of the kept nodes to Dask, the last ones, which the program beside must have left.
        Their names. Units start there: those that wait, then as many more as have a place, unless somebody
        adapts the size."""
        kept = self.kept
        insist(
            type(nodes) is int and 0 <= nodes <= len(kept), "take_back", nodes, f"0 to {len(kept)} kept nodes"
        )
        names = kept[len(kept) - nodes :]
        if busy := sorted(set(names) & self._busy()):
            raise InputError("take_back", f"a program still runs on {', '.join(busy)}", "when it is over")
        return self.sync(self._take_back, names)

    async def _lend(self, nodes: int) -> list[str]:
        self._moving = self._moving or asyncio.Lock()
        async with self._moving:
            places = self._places
            chosen = (await self._order())[:nodes]
            for name in chosen:
                places.hold(name)
            spec = self.worker_spec
            going = {name: [unit for unit in places.units(name) if unit in spec] for name in chosen}
            for unit in (unit for units in going.values() for unit in units):
                del spec[unit]
            with suppress(Exception):  # of other units, which could not be started
                await compat.correct_soon(self)
            free = [name for name in chosen if places.settle(name)]
            self._desk.changed()
            # a unit that had left when another one of its node could not
            lost = [unit for name in chosen if name not in free for unit in going[name] if unit not in spec]
            if lost and not is_closing(self):
                self._add_units(len(lost))
            return free

    async def _take_back(self, names: Sequence[str]) -> list[str]:
        self._moving = self._moving or asyncio.Lock()
        async with self._moving:
            for name in names:
                self._places.regain(name)
            self._desk.changed()
            if compat.adaptive_of(self) is None and not is_closing(self):
                self._add_units(max(0, self._places.size - len(self.worker_spec)))
            return list(names)

    async def _order(self) -> list[str]:
        """Dask's nodes: who is easiest to miss comes first."""
        places = self._places
        names = places.names("dask")
        there = {
            name: [
                worker
                for unit in places.units(name)
                for worker in members(unit, self.worker_spec.get(unit, self.new_spec))
            ]
            for name in names
        }
        ranked = None
        if compat.can_answer(self.scheduler, "hpc_rank"):  # somebody manages it
            busy = {name: workers for name, workers in there.items() if workers}
            with suppress(Exception):  # or did so just now
                ranked = await self.scheduler_comm.hpc_rank(units=busy)
        order = {name: number for number, name in enumerate(ranked or ())}
        own = os.environ.get("SLURMD_NODENAME", "")  # where script and scheduler are goes last
        place = {name: number for number, name in enumerate(names)}
        return sorted(
            names, key=lambda name: (name == own, bool(there[name]), order.get(name, 0), -place[name])
        )

    # more nodes than were given

    def expand(self, nodes: int = 1, *, walltime: Any = None, options: Iterable[str] = ()) -> Any:
        """Ask Slurm for so many nodes more, like ours: in place where the site permits that a job grows, else
        as a satellite, a batch job whose workers join when it starts. Says which, in words. Until ours ends,
        if no ``walltime`` is given; ``options`` are for ``sbatch`` ("--partition=long")."""
        insist(type(nodes) is int and 1 <= nodes <= 100_000, "expand: nodes", nodes, "a number of nodes")
        allocation = self.allocation
        insist(bool(allocation.job), "expand", "a cluster on this machine alone", "one inside of a Slurm job")
        end = allocation.end if walltime is None else time() + parse_duration(walltime)
        like = min(allocation.nodes, key=lambda node: node.cores)
        return self.sync(self._expand, Extension(nodes, like, end, tuple(map(str, options))))

    async def _expand(self, extension: Extension) -> str:
        desk = self._desk
        environment = desk.steps.environment() | desk.variables
        job = self.allocation.job
        new, why = await asyncio.to_thread(grow_in_place, job, extension, environment)
        if new:
            names = self._places.add(new)
            desk.changed()
            if compat.adaptive_of(self) is None:
                self._add_units(max(0, self._places.size - len(self.worker_spec)))
            return f"in place: {', '.join(names)}"
        (name,) = self.new_worker_spec()
        options = {"extension": extension, "words": desk.words, "environment": environment, "logs": desk.logs}
        each = [f"-{n}" for n in range(desk.words.processes)] if desk.words.processes > 1 else [""]
        group = [f"-{node}{part}" for node in range(extension.nodes) for part in each]
        self.worker_spec[name] = {"cls": Satellite, "options": options, "group": group}
        try:
            await compat.correct_soon(self)
        except Exception as error:
            self.workers.pop(name, None)
            self.worker_spec.pop(name, None)
            raise RuntimeError(f"expand: {error}; in place: {why}") from None
        found = self.workers[name]
        words = f"satellite {name}: job {found.job_id} of {count_nodes(extension.nodes)}; in place: {why}"
        logger.info("dask-hpc: %s", words)
        return words

    # the end

    async def _close(self) -> None:
        for task in list(self._watching):
            task.cancel()
        for program in list(self._programs):
            await program.end()
        await super()._close()
        self._clean()

    def _clean(self) -> None:
        if self._own_logs:
            shutil.rmtree(self._desk.logs, ignore_errors=True)


def _check(units: Any, keep: Any, parts: Any, processes: Any, nanny: Any, nodes: int) -> None:
    for name, value, low, high in (
        ("units", 0 if units is None else units, 0, 1_000_000),
        ("keep", keep, 0, nodes - 1),
        ("parts", parts, 1, 1000),
        ("processes", processes, 1, 1000),
    ):
        fine = type(value) is int and low <= value <= high
        insist(fine, f"{_WHERE}: {name}", value, f"{low} to {high} here, of {nodes} nodes")
    fine = isinstance(nanny, bool) and (nanny or processes == 1)
    insist(fine, f"{_WHERE}: nanny", nanny, "true; or false, for one process per unit")


def _configuration(security: Security | None) -> dict[str, str]:
    """Dask's configuration as it is here, for the workers; with what encrypts their connections."""
    more: dict[str, Any] = {}
    if security is not None and security.require_encryption:
        found = security.get_tls_config_for_role("worker")
        role = {"cert": found.get("cert"), "key": found.get("key")}
        tls = {"ca-file": found.get("ca_file"), "worker": role, "client": role}
        more = {"distributed": {"comm": {"require-encryption": True, "tls": tls}}}
    return {_INHERIT: dask.config.serialize(dask.config.merge(dask.config.config, more))}
