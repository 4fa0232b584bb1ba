"""Power on a live cluster: measured, trusted, foreseen, and acted upon."""
