import assert from "node:assert/strict";
import { test } from "node:test";

import { Picture, allotmentsCsv, paintBands } from "../../dask_hpc/view/kit/allotment_map.js";
import { queueLine, waitingOf } from "../../dask_hpc/view/kit/shared/queue.js";

const [WIDTH, FLOOR] = [1002, 204]; // 900 pixels of time, four rows of 50

function picture(time = 100, more = {}) {
  const found = new Picture();
  found.add({
    head: { time, count: 1 },
    order: { "a-1": 0, "b-2": 1, "c-3": 2 },
    nodes: { names: ["n0", "n1", "n2", "n3"], gone: [[3, 3]] },
    changes: [
      [10, "a-1", [[0, 1]], "the first in the queue"],
      [40, "b-2", [[2, 2]], "fits"],
      [60, null, [[2, 2]], ""],
    ],
    jobs: [
      { id: "a-1", name: "a", state: "running", submitted: 5, asks: 2 },
      { id: "b-2", name: "b", state: "failed", failed: 4, error: "ValueError: no", submitted: 6, asks: 1 },
      { id: "c-3", name: "c", state: "waiting", submitted: 50, asks: 4, waiting_because: "needs 4 nodes" },
    ],
    power_now: { jobs: { "a-1": [400, 440] } },
    ...more,
  });
  return found;
}

/** 1,000 nodes, each second of which has its own job for two seconds. */
function large() {
  const found = new Picture();
  const names = Array.from({ length: 1000 }, (_, i) => `n${i}`);
  found.add({
    head: { time: 100, count: 1 },
    order: { wide: 0, odd: 1 },
    nodes: { names, gone: [] },
    changes: [
      [10, "wide", [[0, 599]], "large"],
      [20, "odd", [[601, 601], [603, 603], [605, 605]], "three"],
      [50, null, [[0, 299]], ""],
    ],
    jobs: [{ id: "wide", name: "wide", state: "running" }, { id: "odd", name: "odd", state: "running" }],
  });
  return found;
}

test("blocks lie where their nodes and times are", () => {
  const blocks = [];
  const found = picture();
  found.blocks(WIDTH, FLOOR, found.axis.scale(WIDTH), (...block) => blocks.push(block));
  assert.equal(blocks.length, 2);
  const [b, a] = blocks;
  assert.deepEqual(a.slice(0, 4), [182, 4, 810, 100]); // two nodes of 50 pixels, after 10 of 100 seconds
  assert.equal(b[1], 104);
  assert.ok(Math.abs(b[0] - (92 + 360)) < 1e-9 && Math.abs(b[2] - 180) < 1e-9);
});

test("a place under the pointer says what is there", () => {
  const found = picture();
  const here = found.at(600, 20, WIDTH, FLOOR);
  assert.equal(here.node, 0);
  assert.equal(here.block.job, "a-1");
  assert.deepEqual(found.tip(here), ["a on n0", "0:10, for 90 s so far", "420 W on all its nodes", "the first in the queue"]);
  assert.deepEqual(found.tip(found.at(600, 180, WIDTH, FLOOR)).at(-1), "not there now");
  assert.equal(found.at(10, 20, WIDTH, FLOOR), null);
  assert.equal(found.at(600, 205, WIDTH, FLOOR), null);
});

test("a job that failed says so, with its first error", () => {
  const found = picture();
  assert.deepEqual(found.tip(found.at(92 + 450, 120, WIDTH, FLOOR)), ["b (failed) on n2", "0:40, for 20 s", "4 tasks failed: ValueError: no", "fits"]);
});

test("a node is there from when it joined to when it left", () => {
  const found = picture(100, { presence: [[0, "joined", [[0, 3]]], [70, "left", [[3, 3]]], [80, "joined", [[3, 3]]]] });
  const seen = [];
  found.blocks(WIDTH, FLOOR, found.axis.scale(WIDTH), (left, top, wide, high, one) => seen.push([one.first, one.last, left, wide]), found.there);
  assert.deepEqual(seen, [[3, 3, 92, 630], [0, 2, 92, 900], [3, 3, 812, 180]]);
  assert.deepEqual([50, 75, 90].map((time) => found.isThere(3, time)), [true, false, true]);
  assert.equal(found.tip(found.at(92 + 675, 180, WIDTH, FLOOR)).at(-1), "not there then");
  assert.deepEqual(found.bands.at(75, 3.5), { job: null, count: 1, held: 2, there: 3 });
});

test("what comes and what changes hands is counted in order of time", () => {
  const found = picture(100, { presence: [[0, "joined", [[0, 1]]], [30, "joined", [[2, 3]]]] });
  assert.equal(found.bands.at(20, 0).there, 2);
  assert.deepEqual(found.bands.times, [...found.bands.times].sort((a, b) => a - b));
});

test("a marked node says how it is now, and why", () => {
  const found = picture(100, { marked: [[[[0, 0], [3, 3]], "hold", "a bad fan"]] });
  assert.equal(found.tip(found.at(600, 20, WIDTH, FLOOR)).at(-1), "on hold now: a bad fan");
  assert.match(found.summary, /^3 nodes, 2 on hold, 1 job running/);
  found.add({ head: { time: 101 }, marked: [] });
  assert.equal(found.marked.size, 0);
});

test("a brush selects times and nodes, and reset ends it", () => {
  const found = picture(2000);
  const x = found.axis.scale(WIDTH);
  found.select([x(1800), 100], [x(1700), 60], WIDTH, FLOOR);
  assert.deepEqual(found.axis.window.map(Math.round), [1700, 1800]);
  assert.deepEqual(found.rows, [1]);
  assert.match(found.summary, /^1 of 3 nodes/);
  found.reset();
  assert.equal(found.count, 4);
});

test("a brush along one row is about times alone", () => {
  const found = picture(2000);
  const x = found.axis.scale(WIDTH);
  found.select([x(1700), 100], [x(1800), 103], WIDTH, FLOOR);
  assert.equal(found.rows, null);
  assert.deepEqual(found.axis.window.map(Math.round), [1700, 1800]);
});

test("everything anew leaves what people chose", () => {
  const found = picture(2000);
  found.axis.choose(1700, 1800);
  found.clear();
  found.add({ head: { time: 2001, count: 9 }, nodes: { names: ["n0"], gone: [] } });
  assert.deepEqual(found.axis.window, [1700, 1800]);
  assert.equal(found.summary, "1 node, 0 jobs running, 0 waiting");
});

test("a thousand nodes are bands of jobs, and rows again when some are chosen", () => {
  const found = large();
  assert.ok(found.isBanded(FLOOR) && !picture().isBanded(FLOOR));
  const y = found.scale(FLOOR);
  assert.deepEqual([0, 500, 1000].map(y), [204, 104, 4]);
  const x = found.axis.scale(WIDTH);
  assert.deepEqual(found.tip(found.at(x(60), y(100), WIDTH, FLOOR)), ["wide on 300 nodes", "1:00", "large", "303 nodes of 1,000 held"]);
  assert.deepEqual(found.tip(found.at(x(60), y(301.5), WIDTH, FLOOR))[0], "odd on 3 nodes");
  assert.deepEqual(found.tip(found.at(x(60), y(700), WIDTH, FLOOR))[0], "697 nodes idle");
  found.select([x(55), y(302.5)], [x(65), y(400)], WIDTH, FLOOR);
  assert.deepEqual(found.rows, [601, 603, 605]);
  assert.ok(!found.isBanded(FLOOR));
  found.reset();
  found.axis.follow();
  found.select([x(55), y(100)], [x(65), y(400)], WIDTH, FLOOR);
  assert.deepEqual([found.rows[0], found.count], [300, 66], "as many as there is room for");
});

test("bands have their jobs' colours, whoever is not pointed at is faded, and names lie on them", () => {
  const found = large();
  found.add({ head: { time: 100, count: 2 }, changes: [[80, null, [[300, 599]], ""]], jobs: [{ id: "wide", name: "wide", state: "failed" }] });
  const drawn = (pointed) => {
    const rows = [];
    const context = { globalAlpha: 1, fillStyle: "" };
    context.fillRect = (...place) => rows.push([context.fillStyle, context.globalAlpha, ...place.map(Math.round)]);
    context.fillText = (text) => rows.push([context.fillStyle, context.globalAlpha, text]);
    paintBands(found, pointed, context, WIDTH, FLOOR, { idle: "idle" }, found.axis.scale(WIDTH), found.scale(FLOOR));
    assert.equal(context.globalAlpha, 1);
    return rows;
  };
  const [wide, odd] = ["#0072b2", "#e69f00"];
  const rows = drawn(null);
  const widths = (colour, all = rows) => all.filter(([own, , ...place]) => own === colour && place.length === 4).map(([, , , , across]) => across);
  assert.deepEqual(widths(wide), [360, 270]); // 40 and 30 of 100 seconds, 900 pixels
  assert.deepEqual(widths(odd), [270, 270, 180]); // it lies on the other, which gets thinner and goes
  assert.equal(widths("idle").reduce((all, one) => all + one, 0), 900);
  assert.deepEqual(rows.filter(([colour]) => colour === "idle").map((row) => row[5])[0], 200); // nobody has a node yet
  assert.ok(rows.every(([, alpha]) => alpha === 1));
  // its end is on its band, which is painted before
  assert.ok(rows.findIndex(([colour]) => colour === "#d32f2f") > rows.findLastIndex(([colour]) => colour === wide));
  assert.deepEqual(rows.filter((row) => row.length === 3), [["#ffffff", 1, "wide (failed)"], ["#ffffff", 1, "wide (failed)"]]);
  assert.deepEqual(drawn(null), rows); // nothing is left of the first time
  const pointed = drawn("odd");
  assert.deepEqual(new Set(pointed.filter(([colour]) => colour === wide).map(([, alpha]) => alpha)), new Set([0.25]));
  assert.deepEqual(new Set(pointed.filter(([colour]) => colour === odd).map(([, alpha]) => alpha)), new Set([1]));
  assert.equal(pointed.length, rows.length);
});

test("rows that were chosen lie together, whatever nodes they are", () => {
  const found = large();
  found.seeRows([600, 601, 603, 605]);
  const seen = [];
  found.blocks(WIDTH, FLOOR, found.axis.scale(WIDTH), (left, top, wide, high, one) => seen.push([one.job, one.first, top, high]));
  assert.deepEqual(seen, [["odd", 601, 54, 50], ["odd", 603, 104, 50], ["odd", 605, 154, 50]]);
  assert.equal(found.at(500, 160, WIDTH, FLOOR).node, 605);
});

test("keys page through the rows of many nodes", () => {
  const found = large();
  assert.ok(found.page(0.5, FLOOR));
  assert.deepEqual([found.rows[0], found.rows.at(-1)], [0, 65]);
  found.page(0.5, FLOOR);
  assert.equal(found.rows[0], 33);
  found.page(-9, FLOOR);
  assert.equal(found.rows[0], 0);
  found.page(1e6, FLOOR);
  assert.equal(found.rows.at(-1), 999);
  assert.equal(picture().page(0.5, FLOOR), false);
});

test("nodes that come later count from then on, where nobody says when", () => {
  const found = large();
  found.add({ head: { time: 110 }, nodes: { names: [...found.names, "new"], gone: [[0, 9]] } });
  assert.deepEqual([105, 110].map((time) => found.bands.at(time, 0).there), [1000, 991]);
});

test("nodes of a run that is over count, named or not", () => {
  const found = new Picture();
  found.add({
    head: { time: 50, begin: 0, state: "simulated", nodes: 1000 },
    nodes: { names: ["n0", "n1"], gone: [] },
    presence: [[0, "joined", [[0, 1]]]],
    changes: [[10, "a", [[0, 1]], ""]],
  });
  assert.equal(found.summary, "1,000 nodes, 50 s");
  assert.deepEqual(found.bands.at(20, 0), { job: "a", count: 2, held: 2, there: 1000 });
});

test("a table of what is seen", () => {
  const found = picture();
  found.axis.choose(0, 50);
  assert.equal(allotmentsCsv(found), "job,nodes,count,start,end,reason\r\na,n0 to n1,2,10,,the first in the queue\r\nb (failed),n2,1,40,60,fits\r\n");
});

test("the queue in a line", () => {
  const waits = (name, submitted, why) => ({ state: "waiting", name, asks: 4, submitted, waiting_because: why });
  const jobs = [waits("late", 9, null), waits("assembly", 3, "needs 4 nodes, 1 idle"), { state: "running" }];
  assert.equal(queueLine(waitingOf(jobs)), "2 jobs wait: assembly, 4 nodes: needs 4 nodes, 1 idle");
  assert.equal(queueLine(waitingOf(jobs.slice(0, 1))), "1 job waits: late, 4 nodes");
  assert.equal(queueLine([]), "No job waits.");
});
