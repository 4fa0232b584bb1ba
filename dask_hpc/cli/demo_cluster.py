"""The small cluster of a demo."""

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

from distributed import Client, LocalCluster


@contextmanager
def demo_cluster(nodes: int, threads: int = 1) -> Iterator[tuple[LocalCluster, Client]]:
    """So many workers of so many threads. Ctrl-C on the terminal is for the demo, not for its workers: they
    inherit that it is blocked. While they start it is only noted; then all is closed in good order."""
    noted: list[int] = []
    resource_tracker.ensure_running()  # it would unblock what is blocked, were it to start later
    handler = signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        cluster = LocalCluster(
            n_workers=nodes,
            threads_per_worker=threads,
            dashboard_address=":0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    with cluster, Client(cluster) as client:
        if noted:
            raise KeyboardInterrupt
        yield cluster, client
