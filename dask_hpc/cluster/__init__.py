"""The live body: jobs on allotments of a real Dask cluster."""
