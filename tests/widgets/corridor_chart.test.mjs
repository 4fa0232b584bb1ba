import assert from "node:assert/strict";
import { test } from "node:test";

import { Power } from "../../dask_hpc/view/kit/corridor_chart.js";

function past(samples, more = {}) {
  const power = new Power();
  power.add({ head: { time: 40, state: "simulated" }, samples, ...more });
  return power;
}

const SAMPLES = [[0, 1800, 1000, 2500], [10, 2700, 1000, 2500], [20, 900, 1000, 2500], [25, 900, 0, null], [30, 2000, 0, null]];

test("how far power was outside at most, and for how long", () => {
  const power = past(SAMPLES);
  assert.deepEqual(power.violations, [[10, 25]]);
  assert.equal(power.said(12), "outside for 15 s, up to 200 W above and up to 100 W below");
  assert.equal(power.said(26), "");
  assert.deepEqual(past(SAMPLES, { outside: [] }).violations, [], "where it is said what counts");
});

test("a run that is over is seen from its beginning to its end, unless people chose", () => {
  const power = past(SAMPLES);
  assert.deepEqual(power.window, [0, 40]);
  power.chosen = [10, 20];
  assert.deepEqual(power.window, [10, 20]);
  assert.ok(power.top >= 2700 * 1.2, "the step that began before is seen, too");
  assert.equal(power.at(19)[1], 2700);
  assert.equal(power.at(20)[1], 900);
  assert.equal(power.at(-1), undefined);
});

test("what was done is kept, the newest", () => {
  const power = past([]);
  power.add({ marks: Array.from({ length: 700 }, (_, i) => [i, "less", "shrink"]) });
  assert.equal(power.marks.length, 500);
  assert.equal(power.marks.at(-1)[0], 699);
});
