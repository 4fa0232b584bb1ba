"""Who gets what, each one thing, such that the sum of weights is as large as it can be."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def heaviest(weights: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and the columns that they get; as many as there are of the fewer."""
    # Not above: it is two thirds of what a scheduler or a client would wait for when it loads us.
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(weights, maximize=True)
    return rows, columns
