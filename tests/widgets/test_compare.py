"""Two runs beside each other in a notebook."""

from dask_hpc_widgets import Compare
from distributed import Event
from heard import hear, until

from dask_hpc import simulate


def test_a_cluster_and_its_prediction(busy):
    predicted = simulate(snapshot=busy.snapshot(), policy="elastic", allotments=True)
    view = Compare(busy, predicted, names=("live", "predicted"))
    assert view.names == ["live", "predicted"] and view.has_pictures
    assert view.courses[0] is None and view.courses[1]["head"]["state"] == "simulated"
    # on one clock: the job that waits starts there after now
    now = busy.status()["time"]
    waits = next(job for job in predicted.course()["jobs"] if job["started"] > 0 and job["asks"] == 3)
    assert now - 60 < waits["started"] < now + 120
    assert view.table[0][0] == "jobs that are over" and view.table[0][3] == "0 in both"
    Event("go", client=busy.client).set()
    until(lambda: view.table[0][3] == "2 in both")  # it follows
    assert "response, mean" in [row[0] for row in view.table]
    view.close()


def test_two_results_without_a_cluster(tmp_path):
    results = [simulate("builtin:esp", 64, policy=one, allotments=True) for one in ("fcfs", "easy-backfill")]
    view = Compare(*results)
    assert view.names == ["fcfs", "easy-backfill"] and None not in view.courses
    assert not view.is_live
    assert "makespan" in repr(view)
    found = view._repr_mimebundle_()
    assert found["text/plain"] == repr(view) and "<pre>" in found["text/html"]
    view.save(tmp_path / "two.html")
    assert "daskHpc.show(" in (tmp_path / "two.html").read_text()
    view.close()


def test_what_a_row_predicts_is_sent_when_it_is_asked_for(busy):
    from dask_hpc_widgets import WhatIf

    view = WhatIf(busy, seeds=2, tried=["elastic"])
    assert hear(view, do="predict")["problem"] == ""
    sent = []
    send = view.send
    view.send = lambda content, buffers=None: (sent.append(content), send(content, buffers))
    assert hear(view, do="show", row=1)["problem"] == ""
    assert "row" in hear(view, do="show", row=5)["problem"]
    given = next(one["predicted"] for one in sent if "predicted" in one)
    assert given["names"] == ["what was", "elastic, predicted"]
    assert [one["head"]["state"] for one in given["courses"]] == ["on", "simulated"]
    view.close()
