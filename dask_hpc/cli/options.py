"""Complaints about what an option said name that option: ``--nodes``, where Python says ``nodes``."""

import re
from typing import Any

import click
from click.core import ParameterSource

from dask_hpc.model.errors import InputError

#: the key that a complaint begins with, whole: ``nodes`` or ``power: computing``, but not ``power.upper``
_KEY = re.compile(r"([a-z][a-z_-]*)(?=:|\s|$)")
#: a keyword that a complaint asks for: ``nodes=N``
_ASKED = re.compile(r"\b([a-z_]+)=([A-Z]+)\b")


class OptionContext(click.Context):
    """Of a command whose complaints name its options."""

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """As click does it."""
        try:
            return super().invoke(*args, **kwargs)
        except InputError as error:
            raise _in_words_of(self, error) from None


def name_options(command: click.Command) -> None:
    """Let complaints of this command, and of those below it, name options."""
    command.context_class = OptionContext
    if isinstance(command, click.Group):
        for one in command.commands.values():
            name_options(one)


def _in_words_of(context: click.Context, error: InputError) -> InputError:
    """A file's own keys are no options, nor is what nobody gave on the command line, unless the complaint
    asks for it."""
    if error.file:
        return error
    options = {name: one for one in context.command.params for name in _names(one)}
    asked = {match[1] for match in _ASKED.finditer(error.allowed) if match[1] in options}
    allowed = _ASKED.sub(
        lambda match: f"{_long(options[match[1]])} {match[2]}" if match[1] in options else match[0],
        error.allowed,
    )
    where = error.where
    key = _KEY.match(where)
    if key is not None and key[1] in options:
        source = context.get_parameter_source(options[key[1]].name or "")
        if source == ParameterSource.COMMANDLINE or key[1] in asked:
            where = _long(options[key[1]]) + where[key.end() :]
    return InputError(where, error.found, allowed)


def _names(one: click.Parameter) -> set[str]:
    """What Python may call an option."""
    if not isinstance(one, click.Option):
        return set()
    word = _long(one).lstrip("-")
    names = {one.name or word, word, word.replace("-", "_")}
    return names | {name.removesuffix("s") for name in names} if one.multiple else names


def _long(one: click.Parameter) -> str:
    return max(one.opts, key=len)
