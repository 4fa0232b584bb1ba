"""In situ and in transit: a simulation on Dask, and analyses that are placed by what they cost."""
