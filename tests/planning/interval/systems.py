"""The test systems of 003, table 6.1, in seconds."""

from dask_hpc.planning.interval import Level

MINUTE = 60.0
#: minutes between failures, shares of severities, minutes of a commit or restart, minutes of work
SYSTEMS = {
    "M": (6944.45, (0.083, 0.75, 0.167), (0.008, 0.075, 17.53), 1440),
    "B": (333.33, (0.56, 0.28, 0.14, 0.03), (0.17, 0.5, 0.83, 2.5), 1440),
    "D1": (51.42, (0.857, 0.143), (0.333, 0.833), 1440),
    "D4": (6.0, (0.833, 0.167), (0.167, 0.667), 1440),
    "D7": (4.0, (0.833, 0.167), (0.667, 3.33), 360),
    "D8": (3.13, (0.870, 0.130), (0.833, 5.0), 360),
}


def levels_of(name):
    """Severities that sum to 1.01 are made to sum to one (003 digest, G20)."""
    mtbf, shares, costs, _ = SYSTEMS[name]
    return [
        Level(str(number), cost * MINUTE, cost * MINUTE, share / sum(shares) / mtbf / MINUTE)
        for number, (share, cost) in enumerate(zip(shares, costs, strict=True), 1)
    ]


def run_of(name):
    return SYSTEMS[name][-1] * MINUTE
