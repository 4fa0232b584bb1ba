"""One run: applications and the service, until the last of them is through."""

from collections.abc import Sequence
from math import inf

from dask_hpc.model.errors import InputError, shown
from dask_hpc.simulator.checkpoint.app import App
from dask_hpc.simulator.checkpoint.life import Life
from dask_hpc.simulator.checkpoint.result import CommitResult
from dask_hpc.simulator.checkpoint.service import Service
from dask_hpc.simulator.checkpoint.world import World


def simulate_commits(
    apps: Sequence[App], service: Service, *, seed: int = 0, horizon: float = inf
) -> CommitResult:
    """Let these applications commit to this service; ``horizon`` ends it after so many seconds."""
    names = [app.name for app in apps]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError("apps", f"found {shown(min(twice))} twice", "each name once")
    endless = [app.name for app in apps if app.commits >= 10**9 and app.until == inf]
    if endless and horizon == inf:
        raise InputError(f"app {shown(endless[0])}", "never ends", "commits, until, or a horizon")
    world = World(service, seed)
    lives = [Life(app, world) for app in apps]
    world.live = len(lives)
    _expect(world, lives)
    for life in lives:
        world.clock.start(life.live())
    if service.pool is not None:
        world.clock.start(world.watch_pool())
    world.clock.run(horizon)
    return CommitResult(world.log)


def _expect(world: World, lives: Sequence[Life]) -> None:
    """What the service's description says will happen."""
    clock, service = world.clock, world.service

    def fail(node: str) -> None:
        if node in world.fleet.seats and world.fleet.seats[node].is_up:
            # the books first: what breaks off now asks them at once
            for life in lives:
                life.lost(node)
            world.fleet.lose(node)
            clock.at(clock.now + service.repair, lambda: world.fleet.back(node, clock.now))

    for time, count in service.joins:
        clock.at(time, lambda count=count: world.join(count, "given"))  # type: ignore[misc]
    for time, count in service.leaves:
        clock.at(time, lambda count=count: world.give_back(count))  # type: ignore[misc]
    for time, name in service.failures:
        clock.at(time, lambda name=name: fail(name))  # type: ignore[misc]
