"""A widget's JavaScript as one module: its own file after those it imports, each once.

There is no build step and nothing is loaded from a network: a front end gets one text. In the files,
``import { a, b } from "./shared/x.js"`` and ``export`` work as everywhere, so Node and a browser can run them
as they lie here. All names of a widget's files are in one scope then; a test sees to it that none is there
twice.
"""

import re
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_IMPORT = re.compile(r'^import \{[^}]*\} from "(?P<path>\.{1,2}/[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


@cache
def module(name: str) -> str:
    """The text of NAME.js with all it needs."""
    parts: dict[Path, str] = {}
    _collect(_HERE / f"{name}.js", parts)
    return "\n".join(parts.values())


@cache
def style() -> str:
    """The style sheet of all widgets."""
    return (_HERE / "shared" / "style.css").read_text(encoding="utf-8")


def _collect(path: Path, parts: dict[Path, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for found in _IMPORT.finditer(text):
        needed = (path.parent / found["path"]).resolve()
        if needed not in parts:
            _collect(needed, parts)
    parts[path] = _EXPORT.sub("", _IMPORT.sub("", text))
