// What is said of jobs, and what can be done about them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { figures, Headline } from "../../dask_hpc/view/kit/headline.js";
import { Picture } from "../../dask_hpc/view/kit/allotment_map.js";
import { efficiency, left, offersFor, share, sizeOf, sorted, took } from "../../dask_hpc/view/kit/jobs_table.js";
import { stateOf } from "../../dask_hpc/view/kit/shared/course.js";

const job = (given) => ({
  state: "running", kind: "malleable", nodes: 2, asks: 2, min_nodes: 1, max_nodes: 4, submitted: 0, started: 10,
  ended: null, progress: null, expected_end: null, compute: 0, transfer: 0, waiting_because: null, ...given,
});
const names = (found) => found.map(([what, , , more]) => (what === "resize" ? more.nodes : what));

test("a job is resized within its range, held while it waits, and cancelled until it is done", () => {
  assert.deepEqual(names(offersFor(job())), [-1, 1, "protect", "cancel"]);
  assert.deepEqual(names(offersFor(job({ nodes: 4 }))), [-1, "protect", "cancel"]);
  assert.deepEqual(names(offersFor(job({ kind: "rigid" }))), ["protect", "cancel"]);
  assert.deepEqual(names(offersFor(job({ state: "waiting" }))), ["hold", "cancel"]);
  assert.deepEqual(names(offersFor(job({ state: "waiting", waiting_because: "held: asked for" }))), ["release", "cancel"]);
  assert.deepEqual(offersFor(job({ state: "done" })), []);
});

test("nothing can be done about jobs of a simulation", () => {
  assert.deepEqual(offersFor(job(), true), []);
  assert.deepEqual(offersFor(job({ state: "waiting" }), true), []);
});

test("running jobs come first, then those that wait, then the newest that are done", () => {
  const found = sorted([job({ id: "d", state: "done", ended: 3 }), job({ id: "w", state: "waiting" }),
    job({ id: "e", state: "done", ended: 5 }), job({ id: "r" })]);
  assert.deepEqual(found.map((one) => one.id), ["r", "w", "e", "d"]);
});

test("size, efficiency and what is left", () => {
  assert.equal(sizeOf(job()), "2 of 1 to 4");
  assert.equal(sizeOf(job({ state: "waiting", asks: 3, min_nodes: 3, max_nodes: 3 })), "3");
  assert.equal(efficiency(job()), null);
  assert.equal(efficiency(job({ compute: 3, transfer: 1 })), 0.75);
  assert.equal(left(job({ progress: 0.5 }), 30), 20);
  assert.equal(left(job({ expected_end: 50 }), 30), 20);
  assert.equal(left(job({ state: "waiting" }), 30), null);
});

test("a job that failed or was cancelled is not done, in any view", () => {
  const failed = job({ id: "f", name: "f", state: "done", failed: 4, ended: 3 });
  const other = job({ id: "c", name: "c", state: "done", cancelled: true, progress: 0.25, ended: 3 });
  assert.deepEqual([failed, other, job({ state: "done" }), job()].map(stateOf), ["failed", "cancelled", "done", "running"]);
  assert.deepEqual([failed, other, job({ state: "done" }), job()].map(share), [0, 0.25, 1, null]);
  assert.equal(share(job({ state: "killed", progress: null })), 0);
  assert.equal(share({ ...failed, finished_tasks: 12 }), 0.75);
  assert.deepEqual(offersFor(failed), []);
  const [picture, line] = [new Picture(), new Headline()];
  for (const view of [picture, line]) view.add({ head: { time: 5, state: "on", policy: "p" }, jobs: [failed, other] });
  assert.deepEqual(["f", "c"].map((one) => picture.nameOf(one)), ["f (failed)", "c (cancelled)"]);
  assert.ok(figures(line).some(([value, name, isBad]) => value === 1 && name === "failed" && isBad));
});

test("how long a job waited and took is said as far as it is known", () => {
  assert.equal(took(job()), "");
  const adaptation = { from: 4, to: 1, decision: 0.1, drain: 1, move: 0.4, total: 1.5 };
  assert.equal(took(job({ waited: 0, response: null, adaptation })), "waited 0 s; from 4 to 1 node in 1.5 s");
  assert.equal(took(job({ waited: 30, response: 50, bounded_slowdown: 2.5 })), "waited 30 s; response 50 s; bounded slowdown 2.5");
});
