"""Applications that differ, in how they scale and in what they draw while they run. All figures are made up.

Where all jobs follow one law, who communicates most is who has most nodes, and a policy that measures decides
as one that counts. Where each job draws the same all the time, nothing but what is decided moves the power of
the machine, and a forecast knows nothing that a balance does not.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from dask_hpc.model.job import Job
from dask_hpc.model.power import Corridor, PowerRange
from dask_hpc.model.speedup import PhasedSpeedup, PowerLaw, Speedup
from dask_hpc.planning.forecast_models import BASELINES, MODELS
from dask_hpc.simulator.built_in.ours import Share, Walltime
from dask_hpc.simulator.built_in.published import esp
from dask_hpc.simulator.platform import Metering, Platform, ResizeCost, WhoForecasts
from dask_hpc.simulator.swing import Swing
from dask_hpc.simulator.workload import Arrival, Workload

#: made up, from hardly any communication to mostly that: exponents of power laws, several if the job has as
#: many equal phases
CLASSES: Mapping[str, tuple[float, ...]] = {
    "sweep": (0.98,),  # runs that know nothing of each other
    "stencil": (0.9,),  # neighbours exchange what is on their borders
    "solver": (0.75,),  # sums over all nodes in every step
    "transform": (0.6,),  # every node sends to every other
    "coupled": (0.95, 0.6, 0.95, 0.6),  # two codes that take turns
}


def law_of(name: str) -> Speedup:
    """How the jobs of a class scale."""
    laws = [PowerLaw(exponent) for exponent in CLASSES[name]]
    return laws[0] if len(laws) == 1 else PhasedSpeedup(tuple((1 / len(laws), law) for law in laws))


def applications(
    *,
    malleable: Share = 1.0,
    seed: int = 0,
    choice: int = 0,
    walltime: Walltime = 1.0,
    interval: Annotated[float, 0, 10**9] = 30.0,
    constraints: bool = True,
) -> Workload:
    """The ESP mix with five classes of applications, from nearly linear to n ** 0.6, one of which changes.

    Sizes, lengths, limits and order are those of ``esp``. ``seed`` draws the class of each malleable job,
    too: sweep (n ** 0.98), stencil (0.9), solver (0.75), transform (0.6), or coupled, which goes from 0.95 to
    0.6 and back with every quarter of its work. Nobody declares how a job scales: a policy knows what is
    measured of those that run, and limits follow the sizes as if all scaled linearly.
    """
    mix = esp(
        malleable=malleable,
        seed=seed,
        choice=choice,
        walltime=walltime,
        interval=interval,
        constraints=constraints,
    )
    draw = random.Random(seed)
    arrivals = [_scaling(arrival, draw.choice(list(CLASSES))) for arrival in mix]
    return replace(mix, name="applications", arrivals=arrivals)


def _scaling(arrival: Arrival, name: str) -> Arrival:
    job = arrival.job
    if not job.resizable:
        return arrival
    return replace(arrival, job=replace(job, speedup=None), speedup=law_of(name))


#: seed 000, 9.2.4: nodes, watts of an idle one and on average of one at work for either code, first corridor
_NODES, _IDLE, _PI, _HEAT = 14, 71.0, 170.0, 250.0
_CORRIDOR = Corridor.constant(1700.0, 2500.0)
_TICK = 10.0  # seconds between two passes of the scheduler
_DRAIN = 10.0  # what hpc.drain gives the tasks of a node that changes hands
_SEASONS = (300.0, 900.0)
_REACH = 100.0  # watts, either way


def power_swing(
    *,
    seed: int = 0,
    forecast: WhoForecasts = "oracle",
    horizon: Annotated[float, 10, 3000] = 30.0,
    noise: Share = 0.1,
    hours: Annotated[float, 0.1, 100] = 2.0,
    cheap: bool = False,
) -> Workload:
    """A rigid job whose nodes swing between 150 and 350 W, beside a malleable one that makes up for it.

    14 nodes, idle at 71 W, are to draw 1700 to 2500 W: the published machine and corridor. The heat code has
    four of them and draws its published 250 W on average; how power varied about the averages is not given.
    Its season, of 5 to 15 minutes, and where it begins are drawn with ``seed``; ``noise`` is a share of the
    swing. The Pi code, at 170 W, can use 1 to 10 nodes: at one end of the swing it may have three at most, at
    the other it must have four. A pass of the scheduler comes every 10 s and a resize takes 10 s, so that
    what is decided after one reading has come to effect 30 s after the one before: the default ``horizon``.
    ``cheap`` leaves out the forecasters that need statsmodels.
    """
    draw = random.Random(seed)
    seconds = 3600.0 * hours
    swing = Swing(season=draw.uniform(*_SEASONS), offset=draw.random(), noise=noise, seed=seed)
    heat = Job(id="heat", nodes=4, power=PowerRange(_HEAT - _REACH, _HEAT + _REACH))
    pi = Job(id="pi", nodes=4, kind="malleable", min_nodes=1, max_nodes=10, power=PowerRange(_PI, _PI))
    metering = Metering(
        corridor=_CORRIDOR, forecast=forecast, horizon=horizon, models=BASELINES if cheap else MODELS
    )
    platform = Platform(
        _NODES,
        idle_power=_IDLE,
        active_power=_HEAT,
        tick=_TICK,
        resize=ResizeCost(fixed=_DRAIN),
        metering=metering,
    )
    arrivals = [Arrival(heat, seconds, swing=swing), Arrival(pi, 100 * seconds, cancelled=seconds)]
    return Workload("power-swing", arrivals, platform=platform)
