"""Heat spreads in a plate: a simulation with four analyses of every iteration.

A wire along a sine glows in a plate that loses heat to the air; a disc in it conducts badly. Whoever has
fewer cores than the machine to be shown can ``play`` slow cores: functions then compute, and wait for what
is missing to the time that they are to take.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from time import perf_counter, sleep
from typing import Any

import numpy as np
import xarray as xr

#: steps of time in an iteration; heat comes as many cells far, so a block has to see as many around it
STEPS = 8
HALO = {"y": STEPS}
#: rows and columns of the plate that is shown
ROWS, COLUMNS = 192, 384
#: temperatures from which on a cell is behind the front, and as the wire reaches them
WARM, HOT = 0.1, 1.0
#: of the plate at first; of nothing at all would come numbers so small that processors are slow with them
_COLD = 0.01
_LOSS, _HEATING, _CONDUCTS, _INSULATES = 1e-3, 0.02, 0.2, 0.004
_PICTURE = 96  # columns of the picture
_BINS = 64  # of the spectrum

#: seconds that a call takes in this process at least, by the name of the function
_played: dict[str, float] = {}


def play(seconds: Mapping[str, float]) -> None:
    """From now on, calls of these functions take so long in this process, and the others what they take."""
    _played.clear()
    _played.update(seconds)


def _on_a_core(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(function)
    def call(block: Any) -> Any:
        begun = perf_counter()
        found = function(block)
        rest = _played.get(function.__name__, 0.0) - (perf_counter() - begun)
        if rest > 0:
            sleep(rest)
        return found

    return call


def plate(rows: int = 96, columns: int = 192, blocks: int = 12) -> xr.Dataset:
    """The cold plate, cut into so many blocks of rows."""
    y, x = np.linspace(0, 1, rows)[:, None], np.linspace(0, 1, columns)[None, :]
    is_wire = abs(y - 0.5 - 0.3 * np.sin(2 * np.pi * x)) < 1 / rows
    is_wire &= (x > 0.08) & (x < 0.92)
    is_disc = (y - 0.47) ** 2 + (2 * (x - 0.27)) ** 2 < 0.03
    return xr.Dataset(
        {
            "temperature": (("y", "x"), np.full((rows, columns), _COLD)),
            "heating": (("y", "x"), np.where(is_wire, _HEATING, 0.0)),
            "conductivity": (("y", "x"), np.where(is_disc, _INSULATES, _CONDUCTS)),
        }
    ).chunk({"y": -(-rows // blocks)})


@_on_a_core
def advance(block: xr.Dataset) -> xr.Dataset:
    """One iteration. Nothing flows across the rim, so cells near an edge of a block are wrong if there are
    others beyond it: they are ghost cells, and cut off."""
    found, heating = block["temperature"].values.copy(), block["heating"].values
    conductivity = block["conductivity"].values
    along_y = (conductivity[1:] + conductivity[:-1]) / 2
    along_x = (conductivity[:, 1:] + conductivity[:, :-1]) / 2
    up, left = np.empty_like(along_y), np.empty_like(along_x)  # memory is asked for once, not in every step
    for _ in range(STEPS):
        np.multiply(along_y, np.subtract(found[1:], found[:-1], out=up), out=up)
        np.multiply(along_x, np.subtract(found[:, 1:], found[:, :-1], out=left), out=left)
        found *= 1 - _LOSS
        found += heating
        found[:-1] += up
        found[1:] -= up
        found[:, :-1] += left
        found[:, 1:] -= left
    return block.assign(temperature=(("y", "x"), found))


@_on_a_core
def front(block: xr.Dataset) -> int:
    """How many cells are warm."""
    return int((block["temperature"].values > WARM).sum())


@_on_a_core
def profile(block: xr.Dataset) -> np.ndarray:
    """The sums of all columns."""
    return block["temperature"].values.sum(axis=0)


@_on_a_core
def spectrum(block: xr.Dataset) -> np.ndarray:
    """Power of the waves along x, summed over rows: how fine the pattern is."""
    waves = np.fft.rfft(block["temperature"].values, axis=1)[:, :_BINS]
    return (waves.real**2 + waves.imag**2).sum(axis=0)


@_on_a_core
def picture(block: xr.Dataset) -> np.ndarray:
    """The temperature with fewer cells: what a person wants to see of it."""
    field = block["temperature"].values
    side = max(1, field.shape[1] // _PICTURE)
    rows, columns = (max(1, size // side) for size in field.shape)
    return field[: rows * side, : columns * side].reshape(rows, side, columns, side).mean(axis=(1, 3))


def added(found: list[Any]) -> Any:
    """The results of all blocks, added up."""
    return sum(found[1:], found[0])


#: of each analysis, what it does with a block, and how the results of all blocks become one
ANALYSES: Mapping[str, tuple[Callable[[xr.Dataset], Any], Callable[[list[Any]], Any]]] = {
    "front": (front, added),
    "profile": (profile, added),
    "spectrum": (spectrum, added),
    "picture": (picture, np.vstack),
}


def analyses() -> dict[str, Any]:
    """All four as a pipeline takes them. Only the temperature is looked at, so nothing else is moved."""
    from dask_hpc import InSituPipeline

    return {
        name: InSituPipeline.per_block(function, combine=combine, variables=["temperature"])
        for name, (function, combine) in ANALYSES.items()
    }


def serial(state: xr.Dataset) -> Iterator[dict[str, Any]]:
    """The same without Dask, in a plain loop: the results of each iteration, for ever."""
    lengths = state.chunks["y"]
    ends = np.cumsum(lengths)
    cuts = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    state = state.compute()
    while True:
        state = advance(state)
        blocks = [state.isel(y=cut) for cut in cuts]
        yield {
            name: combine([function(block) for block in blocks])
            for name, (function, combine) in ANALYSES.items()
        }


def after(iterations: int) -> np.ndarray:
    """The temperature of the plate that is shown, after so many iterations of a plain loop."""
    state = plate(ROWS, COLUMNS).compute()
    for _ in range(iterations):
        state = advance(state)
    return state["temperature"].values
