"""Bridges: producers that are no Dask tasks put blocks on workers, for graphs that wait for them."""
