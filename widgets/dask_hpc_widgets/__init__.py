"""The notebook face of dask-hpc. Widgets join it as their features land."""

from dask_hpc import __version__

__all__ = ["__version__"]
