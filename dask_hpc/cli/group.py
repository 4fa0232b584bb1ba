"""A command group that imports a command only when it is run, and answers bad input with one line."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from dask_hpc.cli.complaint import one_line_complaints


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
