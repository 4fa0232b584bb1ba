"""Pages of Dask's dashboard."""
