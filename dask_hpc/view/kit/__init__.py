"""The drawing kit: JavaScript that draws a cluster in the widgets, in reports and on the dashboard's page.

There is no build step and nothing is loaded from a network: a front end gets one text. In the files,
``import { a, b } from "./shared/x.js"`` and ``export`` work as everywhere, so Node and a browser can run them
as they lie here. What is shared is there once; a view that others show has a scope of its own. A test sees to
it that no name is there twice.
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
def module(name: str, *views: str) -> str:
    """The text of NAME.js with all it needs, as a widget's module; it finds ``views`` by their names."""
    return _code(name, views).replace(_RENDER, "export default { render: alone(render) };")


@cache
def style() -> str:
    """The style sheet of all views."""
    return (_HERE / "shared" / "style.css").read_text(encoding="utf-8")


@cache
def script(*views: str) -> str:
    """An element with the code of these views, for a page: ``daskHpc.show`` is there from then on."""
    code = _code("shared/document", views)
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


def _code(name: str, views: Iterable[str]) -> str:
    """NAME.js after all that it and the views need, and after the views."""
    parts = _collected("shared/contact") | _collected(name)
    scopes = []
    for view in views:
        needed = _collected(view)
        text = needed.pop(_HERE / f"{view}.js").replace(_RENDER, "return { render };")
        parts = needed | parts
        scopes.append(f"views.{view} = (() => {{\n{text}}})();")
    own = parts.pop(_HERE / f"{name}.js")
    return "\n".join([*parts.values(), *scopes, own])


def _collected(name: str) -> dict[Path, str]:
    """The files that NAME.js needs, by their paths, each after those that it needs itself."""
    parts: dict[Path, str] = {}
    _collect(_HERE / f"{name}.js", parts)
    return parts


def _collect(path: Path, parts: dict[Path, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for found in _IMPORT.finditer(text):
        needed = (path.parent / found["path"]).resolve()
        if needed not in parts:
            _collect(needed, parts)
    parts[path] = _EXPORT.sub("", _IMPORT.sub("", text))
