// What the explorer of protections draws: bars of where time goes, curves, and when commits are made.

import assert from "node:assert/strict";
import { test } from "node:test";

import { lowest, percent, points, segments, whenTold } from "../../dask_hpc/view/kit/resilience_explorer.js";

test("a curve goes by the logarithm of its values, from the lowest share upwards", () => {
  const curve = [[1, 0.9], [10, 0.95], [100, 1]];
  assert.equal(lowest(curve), 0.85);
  assert.deepEqual(points(curve, 266, 132).map(([x]) => Math.round(x)), [56, 156, 256]);
  assert.equal(Math.round(points(curve, 266, 132).at(-1)[1]), 8);
  assert.ok(points(curve, 266, 132, 0)[0][1] < points(curve, 266, 132)[0][1], "from 0 it is flatter");
  assert.deepEqual(points([], 266, 132, 0), []);
});

test("bars are shares of the longest, which is cut at three times the shortest", () => {
  const ways = [
    { time: 10, parts: { computing: 8, commits: 2 } },
    { time: 20, parts: { computing: 8, recomputation: 12 } },
    { time: 400, parts: { computing: 8, recomputation: 192, restarts: 200 } },
    { time: null, parts: {} },
  ];
  const [one, two, cut, none] = segments(ways);
  assert.deepEqual(one, [["computing", 0, 8 / 30], ["commits", 8 / 30, 10 / 30]]);
  assert.ok(Math.abs(two.at(-1)[2] - 20 / 30) < 1e-12);
  assert.deepEqual(cut.map(([part]) => part), ["computing", "recomputation"]);
  assert.equal(cut.at(-1)[2], 1);
  assert.deepEqual(none, []);
  assert.deepEqual(segments([ways[3]]), [[]]);
});

test("when it commits, without places that have no commits of their own", () => {
  assert.equal(whenTold({ memory: 60, partner: 60, store: 3600 }), "every 60 s (partner), 60.0 min (store)");
  assert.equal(whenTold({ store: null }), "never");
  assert.equal(whenTold({ partner: 600, store: null }), "every 10.0 min (partner)");
});

test("shares of work", () => {
  assert.deepEqual([0, 1e-5, 0.5123, 1].map(percent), ["0 %", "< 0.1 %", "51.2 %", "100.0 %"]);
});
