"""A widget's messages: what a front end sends, and what comes back."""

import time


def until(condition, seconds=30):
    """Wait for something that another thread does."""
    limit = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > limit:
            raise AssertionError("it never happened")
        time.sleep(0.01)
    return found


def hear(view, **message):
    """As if a front end had sent it; answers when it is carried out."""
    answers = []
    send = view.send
    view.send = lambda content, buffers=None: (answers.append(content), send(content, buffers))[-1]
    try:
        view._hear(None, message, [])
        return until(lambda: next((one for one in answers if "answer" in one), None))
    finally:
        view.send = send
