"""The command line: ``dask-hpc`` and the same commands as ``dask hpc``."""
