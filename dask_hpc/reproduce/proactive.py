"""Power that varies while jobs run: to act before it leaves the corridor, or after."""

from dask_hpc.reproduce.claim import Bench, Claim, Columns, Figure, Outcome, direction, figure

_WORKLOAD = "builtin:power-swing"
_REACTIVE, _PROACTIVE = "power-corridor-reactive", "power-corridor-proactive"
#: who foretells, and how many seconds ahead
_FORECASTS = {
    "online": "forecast=online",
    "the oracle": "forecast=oracle",
    "online, of NumPy alone": "forecast=online&cheap=true",
    "online, a minute ahead": "forecast=online&horizon=60",
    "the oracle, five minutes ahead": "forecast=oracle&horizon=300",
    "nobody": "forecast=none",
}
_FIGURES = (
    ("violations", "violations", 1.0, ""),
    ("seconds outside", "time_outside", 1.0, "s"),
    ("energy outside", "energy_outside", 1e-3, "kJ"),
    ("resizes", "resizes", 1.0, ""),
)


def run(bench: Bench) -> Outcome:
    """Proactive against reactive where power swings with a season (seed 000, 5.1.4; digest 2.12).

    The source's batch study has constant powers, in which there is nothing to foresee. Here one job draws
    more and less in turn, and another must give and take nodes for it, which takes time. Both strategies are
    those of the source; the forecast is that of the live service, fed with readings, and beside it what an
    oracle would say, who knows the season and the noise to come.
    """
    reactive = bench.study(f"{_WORKLOAD}?forecast=none", [_REACTIVE])[_REACTIVE]
    claims: list[Claim] = []
    beside: list[Figure] = _of("reactive", reactive)
    for who, asked in _FORECASTS.items():
        found = bench.study(f"{_WORKLOAD}?{asked}", [_PROACTIVE])[_PROACTIVE]
        fewer = found["violations"] - reactive["violations"]
        if who == "online":
            text = f"violations, proactive ({who}) less reactive"
            claims.append(direction(text, "fewer", fewer, (-float("inf"), 0.0)))
        else:
            beside.append(figure(f"violations, proactive ({who}) less reactive", fewer))
        beside += _of(f"proactive ({who})", found)
    return Outcome(claims, beside)


def _of(who: str, found: Columns) -> list[Figure]:
    return [figure(f"{who}: {name}", found[metric] * scale, unit) for name, metric, scale, unit in _FIGURES]
