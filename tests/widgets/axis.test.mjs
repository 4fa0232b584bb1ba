// One axis of time: what is seen, and what hands make of it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { EDGE, TimeAxis, axisOf, pressed } from "../../dask_hpc/view/kit/shared/axis.js";
import { Model } from "../../dask_hpc/view/kit/shared/document.js";
import { hasMoved } from "../../dask_hpc/view/kit/shared/scale.js";

function axis(time, more = {}) {
  const found = new TimeAxis();
  found.add({ head: { time, state: "on" }, ...more });
  return found;
}

const rounded = (window) => window.map((one) => Math.round(one * 1000) / 1000);

test("a window that reaches the present follows it again", () => {
  const found = axis(2000);
  assert.deepEqual(found.window, [1400, 2000]);
  found.pan(-500 / 600);
  assert.deepEqual(rounded(found.window), [900, 1500]);
  found.add({ head: { time: 2100 } });
  assert.deepEqual(rounded(found.window), [900, 1500]);
  found.pan(10);
  assert.ok(found.isFollowing);
  assert.deepEqual(rounded(found.window), [1500, 2100]);
  found.zoom(0.5);
  assert.deepEqual(rounded(found.window), [1800, 2100]);
  assert.ok(found.isFollowing);
  found.add({ head: { time: 2200 } });
  assert.deepEqual(rounded(found.window), [1900, 2200]);
});

test("where something is drawn of what comes, a fifth is kept for it", () => {
  const found = axis(2000, { samples: [[0, 1]] });
  assert.deepEqual(found.window, [1400, 2150]);
  assert.deepEqual(axis(2000, { corridor: [[0, 0, 5]] }).window, [1400, 2150]);
  assert.deepEqual(axis(2000, { corridor: null, samples: [] }).window, [1400, 2000]);
  found.zoom(0.5, 2000);
  found.pan(0.001);
  found.pan(5);
  assert.ok(found.isFollowing);
  found.choose(1800, 2052); // about to where the present would be
  assert.deepEqual(rounded(found.window), [1798.4, 2050.4]);
  assert.ok(found.isFollowing);
});

test("a cluster that is young is seen from its beginning", () => {
  assert.deepEqual(axis(5).window, [0, 20]);
  assert.deepEqual(axis(100).window, [0, 100]);
});

test("what is planned can be reached, and beyond it nothing", () => {
  const found = axis(2000, { corridor: [[0, 0, 5], [9000, 0, 9]] });
  found.pan(100);
  assert.ok(!found.isFollowing);
  const [from, to] = found.window;
  assert.ok(from < 9000 && 9000 < to && to < 9100);
});

test("what is over is seen as a whole, and again when all of it is chosen", () => {
  const found = axis(500, { head: { time: 500, begin: 100, state: "simulated" } });
  assert.deepEqual(found.window, [100, 500]);
  found.zoom(0.5);
  assert.deepEqual(found.window, [200, 400]);
  found.pan(-9);
  assert.deepEqual(found.window, [100, 300]);
  found.zoom(100);
  assert.deepEqual(found.window, [100, 500]);
  assert.ok(found.isFollowing);
});

test("times are chosen in any order, but not an instant", () => {
  const found = axis(2000);
  found.choose(800, 700);
  assert.deepEqual(found.window, [700, 800]);
  found.choose(750, 750.01);
  assert.deepEqual(found.window, [700, 800]);
  found.follow();
  assert.deepEqual(found.window, [1400, 2000]);
});

test("all pictures have the same edges", () => {
  const x = axis(2000).scale(1000);
  assert.deepEqual([x(1400), x(2000)], [EDGE.left, 1000 - EDGE.right]);
});

test("keys zoom, pan and come back, and no others are taken", () => {
  const found = axis(2000);
  assert.ok(pressed(found, "ArrowLeft"));
  assert.deepEqual(found.window, [1280, 1880]);
  pressed(found, "+");
  assert.deepEqual(rounded(found.window), [1340, 1820]);
  pressed(found, "-");
  assert.deepEqual(rounded(found.window), [1280, 1880]);
  assert.ok(pressed(found, "Escape"));
  assert.ok(found.isFollowing);
  assert.ok(!pressed(found, "x"));
});

test("whoever looks at a model shares its axis and its window", () => {
  const model = new Model({ window: null });
  const found = axisOf(model);
  assert.equal(axisOf(model), found);
  assert.notEqual(axisOf(new Model({})), found);
  let told = 0;
  const quiet = found.listen(() => (told += 1));
  found.add({ head: { time: 2000 } });
  found.choose(100, 200);
  assert.deepEqual(model.get("window"), [100, 200]);
  assert.equal(told, 1);
  model.set("window", [300, 400]);
  assert.deepEqual(found.window, [300, 400]);
  assert.equal(told, 2);
  model.set("window", null);
  assert.ok(found.isFollowing);
  quiet();
  found.follow();
  assert.equal(told, 3);
});

test("a window has moved when half a pixel of it is new", () => {
  assert.equal(hasMoved([0, 600], 0.1, 600), false); // a second is a pixel
  assert.equal(hasMoved([0, 600], 0.5, 600), true);
  assert.equal(hasMoved([0, 30], 0.1, 600), true);
  assert.equal(hasMoved([0, 600], -1, 600), true); // another cluster
});

test("a time on the wall beside the one that has passed", () => {
  const noon = new Date(2026, 10, 26, 12, 0, 0).getTime() / 1000;
  const found = axis(60, { head: { time: 60, epoch: noon } });
  assert.deepEqual([45, -86400].map((time) => found.wall(time)), ["12:00:45", "25 Nov 12:00:00"]);
  assert.equal(found.show(45), "0:45 · 12:00:45");
  assert.equal(axis(60).show(45), "0:45");
});
