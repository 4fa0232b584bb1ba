// Values that people type and slide, and the form of a policy.

import assert from "node:assert/strict";
import { test } from "node:test";

import { keyStep, readAmount, rounded, scaleMarks, stepped, writeAmount } from "../../dask_hpc/view/kit/shared/explore.js";
import { helpOf, merged, position, sliderBounds, typedValue, valueAt } from "../../dask_hpc/view/kit/policy_panel.js";

test("amounts are written as people say them, and read back", () => {
  const said = [[120, "s", "2 min"], [0.05, "s", "0.05 s"], [86400, "s", "1 d"], [1500, "W", "1.5 kW"], [0, "W", "0 W"],
    [64e9, "B", "64 GB"], [5e9, "B/s", "5 GB/s"], [16, "", "16"], [0.333333, "", "0.333"], [3599.9, "s", "1 h"]];
  for (const [value, unit, words] of said) {
    assert.equal(writeAmount(value, unit), words);
    assert.ok(Math.abs(readAmount(words, unit) - value) <= value * 0.005);
  }
  assert.equal(writeAmount(Infinity, "W"), "unlimited");
});

test("what people type is read as a policy file is, and nonsense is not", () => {
  const read = [["2 min", "s", 120], ["1:30", "s", 90], ["1:00:00", "s", 3600], ["3 hours", "s", 10800], ["1.5 kW", "W", 1500], ["1.5kw", "W", 1500],
    ["2 MW", "W", 2e6], ["2 mW", "W", 0.002], ["4 GiB", "B", 2 ** 32], ["64 gb", "B", 64e9], ["12", "W", 12], ["1,000", "", 1000], ["1e3", "", 1000]];
  for (const [text, unit, value] of read) assert.equal(readAmount(text, unit), value, text);
  for (const [text, unit] of [["", "s"], ["soon", "s"], ["2 kW", "s"], ["5 min", "W"], ["5 x", ""], ["1 2", "s"], ["1:2:3:4", "s"], ["2 mw", "W"]]) assert.equal(readAmount(text, unit), null, text);
});

test("a key moves a slider to the next value that looks different", () => {
  const placeOf = (x) => Math.log(x) / Math.log(1024);
  const whole = (place) => rounded(1024 ** place, "", true);
  assert.deepEqual([stepped(16, 1, placeOf, whole), stepped(16, -1, placeOf, whole)], [17, 15]);
  assert.equal(stepped(16, 10, placeOf, whole), 26);
  assert.deepEqual([stepped(1024, 1, placeOf, whole), stepped(1, -10, placeOf, whole)], [1024, 1]);
  assert.deepEqual(["ArrowRight", "ArrowDown", "PageUp", "a"].map((key) => keyStep({ key })), [1, -1, 10, 0]);
  assert.equal(keyStep({ key: "ArrowRight", ctrlKey: true }), 0);
});

test("a scale has round marks, with room for their words", () => {
  assert.deepEqual(scaleMarks(1, 20000, "W").map(([, , words]) => words), ["1 W", "100 W", "10 kW"]);
  assert.deepEqual(scaleMarks(30, 1920, "s", 500).map(([, , words]) => words), ["30 s", "1 min", "2 min", "5 min", "10 min", "20 min", "30 min"]);
  for (const [low, high, unit] of [[1, 1024, ""], [0.05, 3600, "s"], [1e7, 1e12, "B/s"], [0.01, 100, ""]]) {
    const marks = scaleMarks(low, high, unit);
    assert.ok(marks.length >= 3, unit);
    assert.ok(marks.every(([value, at]) => value >= low * 0.99 && value <= high * 1.01 && at >= 0 && at <= 1));
  }
});

test("sliders of a form go as far as people do", () => {
  assert.deepEqual(sliderBounds({ low: 0, high: null, unit: "s", number: 30 }), [0, 3600]);
  assert.deepEqual(sliderBounds({ low: 0, high: 1e12, unit: "W", number: 0 }), [0, 10000]);
  assert.deepEqual(sliderBounds({ low: 0, high: 1, unit: "", number: 0.5 }), [0, 1]);
  assert.deepEqual(sliderBounds({ low: 0, high: 1_000_000, unit: "jobs", number: 1_000_000 }), [0, 1_000_000]);
  assert.equal(valueAt(0.5, 0, 3600, false, "s"), 59);
  assert.deepEqual([valueAt(0, 0, 10), valueAt(1, 0, 10), valueAt(0.5, 0, 11, true)], [0, 10, 6]);
  assert.ok(Math.abs(position(valueAt(0.4, 0, 10000, false, "W"), 0, 10000) - 0.4) < 0.01);
});

test("what is one control is one line", () => {
  const rows = [["queue.bias", "0.03", "0.5"], ["malleability.bias", "0.03", "0.5"], ["malleability.guard", "0 s", "inf"], ["queue.strategy", "fcfs", "elastic"], ["size.strategy", "fcfs", "elastic"]];
  assert.deepEqual(merged(rows), [
    ["bias", ["queue", "malleability"], "0.03", "0.5"], ["guard", ["malleability"], "0 s", "unlimited"],
    ["strategy", ["queue"], "fcfs", "elastic"], ["strategy", ["size"], "fcfs", "elastic"]]);
  const field = { paths: ["queue.depth", "malleability.depth"], help: "how many", unit: "jobs", kind: "whole number" };
  assert.equal(helpOf(field), "how many (jobs); also of malleability");
  assert.equal(helpOf({ ...field, paths: ["queue.depth"], kind: "quantity" }), "how many");
});

test("numbers are sent as numbers", () => {
  assert.deepEqual([typedValue({ kind: "number" }, "0.5"), typedValue({ kind: "whole number" }, "x"), typedValue({ kind: "quantity" }, "5"), typedValue({ kind: "quantity" }, "unlimited")], [0.5, "x", "5", "inf"]);
});
