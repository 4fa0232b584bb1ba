"""Intervals that cover what they promise, whatever the model: from the errors it lately made."""

import numpy as np

from dask_hpc.planning.linear_models import Array

_PACE = 0.01  # how far one miss moves the share of errors that are left out


class Edge:
    """The lower (``sign`` -1) or the upper edge (+1) of intervals, one per column of errors.

    Conformal prediction: the edge is an empirical quantile of errors made before. It is adaptive (Gibbs
    and Candes 2021, "Adaptive conformal inference under distribution shift"): each miss makes the share of
    errors that are left out smaller, and hits bring it back, so that the promise holds even if the series
    changes. Ours never leaves out more than the promise allows, or it would grow narrow between two rare
    steps and miss each of them; and where even the largest error was not enough, it widens in proportion.
    Errors of which ``overlap`` in a row are about the same values are that much fewer, and the quantile
    is taken further out for it.
    """

    def __init__(self, sign: int, columns: int, miss: float, overlap: float = 1.0) -> None:
        self._sign = sign
        self._miss = miss
        self._overlap = overlap
        self._share = np.full(columns, miss)

    def offsets(self, errors: Array) -> Array:
        """What to add to forecasts: ``errors`` are those made lately (rows), NaN where there is none."""
        outward = np.sort(self._sign * errors, axis=0)  # NaN last
        count = np.count_nonzero(~np.isnan(outward), axis=0)
        rank = np.ceil((1 - np.maximum(self._share, 0.0)) * (count + self._overlap)).astype(int)
        columns = np.arange(errors.shape[1])
        edge = outward[np.clip(rank - 1, 0, np.maximum(count - 1, 0)), columns]
        short = np.maximum(-self._share, 0.0) / self._miss
        return self._sign * (edge + short * np.maximum(edge, 0.0))

    def learn(self, missed: Array, known: Array) -> None:
        """Whether values lay beyond this edge; ``known`` is where there was one."""
        moved = self._share + _PACE * (self._miss - missed)
        self._share = np.where(known, np.clip(moved, -self._miss, self._miss), self._share)
