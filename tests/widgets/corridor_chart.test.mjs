import assert from "node:assert/strict";
import { test } from "node:test";

import { Power, nearWatts, samplesCsv, whyNoPower } from "../../dask_hpc/view/kit/corridor_chart.js";

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
  power.axis.choose(10, 20);
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

test("bounds that are to come, and what is seen of the time until then", () => {
  const power = new Power();
  power.add({ head: { time: 100, state: "on" }, samples: SAMPLES, corridor: [[0, 0, 900], [50, 100, 800], [400, 0, null]] });
  assert.deepEqual(power.coming, [[400, 0, null]]);
  assert.deepEqual(power.bounds(100), { lower: 100, upper: 800 });
  assert.deepEqual(power.bounds(400), { lower: null, upper: null });
  const [from, to] = power.window;
  assert.ok(from === 0 && to > 100);
  power.axis.pan(50);
  assert.ok(power.window[1] >= 400, "a change that is planned can be reached");
});

test("what cannot be kept says what would help", () => {
  const power = new Power();
  const told = (verdict) => power.add({ power_now: { verdict } });
  const ways = "raise power.upper, or end a job";
  told({ is_kept: false, reason: `the least is 2 kW: ${ways}`, help: ways });
  assert.equal(power.broken, `Cannot be kept: the least is 2 kW: ${ways}`);
  told({ is_kept: false, reason: "no work left" });
  assert.equal(power.broken, "Cannot be kept: no work left");
  told({ is_kept: true, reason: "" });
  assert.equal(power.broken, "");
  power.add({ power_now: null });
  assert.equal(power.broken, "");
});

test("power that nobody watches says how it is", () => {
  assert.match(whyNoPower([]), /power-corridor.*hpc\.power-watch/);
  assert.equal(whyNoPower([[0, 0, 5]]), "Power: no sample yet.");
});

test("what was measured as a table, of what is seen", () => {
  const power = past(SAMPLES);
  power.axis.choose(12, 24);
  assert.equal(samplesCsv(power), "time,watts,lower,upper,least,most,uncertainty,doubt\r\n10,2700,1000,2500\r\n20,900,1000,2500\r\n");
});

test("round numbers of watts", () => {
  assert.equal(nearWatts(1234, 2000), 1230);
  assert.equal(nearWatts(-5, 2000), 0);
});
