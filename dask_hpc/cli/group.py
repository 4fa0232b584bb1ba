"""A command group that imports a command only when it is run, and answers bad input with one line."""

import asyncio
import os
import select
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

import click

from dask_hpc.model.errors import InputError, one_line, shown


class Complaint(click.ClickException):
    """Bad input, said in one line."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        click.echo(f"dask-hpc: {one_line(self.message)}", file=file, err=file is None)


class Interrupted(Complaint):
    """Ctrl-C; exits as a shell would report it (128 + SIGINT)."""

    exit_code = 130


@contextmanager
def one_line_complaints() -> Iterator[None]:
    """Turn what is the user's to mend into a ``Complaint``. Bugs pass through with their traceback."""
    try:
        yield
    except Complaint:
        raise
    except click.UsageError as error:
        hint = f" Try '{error.ctx.command_path} --help'." if error.ctx else ""
        raise Complaint(error.format_message() + hint) from None
    except click.ClickException as error:
        raise Complaint(error.format_message()) from None
    except InputError as error:
        raise Complaint(str(error)) from None
    except (KeyboardInterrupt, click.Abort):
        raise Interrupted("interrupted") from None
    except BrokenPipeError:
        if not _nobody_reads_stdout():
            raise
        # What is still buffered would fail again, noisily, when Python closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(141) from None  # 128 + SIGPIPE, like any Unix tool


def _nobody_reads_stdout() -> bool:
    """Whether the broken pipe is our own output, and not, say, a connection to a worker."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


class LazyGroup(click.Group):
    """``table`` maps each command to its short help; its code is ``PACKAGE.COMMAND:COMMAND``.

    Whatever goes wrong with the input, here or in a command below, becomes a ``Complaint``. That
    happens in ``make_context`` and ``invoke``, not in ``main``, because ``main`` is not ours when we
    run as ``dask hpc``.
    """

    def __init__(self, *args: Any, package: str, table: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._package = package
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Command names, in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in self._table:
            return None
        command: click.Command = getattr(import_module(f"{self._package}.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, so that --help imports none."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._table.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the commands there are when there is no such one."""
        name = args[0]
        if name not in self._table and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}; there are: {', '.join(self._table)}.")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """As click does it, with complaints of one line."""
        with one_line_complaints():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does it, with complaints of one line."""
        with one_line_complaints():
            return super().invoke(ctx)


_PATIENCE = 5.0  # seconds until the scheduler answers


@contextmanager
def cluster_client(cluster: str | None) -> Iterator[Any]:
    """A client of ``local`` or an address; None without one: simulate right here."""
    if cluster is None:
        yield None
        return
    from distributed import Client

    address = None if cluster == "local" else cluster
    try:
        if address is not None:
            asyncio.run(_reach(address))
        own = {"dashboard_address": ":0"} if address is None else {}
        client = Client(address, timeout=_PATIENCE, **own)
    except (OSError, ValueError, TypeError) as error:  # TypeError: TLS without certificates
        raise InputError(
            "--cluster", f"found {shown(cluster)}: {error}", "local, or the address of a scheduler"
        ) from None
    with client:
        yield client


async def _reach(address: str) -> None:
    """Fail if nobody answers. A client that cannot connect could not be closed, and would remain the
    client of whatever runs next."""
    from distributed import Security, rpc

    async with rpc(
        address, timeout=_PATIENCE, connection_args=Security().get_connection_args("client")
    ) as scheduler:
        await scheduler.identity()
