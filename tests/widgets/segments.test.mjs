import assert from "node:assert/strict";
import { test } from "node:test";

import { Segments } from "../../dask_hpc/view/kit/shared/segments.js";

function held(segments) {
  return segments.at.map((one) => one?.job);
}

test("a block is one as long as its nodes come and go together", () => {
  const segments = new Segments();
  segments.add([[1, "a", [[0, 3]], "starts"]]);
  assert.equal(segments.open.size, 1);
  segments.add([[5, null, [[0, 3]], ""]]);
  const seen = [];
  segments.between(0, 9, (one) => seen.push(one));
  assert.deepEqual(seen, [
    { job: "a", first: 0, last: 3, start: 1, end: 5, reason: "starts" },
  ]);
});

test("what is left of a block goes on from its start", () => {
  const segments = new Segments();
  segments.add([
    [1, "a", [[0, 5]], ""],
    [4, "b", [[2, 3]], "takes two"],
  ]);
  assert.deepEqual(held(segments), ["a", "a", "b", "b", "a", "a"]);
  const starts = [...segments.open].map((one) => [one.job, one.first, one.last, one.start]).sort();
  assert.deepEqual(starts, [["a", 0, 1, 1], ["a", 4, 5, 1], ["b", 2, 3, 4]]);
  assert.deepEqual(segments.over.map((one) => [one.job, one.first, one.last, one.end]), [["a", 2, 3, 4]]);
});

test("every node and time belongs to the one who had it", () => {
  // a small machine at random, beside a table of who has what at each second
  let seed = 7;
  const dice = (n) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return Math.floor((seed / 2147483648) * n);
  };
  const segments = new Segments();
  const table = [];
  let now = new Array(12).fill(null);
  for (let time = 0; time < 300; time += 1) {
    const first = dice(12);
    const last = Math.min(11, first + dice(5));
    const job = dice(4) ? `job ${dice(6)}` : null;
    segments.add([[time, job, [[first, last]], ""]]);
    now = now.map((before, node) => (node >= first && node <= last ? job : before));
    table.push(now);
  }
  table.forEach((row, time) =>
    row.forEach((job, node) => assert.equal(segments.find(node, time + 0.5)?.job ?? null, job)),
  );
  const ends = segments.over.map((one) => one.end);
  assert.deepEqual(ends, [...ends].sort((a, b) => a - b));
});

test("what is long over can be forgotten", () => {
  const segments = new Segments();
  for (let i = 0; i < 10; i += 1) segments.add([[i, `job ${i}`, [[0, 0]], ""]]);
  segments.forget(5);
  assert.deepEqual(segments.over.map((one) => one.end), [5, 6, 7, 8, 9]);
  assert.equal(segments.find(0, 9.5).job, "job 9");
});
