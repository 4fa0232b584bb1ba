"""Which words of ``dask-hpc run`` are ours and which are the script's."""

import re
from collections.abc import Sequence

import click

from dask_hpc.live.request import MOST_NODES
from dask_hpc.model.errors import InputError, shown


class RunCommand(click.Command):
    """Up to the script all options are ours. After it, only those that are spelled out exactly as ours
    and stand before ``--``; everything else goes to the script, untouched."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put our options first."""
        valued = {o for p in self.params if isinstance(p, click.Option) and not p.is_flag for o in p.opts}
        flags = {o for p in self.params if isinstance(p, click.Option) and p.is_flag for o in p.opts}
        before, script, after = _split(args, valued)
        ours, rest = _ours(after, valued, {flag for flag in flags if flag.startswith("--")})
        return super().parse_args(ctx, [*before, *ours, *(["--"] if script else []), *script, *rest])


def _split(args: Sequence[str], valued: set[str]) -> tuple[list[str], list[str], list[str]]:
    """The options before the script, the script, what follows it."""
    number = 0
    while number < len(args) and args[number].startswith("-") and args[number] != "--":
        number += 2 if args[number] in valued else 1
    if args[number : number + 1] == ["--"]:
        return list(args[:number]), list(args[number + 1 : number + 2]), ["--", *args[number + 2 :]]
    return list(args[:number]), list(args[number : number + 1]), list(args[number + 1 :])


def _ours(args: Sequence[str], valued: set[str], flags: set[str]) -> tuple[list[str], list[str]]:
    """Take our options out of what follows the script."""
    ours: list[str] = []
    rest: list[str] = []
    number = 0
    while number < len(args) and args[number] != "--":
        word = args[number]
        if word in valued:
            number += 1
            if args[number : number + 1] in ([], ["--"]):
                raise click.BadOptionUsage(word, f"Option {word!r} requires an argument.")
            ours += [word, args[number]]
        elif word in flags or word.partition("=")[0] in valued:
            ours.append(word)
        else:
            rest.append(word)
        number += 1
    return ours, rest + list(args[number + 1 :])


def read_nodes(text: str) -> tuple[int, int]:
    """``MIN:MAX`` or one number for both."""
    found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text, re.ASCII)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= low <= high <= MOST_NODES:
        raise InputError("--nodes", f"found {shown(text)}", "MIN:MAX or a number, with 1 <= MIN <= MAX")
    return low, high
