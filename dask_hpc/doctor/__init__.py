"""What a site offers and lacks: ``dask-hpc doctor``."""
