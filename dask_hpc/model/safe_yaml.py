"""Reading YAML safely: nothing in a file can run code, and every complaint is one line."""

import difflib
from collections.abc import Iterable
from typing import Any

import yaml

from dask_hpc.model.errors import InputError, shown


class _Loader(yaml.SafeLoader):
    """Safe YAML, which moreover refuses a key said twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in seen:
                raise InputError(f"line {key_node.start_mark.line + 1}", f"{shown(key)} is said twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(text: str | bytes, limit: int) -> Any:
    """Plain data from YAML text of at most ``limit`` bytes; every complaint is an ``InputError``."""
    if len(text) > limit:
        raise InputError("", f"more than {limit:,} bytes", "a smaller file")
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return yaml.load(text, _Loader)
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
    except (ValueError, TypeError, OverflowError, AttributeError, KeyError) as error:
        # PyYAML lets these through for dates and numbers that do not exist, such as 2020-13-45
        raise InputError("", f"not YAML: {shown(str(error))}") from None


def check_keys(found: Any, known: tuple[str, ...], path: str) -> None:
    """Insist on a mapping with known keys only."""
    if not isinstance(found, dict):
        raise InputError(path, f"found {shown(found)}", "a mapping with " + ", ".join(known))
    for key in found:
        if key not in known:
            where = f"{path}.{_word(key)}" if path else _word(key)
            raise InputError(where, f"unknown key{nearest(str(key), known)}", ", ".join(known))


def _word(key: object) -> str:
    return key if isinstance(key, str) and key.isprintable() and len(key) < 60 else shown(key)


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at what may have been meant."""
    close = difflib.get_close_matches(word[:60], list(known), n=1, cutoff=0.5)
    return f" (nearest: {close[0]})" if close else ""
