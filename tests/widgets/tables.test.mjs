// Tables of jobs and nodes: what is found, in which order, and what is said of it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { aboutJob, countsOf, jobColumns, jobsCsv, saidOf, showNodeHours, showWalltime, walltimeLeft, wordsOf } from "../../dask_hpc/view/kit/jobs_table.js";
import { conditionOf, conditionsOf, memoryOf, nodeColumns, offersForNode, saidOfNode } from "../../dask_hpc/view/kit/nodes_table.js";
import { wordFor } from "../../dask_hpc/view/kit/story_view.js";
import { csvOf } from "../../dask_hpc/view/kit/shared/page.js";
import { onTheWall } from "../../dask_hpc/view/kit/shared/moment.js";
import { fitting, matching, orderedBy, reordered, settled, telling } from "../../dask_hpc/view/kit/shared/table.js";

const job = (given) => ({
  id: "j", name: "training", user: "ada", state: "running", kind: "malleable", nodes: 2, asks: 2, min_nodes: 1, max_nodes: 4,
  submitted: 0, started: 10, ended: null, progress: null, expected_end: null, compute: 0, transfer: 0, waiting_because: null,
  reason: "idle nodes", failed: 0, error: "", walltime: null, node_seconds: 0, energy: null, ...given,
});
const ids = (rows) => rows.map(({ id }) => id).join("");
const rows = (...values) => values.map((value, i) => ({ id: "abcdefgh"[i], value }));

test("a search finds rows that have all its words, by name, user and state", () => {
  const all = [job({ id: "a" }), job({ id: "b", user: "grace", state: "failed" }), job({ id: "c", state: "waiting", waiting_because: "held: by hand" })];
  const found = (words) => ids(matching(all, words, wordsOf));
  assert.deepEqual(["", " FAILED ", "grace fail", "ada failed", "held", "train"].map(found), ["abc", "b", "b", "", "c", "abc"]);
  assert.equal(ids(matching(new Map([[1, all[0]]]).values(), "", wordsOf)), "a");
});

test("rows go by a column either way; those without a value come last, and equal ones stay", () => {
  const by = ({ value }) => value;
  assert.equal(ids(orderedBy(rows(10, null, 9, NaN, 10, undefined), by, false)), "caebdf");
  assert.equal(ids(orderedBy(rows(10, null, 9, 0), by, true)), "acdb");
  assert.equal(ids(orderedBy(rows("node10", "", "node9"), by, false)), "cab");
});

test("a column's head is pressed for its first way, the other one, and none", () => {
  const ways = (isNumber) => [1, 2, 3].reduce((all) => [...all, reordered(all.at(-1), "x", isNumber)], [null]).slice(1).map((one) => one?.isDown);
  assert.deepEqual(ways(true), [true, false, undefined]);
  assert.deepEqual(ways(false), [false, true, undefined]);
  assert.deepEqual(reordered({ name: "y", isDown: false }, "x", false), { name: "x", isDown: false });
});

test("no row moves while somebody is at them; new ones come last", () => {
  assert.equal(ids(settled(rows(1, 2, 3, 4), ["c", "z", "a"], ({ id }) => id)), "cabd");
});

test("columns that say nothing of any row are not there, nor those that find no place", () => {
  const named = (columns) => columns.map(({ name }) => name).join();
  const columns = jobColumns(() => 30);
  assert.equal(named(telling(columns, [job({ user: "" })])), "job,state,nodes,node-hours");
  assert.equal(named(telling(columns, [job(), job({ walltime: 5, energy: 0, expected_end: 9, compute: 1, progress: 0 })])), named(columns));
  assert.equal(named(telling(columns, [])), "job");
  const given = [["a", 100], ["b", 50, 2], ["c", 50, 1], ["d", 50]].map(([name, pixels, rank]) => ({ name, width: [pixels, 1], rank }));
  assert.deepEqual([300, 299, 240, 239].map((pixels) => named(fitting(given, pixels))), ["a,b,c,d", "a,c,d", "a,c,d", "a,d"]);
});

test("what is left of a walltime, and by how much it is over", () => {
  const at = (now, given) => showWalltime(walltimeLeft(job({ walltime: 120, ...given }), now));
  assert.deepEqual([at(30), at(130), at(250), at(999, { state: "failed" }), at(0, { walltime: null })], ["1.7 min", "0 s", "over by 2.0 min", "-", "-"]);
  assert.equal(at(500, { state: "waiting", started: null }), "2.0 min");
  const cell = jobColumns(() => 250).find(({ name }) => name === "walltime left").show(job({ walltime: 120 }));
  assert.deepEqual(cell, { text: "over by 2.0 min", isBad: true, title: "of 2.0 min" });
});

test("node-hours in few digits", () => {
  assert.deepEqual([undefined, 0, 1, 1234.5, 36e4, 1e8].map(showNodeHours), [null, "0", "< 0.001", "0.343", "100", "27,778"]);
});

test("a job says what failed, and why it is as it is", () => {
  const failed = job({ state: "failed", failed: 4, error: "ValueError: no", ended: 20, finished_tasks: 12 });
  assert.deepEqual(saidOf(failed), [["4 tasks failed: ValueError: no", true]]); // what failed it is why
  assert.deepEqual(saidOf({ ...failed, state: "running" })[1], ["idle nodes", false]);
  assert.deepEqual(saidOf(job({ state: "waiting", waiting_because: "needs 3" })), [["needs 3", false]]);
  assert.deepEqual(saidOf(job({ reason: "" })), []);
  assert.equal(countsOf([job({ state: "done" }), failed, job()]), "1 running, 1 done, 1 failed");
  const about = Object.fromEntries(aboutJob(failed, null));
  assert.equal(about.failed, "4 tasks; the first: ValueError: no");
  assert.equal(about.ended, "0:20");
  assert.ok(!("waits" in about));
});

test("how a row of the story ended is said as the facts are", () => {
  const words = [["end", "failed"], ["end", "cancelled"], ["end", "done"], ["fail", "failed"], ["start", "failed"], ["lost", undefined]];
  assert.deepEqual(words.map((one) => wordFor(...one)), [["end, failed", true], ["end, cancelled", false], ["end", false], ["failed", true], ["start", false], ["lost", true]]);
});

test("comma-separated values, whatever is in them", () => {
  assert.equal(csvOf(["a", "b"], [['say "x"', 1], ["1,2\n", null], [undefined, ""]]), 'a,b\r\n"say ""x""",1\r\n"1,2\n",\r\n,\r\n');
  const [heads, values] = jobsCsv([job({ name: "a, b", state: "failed", failed: 1, finished_tasks: 3, error: 'E: "x"', node_seconds: 7200, compute: 3, transfer: 1 })]).split("\r\n");
  const found = Object.fromEntries(heads.split(",").map((head, i) => [head, values.replace('"a, b"', "a").split(",")[i]]));
  assert.deepEqual([found.job, found.state, found.progress, found.node_hours, found.energy_J, found.efficiency, found.error], ["a", "failed", "0.75", "2", "", "0.75", '"E: ""x"""']);
});

test("a time on the wall, with its day where that is another one", () => {
  const epoch = new Date(2026, 4, 3, 9, 5, 7).getTime() / 1000;
  assert.equal(onTheWall(epoch, 60, new Date(2026, 4, 3, 23)), "09:06:07");
  assert.equal(onTheWall(epoch, 60, new Date(2026, 4, 4, 1)), "3 May 09:06:07");
  assert.deepEqual([onTheWall(null, 1), onTheWall(undefined, 1), onTheWall(epoch, null)], ["", "", ""]);
});

const node = (given) => ({ name: "n1", state: "idle", job: null, why: "", workers: ["w1", "w2"], threads: 4, memory: 3e9, memory_limit: 4e9, watts: 90, health: "", ...given });

test("a node is held and drained until it is released, unless it leaves", () => {
  const deeds = (given, isFixed) => offersForNode(node(given), isFixed).map(([, text]) => text).join();
  const states = ["idle", "hold", "drained", "lent", "leaving"].map((state) => deeds({ state }));
  assert.deepEqual(states, ["Hold,Drain", "Release", "Release", "Hold,Drain", ""]);
  assert.deepEqual([deeds({}, true), deeds({ workers: [] })], ["", ""]);
  assert.equal(offersForNode(node())[1][3].drain, true);
});

test("what is said of a node", () => {
  assert.deepEqual(["drain", "other, drain", "drainage"].map((why) => conditionOf(node({ state: "hold", why }))), ["draining", "draining", "hold"]);
  assert.equal(conditionOf(node({ state: "drained", why: "drain" })), "drained");
  assert.equal(conditionsOf([node(), node({ state: "hold" }), node()]), "3 nodes: 2 idle, 1 hold");
  assert.deepEqual(saidOfNode(node({ why: "by hand" })), [["by hand", false], ["2 workers, 4 threads", false]]);
  assert.deepEqual([memoryOf(node()), memoryOf(node({ memory_limit: 0 })), memoryOf(node({ memory: 9e9 }))], [0.75, null, 1]);
  const named = telling(nodeColumns((one) => one), [node({ watts: null })]).map(({ name }) => name);
  assert.deepEqual(named, ["node", "state", "memory"]);
});
