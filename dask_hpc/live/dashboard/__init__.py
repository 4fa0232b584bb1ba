"""Dask's dashboard with our page, read off the story and the status."""
