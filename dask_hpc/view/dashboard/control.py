"""The page ``/hpc-control``: change the policy, its corridor and the state of control from any browser.

It is for front ends whose widgets have to wait until a cell is done, and for people without a notebook. The
dashboard knows no users, and any page of the web could send a browser there; so this page only opens with the
token that ``Manager.control_page`` puts into its address.
"""

from html import escape
from secrets import compare_digest
from typing import TYPE_CHECKING, Any

from dask_hpc import dask as compat
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import show_bounds
from dask_hpc.policy import ready_made

if TYPE_CHECKING:
    from dask_hpc.cluster.scheduler.plugin import HpcPlugin

PATH = "/hpc-control"
_EVERY = 1000  # milliseconds between two looks
_CLOSED = "This page opens with the address that <code>manager.control_page()</code> gives."


def control_page(plugin: "HpcPlugin", token: str, scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """One form for everything; what is refused is said in a line."""
    from bokeh.models import Div

    doc.title = "dask-hpc: control"
    doc.theme = compat.page_template()[1]
    context = doc.session_context
    given = b"".join(context.request.arguments.get("token", [])) if context is not None else b""
    if not compare_digest(given, token.encode()):
        doc.add_root(Div(text=_CLOSED))
        return
    Form(plugin).show(doc)


class Form:
    """The controls of one open page."""

    def __init__(self, plugin: "HpcPlugin") -> None:
        from bokeh.models import Button, Div, Select, TextInput

        self._plugin = plugin
        self.state = Div()
        self.message = Div()
        self.policy = Select(title="policy", options=list(ready_made()), width=220)
        self.lower = TextInput(title="power not below", placeholder="0 W", width=120)
        self.upper = TextInput(title="power not above", placeholder="2.5 kW, or none", width=120)
        self.apply_policy = Button(label="Apply policy", width=110)
        self.apply_bounds = Button(label="Apply bounds", width=110)
        self.undo = Button(label="Undo", width=80)
        self.pause = Button(label="Pause", width=80)
        self.apply_policy.on_click(lambda: self.do(policy=self.policy.value))
        self.apply_bounds.on_click(lambda: self.do(changes=self.bounds))
        self.undo.on_click(lambda: self.do(action="undo"))
        self.pause.on_click(lambda: self.do(action=self.pause.label.lower()))
        self._version = -1

    def show(self, doc: Any) -> None:
        """Put it on a page, and keep it up to date until that is closed."""
        from bokeh.layouts import column, row

        doc.add_root(
            column(
                self.state,
                row(self.policy, column(self.apply_policy)),
                row(self.lower, self.upper, column(self.apply_bounds)),
                row(self.undo, self.pause),
                self.message,
                margin=(12, 12, 12, 12),
            )
        )
        doc.add_periodic_callback(self.look, _EVERY)
        self.look()

    @property
    def bounds(self) -> dict[str, str]:
        """The bounds that are filled in."""
        given = {"power.lower": self.lower.value.strip(), "power.upper": self.upper.value.strip()}
        return {path: value for path, value in given.items() if value}

    def do(self, **asked: Any) -> None:
        """Ask for a change, and say what came of it."""
        try:
            found = self._plugin.calls.set(**asked)
            self.message.text = f"{escape(found['name'])} is in force; control is {found['state']}"
        except InputError as error:
            self.message.text = f"<b>{escape(str(error))}</b>"
        self.look()

    def look(self) -> None:
        """What holds now; the controls follow what others change."""
        found = self._plugin.calls.set()
        power = self._plugin.history.now.policy.power
        bounds = "no power strategy"
        if power is not None:
            lower, upper = power.corridor.at(self._plugin.clock())
            bounds = show_bounds(lower, upper, "W")
        self.state.text = (
            f"policy <b>{escape(found['name'])}</b>, control <b>{found['state']}</b>, power: {bounds}"
        )
        self.pause.label = "Resume" if found["state"] == "paused" else "Pause"
        self.undo.disabled = not found["undo"]
        if self._plugin.history.version != self._version:
            self._version = self._plugin.history.version
            if found["name"] in self.policy.options:
                self.policy.value = found["name"]
