"""The process that forecasts beside a scheduler: samples come in, a line each time, and forecasts go out.

Run as a script, by its path: it loads what forecasts need, and neither Dask nor the package of this file. It
ends when its input does, so it never outlives the scheduler.
"""

import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import IO, Any


def main(given: str, samples: IO[str], answers: IO[str]) -> None:
    """``given`` are the parameters of a ``Forecaster``, and in ``retrain`` the seconds between fits. A line
    in is a list of (time, watts); a line out is what is known after them, or the error that ends all."""
    try:
        for answer in forecasts(given, samples):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    except Exception as error:
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        answers.flush()


def forecasts(given: str, samples: Iterable[str]) -> Iterator[dict[str, Any]]:
    """An answer to each line of samples."""
    from dask_hpc.planning.forecast.forecaster import LEAST_ERRORS, Forecaster

    parameters: dict[str, Any] = json.loads(given)
    retrain = parameters.pop("retrain")
    forecaster = Forecaster(**parameters)
    fitted_at, fits = -inf, 0
    for line in samples:
        for time, watts in json.loads(line):
            forecaster.add(time, watts)
        found = forecaster.forecast()
        yield {"fits": fits, "forecast": found and asdict(found)}
        # The next samples wait while models are fitted, and are answered all at once.
        is_enough = len(forecaster.values) >= 2 * (forecaster.horizon + LEAST_ERRORS)
        if is_enough and time - fitted_at >= retrain:
            forecaster.refit()
            fitted_at, fits = time, fits + 1


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; it is meant for the scheduler
    os.nice(10)
    sys.path.append(str(Path(__file__).parents[3]))
    protocol = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    main(sys.argv[1], sys.stdin, protocol)
