"""Reading YAML safely: nothing in a file can run code, and every complaint is one line."""

import difflib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import yaml

from dask_hpc.model.errors import InputError, insist, one_line, shown


class _EachKeyOnce(yaml.constructor.SafeConstructor):
    """Refuses a key said twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in seen:
                raise InputError(f"line {key_node.start_mark.line + 1}", f"{shown(key)} is said twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


class _Loader(_EachKeyOnce, yaml.SafeLoader):
    """Safe YAML, which moreover refuses aliases: a handful of aliases of aliases can stand for more data than
    any memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            line = f"line {event.start_mark.line + 1}"
            raise InputError(line, f"found the alias {shown('*' + event.anchor)}", "no aliases; write it out")
        return super().compose_node(parent, index)


if yaml.__with_libyaml__:

    class _QuickLoader(_EachKeyOnce, yaml.CSafeLoader):
        """The same for text without aliases, eight times as fast."""


def _load(text: str) -> Any:
    """What is wrong with a text is told by the slow one, which says more."""
    if yaml.__with_libyaml__ and "*" not in text:
        with suppress(yaml.YAMLError):
            return yaml.load(text, _QuickLoader)
    return yaml.load(text, _Loader)


def read_yaml(text: str | bytes, limit: int) -> Any:
    """Plain data from YAML text of at most ``limit`` bytes; every complaint is an ``InputError``."""
    if len(text) > limit:
        raise InputError("", f"more than {limit:,} bytes", "a smaller file")
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return _load(text)
    except UnicodeDecodeError as error:
        raise InputError("", f"not text: byte {error.start} is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}" if mark else ""
        raise InputError(line, f"not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError("", f"not YAML: {shown(str(error))}") from None
    except RecursionError:
        raise InputError("", "nested too deeply") from None
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # PyYAML lets these through for values that do not exist, such as 2020-13-45 or !!int ""
        raise InputError("", f"not YAML: {one_line(str(error))[:80]}") from None


def check_keys(found: Any, known: tuple[str, ...], path: str) -> None:
    """Insist on a mapping with known keys only."""
    insist(isinstance(found, dict), path, found, "a mapping with " + ", ".join(known))
    for key in found:
        if key not in known:
            word = key if isinstance(key, str) and key.isprintable() and 0 < len(key) < 60 else shown(key)
            where = f"{path}.{word}" if path else word
            raise InputError(where, f"unknown key{nearest(key, known)}", ", ".join(known))


def nearest(word: object, known: Iterable[str]) -> str:
    """A hint at what may have been meant, or nothing."""
    text = word[:60] if isinstance(word, str) else shown(word)
    close = difflib.get_close_matches(text, list(known), n=1, cutoff=0.5)
    return f" (nearest: {close[0]})" if close else ""
