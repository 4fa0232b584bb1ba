// What an explorer of reservations draws: curves of three ways, and what each request is spent on.

import assert from "node:assert/strict";
import { test } from "node:test";

import { highest, lines, segments, share } from "../../dask_hpc/view/kit/reservation_explorer.js";

const CURVE = [
  { checkpoint: 1, best: 1.2, all: 1.2, none: 2 },
  { checkpoint: 10, best: 1.5, all: 1.8, none: 2 },
  { checkpoint: 100, best: 2, all: 40, none: null },
];

test("curves go by the logarithm of a commit, and leave out what is not there", () => {
  const found = lines(CURVE, 266, 132);
  assert.deepEqual(Object.keys(found), ["best", "all", "none"]);
  assert.deepEqual(found.best.map(([x]) => Math.round(x)), [56, 156, 256]);
  assert.equal(found.none.length, 2);
  assert.ok(found.best[0][1] > found.best[2][1], "what costs more is higher up");
  assert.deepEqual(lines([], 266, 132), {});
});

test("a way that is out of all proportion does not squeeze the others", () => {
  assert.equal(highest(CURVE), 3 * 2 * 1.02);
  assert.equal(highest(CURVE.slice(0, 2)), 2 * 1.02);
  assert.equal(highest([{ checkpoint: 1, best: 1, all: 1, none: 1 }]), 1.1 * 1.02);
});

test("a request is what it is spent on, as shares of the longest", () => {
  const requests = [
    { length: 8, restart: 0, again: 0, work: 6, commit: 2 },
    { length: 4, restart: 1, again: 1, work: 2, commit: 0 },
  ];
  assert.deepEqual(segments(requests), [
    [["work", 0, 0.75], ["commit", 0.75, 1]],
    [["restart", 0, 0.125], ["again", 0.125, 0.25], ["work", 0.25, 0.5]],
  ]);
});

test("shares of jobs", () => {
  assert.deepEqual([1, 0.567, 0.0712, 1e-5].map(share), ["100 % of jobs", "57 % of jobs", "7.1 % of jobs", "0.001 % of jobs"]);
});
