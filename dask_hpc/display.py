"""How our objects show themselves in a notebook: as whoever offers a display for them says.

The widgets are a package below this one, so they are found, not imported: by the entry points of the group
``dask_hpc.displays``, named after the class. Without one, an object is shown by its ``repr``.
"""

import logging
from importlib.metadata import entry_points
from typing import Any

logger = logging.getLogger(__name__)


def mimebundle(shown: Any, **kwargs: Any) -> Any:
    """What ``_repr_mimebundle_`` answers; None if nobody offers a display, or it fails."""
    for point in entry_points(group="dask_hpc.displays", name=type(shown).__name__):
        try:
            return point.load()(shown)._repr_mimebundle_(**kwargs)
        except ImportError:
            continue  # the extra with the libraries it needs is not installed
        except Exception:
            logger.exception("dask-hpc: %s cannot be shown as a widget", type(shown).__name__)
    return None
