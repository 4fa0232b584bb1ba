import assert from "node:assert/strict";
import { test } from "node:test";

import { hasMoved } from "../../dask_hpc/view/kit/shared/scale.js";
import { Picture } from "../../dask_hpc/view/kit/allotment_map.js";

function picture(time = 100) {
  const found = new Picture();
  found.add({
    head: { time, count: 1 },
    nodes: { names: ["n0", "n1", "n2", "n3"], gone: [[3, 3]] },
    changes: [
      [10, "a-1", [[0, 1]], "the first in the queue"],
      [40, "b-2", [[2, 2]], "fits"],
      [60, null, [[2, 2]], ""],
    ],
    jobs: [
      { id: "a-1", name: "a", state: "running", submitted: 5, asks: 2 },
      { id: "c-3", name: "c", state: "waiting", submitted: 50, asks: 4, waiting_because: "needs 4 nodes" },
    ],
    power_now: { jobs: { "a-1": [400, 440] } },
  });
  return found;
}

test("blocks lie where their nodes and times are", () => {
  const blocks = [];
  picture().blocks(992, 4 * 50 + 26, (...block) => blocks.push(block));
  assert.equal(blocks.length, 2);
  const [b, a] = blocks;
  assert.deepEqual(a.slice(0, 4), [182, 4, 810, 100]); // two nodes of 50 pixels, after 10 of 100 seconds
  assert.equal(b[1], 104);
  assert.ok(Math.abs(b[0] - (92 + 360)) < 1e-9 && Math.abs(b[2] - 180) < 1e-9);
});

test("a place under the pointer says what is there", () => {
  const [width, height] = [992, 226];
  const found = picture();
  const here = found.at(600, 20, width, height);
  assert.equal(here.node, 0);
  assert.equal(here.block.job, "a-1");
  assert.deepEqual(found.tip(here), [
    "a on n0",
    "0:10, for 1.5 min so far".replace("1.5 min", "90 s"),
    "420 W on all its nodes",
    "the first in the queue",
  ]);
  assert.deepEqual(found.tip(found.at(600, 180, width, height)).at(-1), "not there now");
  assert.equal(found.at(10, 20, width, height), null);
});

test("a window that reaches the present follows it again", () => {
  const found = picture(2000);
  assert.deepEqual(found.window, [1400, 2000]);
  found.pan(-500);
  assert.deepEqual(found.chosen, [900, 1500]);
  found.add({ head: { time: 2100 } });
  assert.deepEqual(found.window, [900, 1500]);
  found.pan(5000);
  assert.equal(found.chosen, null);
  assert.deepEqual(found.window, [1500, 2100]);
  found.zoom(2100, 0.5);
  assert.deepEqual(found.window, [1800, 2100]);
});

test("a brush selects times and nodes, and reset ends it", () => {
  const found = picture(2000);
  found.select({ time: 1800, node: 2 }, { time: 1700, node: 1 });
  assert.deepEqual(found.window, [1700, 1800]);
  assert.deepEqual(found.seenRows, [1, 2]);
  found.reset();
  assert.deepEqual(found.seenRows, [0, 3]);
  assert.deepEqual(found.window, [1400, 2000]);
});

test("everything anew leaves what people chose", () => {
  const found = picture(2000);
  found.select({ time: 1800, node: 0 }, { time: 1700, node: 0 });
  found.clear();
  found.add({ head: { time: 2001, count: 9 }, nodes: { names: ["n0"], gone: [] } });
  assert.deepEqual(found.window, [1700, 1800]);
  assert.equal(found.summary, "1 node, 0 jobs running, 0 waiting");
});

test("a window has moved when half a pixel of it is new", () => {
  assert.equal(hasMoved([0, 600], 0.1, 600), false); // a second is a pixel
  assert.equal(hasMoved([0, 600], 0.5, 600), true);
  assert.equal(hasMoved([0, 30], 0.1, 600), true);
  assert.equal(hasMoved([0, 600], -1, 600), true); // another cluster
});
