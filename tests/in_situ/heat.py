"""Heat that spreads over a plate, in plain NumPy and xarray: the simulation of the pipeline's tests.

``serial`` is what a pipeline must equal to the last bit: a loop without Dask, on the whole plate.
"""

import numpy as np
import xarray as xr


def plate(shape=(24, 16), dtype="float64", seed=0):
    """Temperature and conductivity of a plate, a material by column, and things without dimensions."""
    dice = np.random.default_rng(seed)
    y, x = shape
    return xr.Dataset(
        {
            "heat": (("y", "x"), (dice.random(shape) * 100).astype(dtype), {"units": "K"}),
            "conduction": (("y", "x"), (dice.random(shape) * 0.2).astype(dtype)),
            "material": ("x", np.arange(x, dtype="int16") % 3),
            "step": ((), np.int64(0)),
        },
        {
            "y": np.arange(y) * 0.5,
            "x": np.arange(x),
            "label": ("y", np.array([f"row {at}" for at in range(y)])),
        },
        {"title": "a plate"},
    )


def advance(block):
    """One step of a block that has one ghost cell on either side, where it has neighbours: 5 points."""
    heat = block["heat"].values
    wide = np.pad(heat, 1, mode="edge")
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    there = heat + block["conduction"].values * (around - 4 * heat)
    return block.assign(heat=block["heat"].copy(data=there.astype(heat.dtype)), step=block["step"] + 1)


def decay(block):
    """One step that looks at no neighbour."""
    return block.assign(heat=block["heat"] * block["heat"].dtype.type(0.75), step=block["step"] + 1)


def mean(state):
    return float(state["heat"].values.mean())


def hottest(state):
    where = int(state["heat"].values.argmax())
    return where, float(state["heat"].values.ravel()[where])


def total(block):
    return float(block["heat"].values.sum(dtype="float64"))


def serial(state, iterations, step=advance):
    """All iterations of the state, the first one after one step."""
    states = []
    for _ in range(iterations):
        state = step(state)
        states.append(state)
    return states
