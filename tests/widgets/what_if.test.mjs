// What is said of predictions.

import assert from "node:assert/strict";
import test from "node:test";

import { areAlike, change, isTold, shownValue, verdict } from "../../dask_hpc/view/kit/what_if.js";

const row = (unfinished, wait) => ({ metrics: { unfinished: [unfinished, 0], mean_wait: [wait, 1] } });

test("values are said with their unit", () => {
  assert.equal(shownValue(null, "s"), "-");
  assert.equal(shownValue(0.001, "s"), shownValue(0, "s"));
  assert.equal(shownValue(1, "jobs"), "1 job");
  assert.equal(shownValue(2, "jobs"), "2 jobs");
  assert.equal(shownValue(2.3456, ""), "2.35");
});

test("a policy is better or worse only if the intervals are apart", () => {
  assert.equal(verdict([10, 1], [20, 2], true), "better");
  assert.equal(verdict([10, 1], [20, 2], false), "worse");
  assert.equal(verdict([10, 6], [20, 5], true), "");
  assert.equal(verdict([null, null], [20, 5], true), "");
});

test("a change is said in percent, or in times if it is large", () => {
  assert.equal(change([88], [100]), "\u221212 %");
  assert.equal(change([100], [100]), "\u00b10 %");
  assert.equal(change([3000], [100]), "\u00d7 30");
  assert.equal(change([5], [0]), "");
});

test("policies that leave different jobs out are not compared", () => {
  assert.ok(areAlike(row(0, 3), row(0, 9)));
  assert.ok(!areAlike(row(0, 3), row(1, 0)));
  assert.ok(!isTold([row(0, 3)], "unfinished") && isTold([row(0, 3), row(1, 0)], "unfinished"));
});
