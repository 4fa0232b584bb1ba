import assert from "node:assert/strict";
import { test } from "node:test";

import { clamp, linear, shifted, zoomed } from "../../dask_hpc/view/kit/shared/scale.js";
import {
  countOf,
  showClock,
  showDuration,
  showLarge,
  ticks,
  timeTicks,
} from "../../dask_hpc/view/kit/shared/units.js";

test("durations, as on the Python side", () => {
  const expected = { 0.5: "0.5 s", 47: "47 s", 99.94: "99.9 s", 210: "3.5 min", 7560: "2.1 h", 345600: "4.0 d" };
  for (const [seconds, words] of Object.entries(expected)) assert.equal(showDuration(Number(seconds)), words);
  assert.equal(showDuration(null), "-");
  assert.equal(showDuration(Infinity), "unlimited");
});

test("watts and bytes", () => {
  assert.equal(showLarge(950, "W"), "950 W");
  assert.equal(showLarge(3210000000, "J"), "3.21 GJ");
  assert.equal(showLarge(999.9, "W"), "1 kW");
  assert.equal(showLarge(undefined, "W"), "-");
});

test("a clock", () => {
  assert.equal(showClock(7), "0:07");
  assert.equal(showClock(3723), "1:02:03");
  assert.equal(showClock(7.5), "0:07.5");
  assert.equal(countOf(1, "node"), "1 node");
  assert.equal(countOf(1000, "node"), "1,000 nodes");
});

test("ticks are round and inside", () => {
  assert.deepEqual(ticks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(timeTicks(0, 600, 6), [0, 120, 240, 360, 480, 600]);
  assert.deepEqual(timeTicks(55, 250, 4), [60, 120, 180, 240]);
  assert.deepEqual(ticks(3, 3, 4), [3]);
});

test("scales go there and back", () => {
  const scale = linear(10, 20, 100, 300);
  assert.equal(scale(15), 200);
  assert.equal(scale.invert(200), 15);
  assert.equal(linear(5, 5, 0, 9)(5), 0);
  assert.equal(clamp(7, 0, 5), 5);
});

test("a window stays within what there is", () => {
  assert.deepEqual(shifted([10, 20], 100, 0, 50), [40, 50]);
  assert.deepEqual(shifted([10, 20], -100, 0, 50), [0, 10]);
  assert.deepEqual(zoomed([0, 100], 50, 0.5, 0, 100, 1), [25, 75]);
  assert.deepEqual(zoomed([25, 75], 50, 100, 0, 100, 1), [0, 100]);
  assert.deepEqual(zoomed([40, 60], 50, 0.001, 0, 100, 5), [47.5, 52.5]);
});
