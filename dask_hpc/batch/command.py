"""Running a command of a batch system, beside the event loop."""

import asyncio
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress

from dask_hpc.batch.job_state import Heard

PATIENCE = 20.0  # seconds for one answer of a batch system


async def hear(command: Sequence[str], directory: str = "", say: str = "") -> Heard | None:
    """What a command prints, or None if there is none, or if it takes too long. It is looked for in this
    directory first, if one is given, then on PATH, and it is told these words."""
    program = command[0]
    if directory:
        program = shutil.which(os.path.join(directory, program)) or program
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *command[1:],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # seconds: local times can be ambiguous; and words that we know
            env={**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"},
        )
    except OSError:
        return None
    try:
        out, error = await asyncio.wait_for(process.communicate(say.encode()), PATIENCE)
    except BaseException as problem:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if isinstance(problem, TimeoutError):
            return None
        raise
    return Heard(out.decode(errors="replace"), error.decode(errors="replace"), process.returncode or 0)
