// Bands of jobs beside a table of who had how many nodes at each second.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Bands } from "../../dask_hpc/view/kit/shared/bands.js";

function swept(bands, from, to, step = 1) {
  const [found, sums] = [[], []];
  bands.sweep(from, to, step, (one, end) => found.push([one.job, one.since, end, one.below, one.drawn]), (...top) => sums.push(top));
  return { found, sums };
}

test("a job is one rectangle as long as it and those below stay as they are", () => {
  const bands = new Bands();
  bands.add(0, null, 10);
  bands.add(2, "a", 4);
  bands.add(3, "b", 2);
  bands.add(6, "a", -4);
  const { found, sums } = swept(bands, 0, 9);
  assert.deepEqual(found, [["a", 2, 6, 0, 4], ["b", 3, 6, 4, 2], ["b", 6, 9, 0, 2]]);
  assert.deepEqual(sums, [[0, 2, 0, 10], [2, 3, 4, 10], [3, 6, 6, 10], [6, 9, 2, 10]]);
  assert.deepEqual(swept(bands, 0, 9).found, found, "and again");
});

test("who starts takes the lowest place that is free", () => {
  const bands = new Bands();
  for (const job of ["a", "b", "c"]) bands.add(0, job, 1);
  bands.add(1, "a", -1);
  bands.add(2, "d", 1);
  bands.add(3, "e", 1);
  assert.deepEqual(["b", "c", "d", "e"].map((job) => bands.jobs.get(job).place), [1, 2, 0, 3]);
});

test("what happens at once is one change", () => {
  const bands = new Bands();
  bands.add(1, "a", 3);
  bands.add(1, "a", -1);
  assert.deepEqual([bands.times, bands.by], [[1], [2]]);
});

test("every second has what a table says, also after some is forgotten", () => {
  let seed = 5;
  const dice = (n) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return Math.floor((seed / 2147483648) * n);
  };
  const bands = new Bands();
  const held = new Map();
  const table = [];
  bands.add(0, null, 100);
  for (let time = 0; time < 300; time += 1) {
    for (let i = dice(4); i > 0; i -= 1) {
      const job = `job ${dice(9)}`;
      const by = dice(3) && held.get(job) ? -dice(held.get(job) + 1) : dice(5);
      if (!by) continue;
      bands.add(time, job, by);
      held.set(job, (held.get(job) ?? 0) + by);
    }
    if (time % 50 === 49) bands.add(time, null, -3);
    table.push(new Map(held));
  }
  const agrees = (from) => {
    const seen = Array.from({ length: 300 }, () => new Map());
    const tops = Array.from({ length: 300 });
    bands.sweep(from, 300, 1, (one, end) => {
      for (let time = one.since; time < end; time += 1) seen[time].set(one.job, [one.below, one.drawn]);
    }, (since, end, sum, there) => {
      for (let time = since; time < end; time += 1) tops[time] = [sum, there];
    });
    for (let time = from; time < 300; time += 1) {
      const counts = [...table[time]].filter(([, count]) => count);
      assert.deepEqual(new Map([...seen[time]].map(([job, [, count]]) => [job, count])), new Map(counts));
      const sum = counts.reduce((all, [, count]) => all + count, 0);
      assert.deepEqual(tops[time], [sum, 100 - 3 * Math.floor((time + 1) / 50)]);
      // they lie on each other without a gap
      let below = 0;
      for (const [low, count] of [...seen[time].values()].sort((a, b) => a[0] - b[0])) {
        assert.equal(low, below);
        below += count;
      }
      const here = bands.at(time, 0.5);
      assert.equal(here.held, sum);
    }
  };
  agrees(0);
  agrees(137);
  bands.forget(200);
  assert.ok(bands.times[0] >= 200);
  agrees(200);
});

test("jobs that are long over are forgotten", () => {
  const bands = new Bands();
  for (let i = 0; i < 10; i += 1) {
    bands.add(i, `job ${i}`, 2);
    bands.add(i + 0.5, `job ${i}`, -2);
  }
  bands.add(10, "last", 1);
  bands.forget(9);
  assert.deepEqual([...bands.jobs.keys()], ["job 9", "last"]);
  assert.equal(bands.places.filter(Boolean).length, 1);
});

test("a step that is coarser shows what holds at its beginning", () => {
  const bands = new Bands();
  bands.add(0, null, 5);
  bands.add(2, "brief", 1);
  bands.add(3, "brief", -1);
  bands.add(4, "long", 2);
  assert.deepEqual(swept(bands, 0, 20, 5).found, [["long", 5, 20, 0, 2]]);
});

test("of bands before the first change there is none", () => {
  assert.deepEqual(new Bands().at(5, 1), { job: null, count: 0, held: 0, there: 0 });
  assert.deepEqual(swept(new Bands(), 0, 5), { found: [], sums: [[0, 5, 0, 0]] });
});
