"""``python -m dask_hpc`` is ``dask-hpc``."""

from dask_hpc.cli import main

if __name__ == "__main__":
    main()
