"""A model as it runs along with a series, and the errors it makes."""

import numpy as np

from dask_hpc.planning.linear_models import Array, LinearModel


class TrackRecord:
    """Every value is compared with what the model said of it one, two, ... ``horizon`` steps before.

    All tables are rings: the row of a value is its place in the series modulo the length of the table.
    """

    def __init__(self, model: LinearModel, horizon: int, memory: int, lately: int) -> None:
        self._steps = np.arange(horizon)
        self._said = np.full((horizon, horizon), np.nan)
        #: value less forecast; a row for each of the newest values, a column for each step of the horizon
        self.errors = np.full((memory, horizon), np.nan)
        #: the least of ``horizon`` values less the least forecast of them, and the same of the most
        self.extremes = np.full((2, memory, 1), np.nan)
        #: the absolute errors as a share of the value, averaged over the steps; of fewer values
        self.shares = np.full(lately, np.nan)
        self.take(model)

    def take(self, model: LinearModel) -> None:
        """The model is fitted anew: another one, with the same past."""
        self.model = model
        self._ahead = model.ahead(len(self._steps))
        self.path: Array = self._ahead @ model.state

    @property
    def known(self) -> int:
        """How many errors are known at every step of the horizon."""
        return int(np.count_nonzero(np.isfinite(self.errors[:, -1])))

    def see(self, place: int, value: float, least: float, most: float, floor: float) -> None:
        """The next value; ``least`` and ``most`` of the newest ``horizon`` ones, itself included.
        Shares are taken of no less than ``floor``."""
        horizon = len(self._steps)
        row = place % len(self.errors)
        origins = (place - 1 - self._steps) % horizon
        errors = value - self._said[origins, self._steps]
        self.errors[row] = errors
        known = errors[~np.isnan(errors)]
        share = np.abs(known).mean() / max(abs(value), floor) if len(known) else np.nan
        self.shares[place % len(self.shares)] = share
        whole = self._said[place % horizon]
        self.extremes[:, row, 0] = least - whole.min(), most - whole.max()
        self.model = self.model.after(value)
        self.path = self._ahead @ self.model.state
        self._said[place % horizon] = self.path
