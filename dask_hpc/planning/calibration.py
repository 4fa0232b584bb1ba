"""Intervals that cover what they promise, whatever the model: from the errors it lately made."""

import numpy as np

from dask_hpc.planning.linear_models import Array

#: how far one miss moves the share of errors that are left out, and how far the share may go
_PACE = 0.01
_MOST = 0.45


class Edge:
    """The lower (``sign`` -1) or the upper edge (+1) of intervals, one per column of errors.

    Conformal prediction: the edge is an empirical quantile of errors made before. It is adaptive (Gibbs
    and Candes 2021, "Adaptive conformal inference under distribution shift"): each miss makes the share of
    errors that are left out smaller, each hit a little larger, so that in the long run the promised share is
    missed even if the series changes. Where even the largest error was not enough, we widen in proportion.
    """

    def __init__(self, sign: int, columns: int, miss: float) -> None:
        self._sign = sign
        self._miss = miss
        self._share = np.full(columns, miss)

    def offsets(self, errors: Array) -> Array:
        """What to add to forecasts: ``errors`` are those made lately (rows), NaN where there is none."""
        outward = np.sort(self._sign * errors, axis=0)  # NaN last
        count = np.count_nonzero(~np.isnan(outward), axis=0)
        columns = np.arange(errors.shape[1])
        rank = np.ceil((1 - np.clip(self._share, 0.0, _MOST)) * (count + 1)).astype(int) - 1
        edge = outward[np.clip(rank, 0, np.maximum(count - 1, 0)), columns]
        short = np.maximum(-self._share, 0.0) / self._miss
        edge = edge + short * np.maximum(edge, 0.0)
        return self._sign * edge

    def learn(self, missed: Array, known: Array) -> None:
        """Whether values lay beyond this edge; ``known`` is where there was one."""
        moved = self._share + _PACE * (self._miss - missed)
        self._share = np.where(known, np.clip(moved, -self._miss, _MOST), self._share)
