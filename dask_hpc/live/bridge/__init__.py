"""Bridges: producers that are no Dask tasks put blocks on workers, for graphs that wait for them."""

from dask_hpc.live.bridge.producer import Bridge

__all__ = ["Bridge"]
