"""The drawing kit: JavaScript that draws a cluster in the widgets, in reports and on the dashboard's page.

There is no build step and nothing is loaded from a network: a front end gets one text. In the files,
``import { a, b } from "./shared/x.js"`` and ``export`` work as everywhere, so Node and a browser can run them
as they lie here. All names of a view and of what it imports are in one scope then; a test sees to it that
none is there twice.
"""

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_IMPORT = re.compile(r'^import \{[^}]*\} from "(?P<path>\.{1,2}/[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
_RENDER = "export default { render };"


@cache
def module(name: str) -> str:
    """The text of NAME.js with all it needs, as a widget's module."""
    parts: dict[Path, str] = {}
    _collect(_HERE / f"{name}.js", parts)
    return "\n".join(parts.values())


@cache
def style() -> str:
    """The style sheet of all views."""
    return (_HERE / "shared" / "style.css").read_text(encoding="utf-8")


@cache
def script(*views: str) -> str:
    """An element with the code of these views, for a page: ``daskHpc.show`` is there from then on."""
    shared: dict[Path, str] = {}
    _collect(_HERE / "shared" / "document.js", shared)
    scopes = []
    for name in views:
        parts: dict[Path, str] = {}
        _collect(_HERE / f"{name}.js", parts)
        text = parts.pop(_HERE / f"{name}.js")
        shared = parts | shared
        scopes.append(f"views.{name} = (() => {{\n{text.replace(_RENDER, 'return { render };')}}})();")
    code = "\n".join([*shared.values(), *scopes])
    return (
        f'<script>\nconst daskHpc = (() => {{\n"use strict";\n{code}\nreturn {{ show }};\n}})();\n</script>'
    )


def shown(views: Iterable[str], course: Any = None, **more: Any) -> str:
    """An element in which these views draw a course that is over, or follow a cluster's ``feed``. The page
    has to hold ``script`` once, before it."""
    given = json.dumps({"views": list(views), "course": course, **more}, separators=(",", ":"))
    given = given.replace("<", "\\u003c")  # a name cannot end the script
    return (
        '<div class="dask-hpc dask-hpc-page"><noscript>These pictures need JavaScript.</noscript></div>'
        f"<script>daskHpc.show(document.currentScript.previousElementSibling, {given})</script>"
    )


def _collect(path: Path, parts: dict[Path, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for found in _IMPORT.finditer(text):
        needed = (path.parent / found["path"]).resolve()
        if needed not in parts:
            _collect(needed, parts)
    parts[path] = _EXPORT.sub("", _IMPORT.sub("", text))
