"""What we put into a worker: remote calls, and messages that the scheduler sends it.

Travels by value with the plugin that needs it: imports nothing of ours.
"""

from collections.abc import Callable, Mapping
from typing import Any


def add_calls(worker: Any, calls: Mapping[str, Callable[..., Any]]) -> None:
    """Answer these remote calls."""
    worker.handlers.update(calls)


def remove_calls(worker: Any, calls: Mapping[str, Callable[..., Any]]) -> None:
    """Answer them no more, unless somebody else does by now."""
    for name, call in calls.items():
        if worker.handlers.get(name) == call:
            del worker.handlers[name]


def hear(worker: Any, name: str, call: Callable[..., None]) -> None:
    """Hear messages of that name from the scheduler. One that nobody hears would end the connection."""
    worker.stream_handlers[name] = call


def hear_no_more(worker: Any, name: str) -> None:
    """The last message of that name has come."""
    worker.stream_handlers.pop(name, None)
