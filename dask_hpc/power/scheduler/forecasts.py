"""Forecasts of power on a live cluster, beside the scheduler's loop and never in its way.

A fit takes a second of processor time and holds Python's lock for most of it, so a thread alone would
delay the loop by much more than the few milliseconds that it may. Hence a thread that only talks to a
process of low priority (``main``): JSON lines both ways, nothing is unpickled. Until that process has an
answer, and whenever it has none that is new enough, the last value answers, here, with an interval of its
own.
"""

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic, thread_time
from typing import IO, TYPE_CHECKING, Any

from dask_hpc.model.power import PowerRange
from dask_hpc.planning.forecast import LEAST_ERRORS, Forecast, Forecaster

if TYPE_CHECKING:  # the process is to start without Dask
    from dask_hpc.cluster.scheduler.service import Context

_MODULE = "dask_hpc.power.scheduler.forecasts"
_DEATHS = 3  # of the process, after which we do without it
_NEW_FOR = 5  # periods: an older forecast is not used
_PATIENCE = 60.0  # seconds without an answer after which the process is taken to hang
# The matrices are small, and other cores are for others.
_ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

Samples = list[tuple[float, float]]


class LiveForecasts:
    """Takes samples of power as they come; ``latest`` is what is known of the coming ones.

    All methods are for the scheduler's loop and cost it a fraction of a millisecond. Times are on the
    caller's clock. ``parameters`` are those of a ``Forecaster``; ``retrain`` is the seconds between fits.
    """

    def __init__(self, context: "Context", *, retrain: float = 60.0, **parameters: Any) -> None:
        self._context = context
        self._plain = Forecaster(models=["last value"], **parameters)
        self._given = json.dumps({**parameters, "retrain": retrain})
        self._window: deque[tuple[float, float]] = deque(maxlen=self._plain.window)
        self._link: _Link | None = None
        self._quiet_since = 0.0
        self._deaths = 0
        self._answer: Forecast | None = None
        self._told: tuple[Any, ...] = ()
        self._is_closed = False
        #: the most processor time, in seconds, that our thread took in one round: so long, at most, it has
        #: held Python's lock
        self.longest = 0.0

    def add(self, time: float, watts: float) -> None:
        """A sample of the power of the whole machine."""
        if self._is_closed or not self._plain.add(time, watts):
            return
        self._window.append((time, watts))
        self._hear()
        if self._link is not None:
            self._link.send([(time, watts)])
            if monotonic() - self._quiet_since > _PATIENCE:
                self._link.kill()
        elif self._deaths < _DEATHS and len(self._window) >= self._plain.horizon + LEAST_ERRORS:
            # with fewer samples no model can answer
            self._link = _Link([self._given], list(self._window))
            self._quiet_since = monotonic()

    def latest(self, now: float) -> Forecast | None:
        """The newest forecast; None if there is none yet, or none that is new enough."""
        self._hear()
        for found in (self._answer, self._plain.forecast()):
            if found is not None and now - found.time <= _NEW_FOR * self._plain.period:
                return found
        return None

    def close(self) -> None:
        """No forecasts any more; the process is gone when this returns."""
        self._is_closed = True
        if self._link is not None:
            self._link.close()
            self._link = None

    def _hear(self) -> None:
        while self._link is not None and self._link.news:
            self.longest = max(self.longest, self._link.longest)
            news = self._link.news.popleft()
            if isinstance(news, Exception):
                self._link.close()
                self._link = None
                self._deaths += 1
                if not isinstance(news, OSError):
                    self._context.count_error("forecast", news)
                after = "from now on the last value is the forecast"
                if self._deaths < _DEATHS:
                    after = "it is started again"
                self._context.tell("forecast", f"the process that forecasts ended ({news}); {after}")
                return
            self._quiet_since = monotonic()
            fits, self._answer = news
            self._report(fits)

    def _report(self, fits: int) -> None:
        """Once after each fit: who forecasts now, if that is not what was said."""
        found = self._answer
        if found is None or not fits or (self._told and self._told[0] == fits):
            return
        state = fits, found.model, found.dropped
        if state[1:] != self._told[1:]:
            without = "; ".join(f"not {name}: {why}" for name, why in found.dropped.items())
            reason = f"power is forecast by {found.model}, {found.mape[found.model]:.1f} % off lately"
            self._context.tell("forecast", f"{reason}; {without}" if without else reason)
        self._told = state


class _Link:
    """A thread, and the process it talks to. ``news`` are answers, with how many fits were before each, and
    at last the reason why there are no more."""

    def __init__(self, arguments: list[str], first: Samples) -> None:
        self.news: deque[tuple[int, Forecast | None] | Exception] = deque()
        self.longest = 0.0
        self._arguments = arguments
        self._samples: SimpleQueue[Samples | None] = SimpleQueue()
        self._samples.put(first)
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closing = False
        self._thread = Thread(target=self._run, name="dask-hpc-forecast", daemon=True)
        self._thread.start()

    def send(self, samples: Samples) -> None:
        """Samples for the process, when it is done with those before."""
        self._samples.put(samples)

    def kill(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Neither are answers; the process and the thread are gone when this returns."""
        self._is_closing = True
        self.kill()
        self._samples.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._lock:
                if self._is_closing:
                    return
                self._process = subprocess.Popen(
                    [sys.executable or "", "-P", "-m", _MODULE, *self._arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=_environment(),
                )
            with self._process:
                try:
                    self._talk(self._process)
                finally:
                    self._process.kill()
        except Exception as error:  # nothing may be lost in a thread that nobody looks at
            self.news.append(error)

    def _talk(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None and process.stdout is not None
        while (batch := self._samples.get()) is not None:
            began = thread_time()
            while not self._samples.empty():
                more = self._samples.get()
                if more is None:
                    return
                batch += more
            process.stdin.write(json.dumps(batch).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise OSError(f"with exit code {process.wait()}")
            self.news.append(_read(json.loads(line)))
            self.longest = max(self.longest, thread_time() - began)


def _environment() -> dict[str, str]:
    """Of the process: it finds our package where we did."""
    found = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"} | _ALONE
    paths = [found["PYTHONPATH"]] if found.get("PYTHONPATH") else []
    return found | {"PYTHONPATH": os.pathsep.join([*paths, str(Path(__file__).parents[3])])}


def _read(answer: Any) -> tuple[int, Forecast | None]:
    if "error" in answer:
        raise RuntimeError(answer["error"])
    found = answer["forecast"]
    if found is not None:
        for name in ("mean", "lower", "upper"):
            found[name] = tuple(found[name])
        found = Forecast(**{**found, "range": PowerRange(*found["range"])})
    return answer["fits"], found


# the process


def main(given: str, samples: IO[str], answers: IO[str]) -> None:
    """Samples come in, a line each time, and forecasts go out; it ends when its input does, so it never
    outlives the scheduler. ``given`` are the parameters of a ``Forecaster``, and in ``retrain`` the seconds
    between fits. A line in is a list of (time, watts); a line out is what is known after them, or the error
    that ends all."""
    try:
        for answer in forecasts(given, samples):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    except Exception as error:
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        answers.flush()


def forecasts(given: str, samples: Iterable[str]) -> Iterator[dict[str, Any]]:
    """An answer to each line of samples."""
    parameters: dict[str, Any] = json.loads(given)
    retrain = parameters.pop("retrain")
    forecaster, fits = Forecaster(**parameters), 0
    for line in samples:
        for time, watts in json.loads(line):
            forecaster.add(time, watts)
        found = forecaster.forecast()
        yield {"fits": fits, "forecast": found and asdict(found)}
        # The next samples wait while models are fitted, and are answered all at once.
        fits += forecaster.refit_when_due(retrain)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; it is meant for the scheduler
    os.nice(10)
    protocol = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    main(sys.argv[1], sys.stdin, protocol)
