"""Everything that is wrong with the versions in a store: each file is read and its sum checked."""

from collections.abc import Iterator

from dask_hpc.checkpoint.store.files import Missing, Trouble
from dask_hpc.checkpoint.store.seal import Damaged, WrongKey
from dask_hpc.checkpoint.store.versions import Versions
from dask_hpc.checkpoint.store.zarr_metadata import metadata_files


def problems(versions: Versions, version: int) -> Iterator[str]:
    """Of one version, a line each."""
    try:
        manifest = versions.read(version)
    except (Damaged, Missing) as error:
        yield str(error)
        return
    where = f"{manifest.name} version {version}"
    for problem in versions.problems(manifest):
        yield f"{where}: {problem}"
    if versions.key is not None:
        return
    for label, item in manifest.items.items():
        try:
            expected = metadata_files(label, item)
        except (WrongKey, ValueError, LookupError, TypeError, AttributeError) as error:
            yield f"{where}: item {label}: its description is damaged ({type(error).__name__})"
            continue
        for path, body in expected.items():
            try:
                found = versions.files.read(f"{versions.name}/{version:08}/{path}")
            except Trouble as error:
                yield f"{where}: {path}: {error.strerror}"
                continue
            if found != body:
                yield f"{where}: {path} is damaged: we do not need it, but plain xarray does"
