// What is said of predictions.

import assert from "node:assert/strict";
import test from "node:test";

import { changed, inKilowattHours, shownDifference, shownValue, standing } from "../../dask_hpc/view/kit/what_if.js";

const ROWS = [{ policy: "fcfs" }, { policy: "elastic" }];

test("values are said with their unit", () => {
  assert.equal(shownValue(null, "s"), "-");
  assert.equal(shownValue(0.001, "s"), shownValue(0, "s"));
  assert.equal(shownValue(1, "jobs"), "1 job");
  assert.equal(shownValue(2, "jobs"), "2 jobs");
  assert.equal(shownValue(2.3456, ""), "2.35");
  assert.equal(inKilowattHours(7.2e6), "2 kWh");
});

test("a difference is said with its sign and its interval", () => {
  assert.equal(shownDifference(-12, 3, "s"), "\u221212 s \u00b1 3 s");
  assert.equal(shownDifference(3.6e6, null, "J"), "+3.6 MJ");
  assert.equal(shownDifference(0, 0, "s"), "\u00b10 s");
  assert.equal(shownDifference(null, null, "s"), "");
});

test("the column in force now is marked, and the one that was", () => {
  const at = (row, isChanged) => [0, 1].map((number) => standing(number, { row, is_changed: isChanged }));
  assert.deepEqual(at(0, false), ["in force", ""]);
  assert.deepEqual(at(1, true), ["was in force then", "in force now"]);
  assert.deepEqual(at(null, true), ["was in force then", ""]);
});

test("a prediction for a policy that is not in force any more says so", () => {
  assert.equal(changed([], { row: null, is_changed: true, name: "x" }), "");
  assert.equal(changed(ROWS, { row: 0, is_changed: false, name: "fcfs" }), "");
  assert.match(changed(ROWS, { row: 1, is_changed: true, name: "elastic" }), /while fcfs was in force: elastic is in force now/);
  assert.match(changed(ROWS, { row: null, is_changed: true, name: "sjf" }), /another policy is in force now \(sjf\)/);
});
