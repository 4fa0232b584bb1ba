"""What all commands share: bad input is answered with one line, and how a cluster is found."""

import asyncio
import os
import select
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
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


@asynccontextmanager
async def scheduler_at(address: str) -> AsyncIterator[Any]:
    """The scheduler at ADDRESS, managed or not, to be asked. Certificates for a tls:// address are taken from
    Dask's configuration."""
    from distributed import Security, rpc

    try:
        scheduler = rpc(address, timeout=_PATIENCE, connection_args=Security().get_connection_args("client"))
    except (ValueError, TypeError) as error:
        raise _unreachable(address, error) from None
    async with scheduler:
        try:
            await scheduler.identity()
        except (OSError, ValueError, TypeError) as error:
            raise _unreachable(address, error) from None
        yield scheduler


def _unreachable(address: str, error: Exception) -> InputError:
    return InputError(
        "ADDRESS", f"no scheduler answers at {shown(address)}: {error}", "the address of a Dask scheduler"
    )
