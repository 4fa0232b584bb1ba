"""In which order a plan is carried out."""

from dask_hpc.model.plan import Interrupt, Plan, Resize, Start


def test_who_gives_comes_before_who_takes():
    """And whoever has the size already that it is to have, when its turn comes, does neither."""
    resizes = tuple(Resize(name, 4, "") for name in ("grows", "shrinks", "stays"))
    plan = Plan(0, 0.0, (Start("starts", 1, ""),), resizes, (Interrupt("stops", ""),))
    sizes = {"grows": 2, "shrinks": 8, "stays": 4}
    in_order = [deed.job for deed in plan.in_order(sizes.__getitem__)]
    assert in_order == ["stops", "shrinks", "starts", "grows"]
