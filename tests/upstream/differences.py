"""What is not as in plain Dask with us preloaded, and why that is better for a user.

By the name of the test in distributed's own suite that says what Dask does. Everything else there is wanted
to hold with us, too.
"""

_CLOSES = (
    "A worker that closes says farewell first: what it ran is not under suspicion, so a computation ends "
    "with its result where plain Dask gives it up as killed. Who dies is still suspected (test_shuffles.py)."
)
_ROAD = (
    "Workers are retired on our road: what runs may end and its result moves, instead of being computed "
    "again. Dask's policy for it comes last and finds nothing left to move, so a test that watches the "
    "policy sees nothing; what it proves for a user is in test_retiring.py."
)

DIFFERENCES = {
    "test_restarting_during_transfer_raises_killed_worker": _CLOSES,
    "test_restarting_during_barrier_raises_killed_worker": _CLOSES,
    "test_restarting_during_unpack_raises_killed_worker": _CLOSES,
    "test_get_or_create_from_dangling_transfer": _CLOSES,
    "test_scatter_creates_ts": (
        "The worker that has scattered data closes: it is handed over and stays what was scattered, where "
        "plain Dask loses it and runs a task of the same key (test_placement.py)."
    ),
    "test_RetireWorker_faulty_recipient": _ROAD,
    "test_RetireWorker_new_keys_arrive_after_all_keys_moved_away": _ROAD,
    "test_retire_workers_lock": _ROAD,
    "test_RetireWorker_with_actor": (
        "The worker stays, as in plain Dask, and there is a warning. It comes from our logger and says which "
        "worker; the story and the event log say so, too (test_retiring.py)."
    ),
    "test_decide_worker_coschedule_order_neighbors": (
        "Chance, with us and without: on workers with different numbers of threads, whose part comes first "
        "decides how many rows are split: 0.91 to 0.97 of the blocks were with their row in six runs each. "
        "test_placement.py counts what is not chance."
    ),
}
