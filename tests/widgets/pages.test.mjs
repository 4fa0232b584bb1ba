// What is on pages besides what widgets show: figures of checkpoints, file systems, power; who reads a feed.

import assert from "node:assert/strict";
import { test } from "node:test";

import { isEmpty, shareFor, tabFor } from "../../dask_hpc/view/kit/control_room.js";
import { Headline, clockOf, details, figures } from "../../dask_hpc/view/kit/headline.js";
import { figuresOf, happened, isUsed } from "../../dask_hpc/view/kit/checkpoint_view.js";
import { given } from "../../dask_hpc/view/kit/control_page.js";
import { valueAt } from "../../dask_hpc/view/kit/curves.js";
import { rowsOf } from "../../dask_hpc/view/kit/lanes.js";
import { depthOf, figuresOfKinds, limitsOf, memoryBars, rowsOfKinds, unknown } from "../../dask_hpc/view/kit/neighbours_view.js";
import { barsOf, figuresOf as figuresOfFiles, speedOf } from "../../dask_hpc/view/kit/scratch_files_view.js";
import { Model, Reader } from "../../dask_hpc/view/kit/shared/document.js";
import { showBounds } from "../../dask_hpc/view/kit/shared/units.js";

const COUNTS = { commits: 3, copies: 9, moved: 5e6, unchanged: 0, failed: 0, recoveries: 1, recovered: 4, unrecovered: 0, damaged: 1 };
const LAST = { ago: 3.2, seconds: 0.5, moved: 2e6, unchanged: 1e6 };

function checkpoint(changed = {}) {
  return {
    protected: [{ keys: 4, copied: 3, nbytes: 3e6, last_commit: LAST, name: "u", next_due: 7.4 }],
    levels: { partner: { copies: 4, nbytes: 4e6 }, disk: { copies: 1, nbytes: 1e6 } },
    agents: [{ budget: 1e9, used: 4e6 }],
    store: { waiting: 0, problem: "" },
    last_commit: LAST,
    counts: COUNTS,
    exposed: 0,
    ...changed,
  };
}

test("figures of checkpoints say what is protected, where copies are and when the next is due", () => {
  assert.deepEqual(figuresOf(checkpoint()), [
    ["3 of 4", "protected results have a copy", false],
    ["4 MB", "4 copies on other nodes", false],
    ["1 MB", "1 copy of them on disk", false],
    ["0 %", "of 1 GB that agents may use", false],
    ["3 s ago", "last commit: 0.5 s, 2 MB moved, 1 MB unchanged", false],
    ["7 s", "until the next commit", false],
  ]);
  assert.equal(happened(COUNTS), "3 commits, 5 MB moved, 1 recovery of 4 results, 1 copy unreadable");
  const waits = figuresOf(checkpoint({ store: { waiting: 2e6, problem: "" } }));
  assert.deepEqual(waits.at(-1), ["2 MB", "on their way to the store", false]);
});

test("what is not safe is bad", () => {
  const store = { waiting: 5, problem: "full" };
  const bad = figuresOf(checkpoint({ exposed: 2, counts: { ...COUNTS, unrecovered: 1 }, store })).filter((one) => one[2]);
  assert.deepEqual(bad.map((one) => one[0]), ["no store", "2", "1"]);
  const bare = { protected: [], levels: {}, agents: [], last_commit: null };
  assert.deepEqual(figuresOf(checkpoint(bare)), [["0 of 0", "protected results have a copy", false]]);
});

test("agents that are there for others are no checkpoints", () => {
  const none = { protected: [], versions: [], counts: { ...COUNTS, commits: 0, recoveries: 0 } };
  assert.equal(isUsed(none), false);
  for (const some of [{ protected: [1] }, { versions: [1] }, { counts: COUNTS }]) assert.equal(isUsed({ ...none, ...some }), true);
});

const FILES = {
  name: "scratch", files: 1, nbytes: 4e6, wanted: null, writers: 0, lost: 0, staging: [], throughput: null, to_store: 0, store_problem: "",
  nodes: [{ name: "n10", blocks: 1 }, { name: "n9", blocks: 4 }], settings: { recommended: 0 },
};

test("figures of scratch files say what there is and on how many nodes, and what is lost is bad", () => {
  assert.deepEqual(figuresOfFiles(FILES), [["4 MB", "in 1 file", false], ["2", "nodes keep them", false]]);
  const staging = [{ path: "", to: "/out", files: 9, done: 3 }];
  assert.deepEqual(figuresOfFiles({ ...FILES, wanted: 4, writers: 2, lost: 1, staging }).slice(1), [
    ["2", "nodes keep them; 2 more when they come", false],
    ["2", "files are being written", false],
    ["3 of 9", "files copied to /out", false],
    ["1", "block lost", true],
  ]);
  assert.deepEqual(figuresOfFiles({ ...FILES, to_store: 2 }).at(-1), ["2", "files on the way to the store", false]);
  assert.deepEqual(figuresOfFiles({ ...FILES, to_store: 2, store_problem: "full" }).at(-1), ["no store", "it cannot be written: full", true]);
});

test("the speed of operations on scratch files, beside what is recommended", () => {
  const speed = (throughput, recommended) => speedOf({ throughput, settings: { recommended } });
  assert.equal(speed(null, 0), null);
  assert.deepEqual(speed(null, 2e9), { share: 0, mark: 1, text: "2 GB/s recommended", isBad: false });
  assert.deepEqual(speed(1e9, 0), { share: 1, mark: null, text: "1 GB/s", isBad: false });
  assert.deepEqual(speed(1e9, 2e9), { share: 0.5, mark: 1, text: "1 GB/s, 2 GB/s recommended", isBad: true });
  assert.deepEqual(speed(4e9, 2e9), { share: 1, mark: 0.5, text: "4 GB/s, 2 GB/s recommended", isBad: false });
  assert.equal(speed(1.9e9, 2e9).isBad, false);
});

test("nodes with scratch files are ordered as people count, and empty ones have no bar", () => {
  assert.deepEqual(barsOf(FILES.nodes), [{ name: "n9", share: 1, text: "4 blocks" }, { name: "n10", share: 0.25, text: "1 block" }]);
  assert.deepEqual(barsOf([{ name: "n", blocks: 0 }]), [{ name: "n", share: 0, text: "0 blocks" }]);
});

test("file systems with most reads come first, twenty at most", () => {
  const lane = { file_system: "/scratch", limit: 4, in_flight: 3, waiting: 20, done: 7, reads_per_second: 12.345, reason: "served best" };
  const other = { ...lane, file_system: "s3://b", limit: null, reads_per_second: null, done: 9 };
  assert.deepEqual(rowsOf([lane, other]), [
    ["s3://b", "3 (no limit)", "20", "9", "-", "served best"],
    ["/scratch", "3 (at most 4)", "20", "7", "12.3", "served best"],
  ]);
  assert.equal(rowsOf(Array(99).fill(lane)).length, 20);
});

const HEAD = { policy: "p", state: "on", time: 7, allotted: 2 };
const NODES = { names: ["a", "b", "c"], gone: [[2, 2]] };
const saidOf = (news) => {
  const line = new Headline();
  line.add({ head: HEAD, nodes: NODES, ...news });
  return figures(line).map(([value, name, isBad]) => [value, name, isBad ? "bad" : ""].join("|"));
};

test("figures of the cluster, those that matter first, and what is bad is bad", () => {
  const jobs = [{ id: "a", state: "running" }, { id: "b", state: "waiting" }, { id: "c", state: "failed" }, { id: "d", state: "cancelled" }];
  const measured = { node_seconds: 9, utilisation: 0.5, mean_response: 20, mean_wait: 4, mean_bounded_slowdown: 1.2345, adaptation: { grow: { count: 1, total: { last: 2, largest: 3 } } } };
  assert.deepEqual(saidOf({ jobs, head: { ...HEAD, lost: 1, errors: 2 }, holds: [1], figures: measured }), [
    "p|policy|", "2 of 2|nodes allotted|", "1|running, 1 waiting|", "1|failed|bad", "1|result lost|bad", "2|errors of ours|bad",
    "1|workers on hold|", "50 %|of node-seconds used|", "4 s|mean wait|",
  ]);
  assert.deepEqual(saidOf({ head: { ...HEAD, state: "off", allotted: undefined } }).slice(0, 2), ["p|policy, control off|bad", "2|nodes|"]);
  const line = new Headline();
  line.add({ head: { ...HEAD, resizes: 3 }, jobs, figures: measured });
  assert.deepEqual(details(line), ["3 changes of size", "1 job was cancelled", "from submission to the end: 20 s (mean), bounded slowdown 1.23", "to grow: 2 s, 3 s at most"]);
  assert.equal(figures(new Headline())[0][1], "waits for the cluster");
  assert.deepEqual(saidOf({ head: { policy: "", state: "simulated", time: 120 }, nodes: { names: ["a"], gone: [] } }), ["1|node|", "2.0 min|in all|"]);
});

test("figures of power", () => {
  const power = { is_steered: true, watts: 1830, source: "measured", uncertainty: 20, lower: 1700, upper: null, is_outside: false, verdict: null, doubt: "", violations: 2 };
  const told = (changed) => saidOf({ power_now: changed && { ...power, ...changed } }).slice(3);
  assert.deepEqual(told(null), []);
  assert.deepEqual(told({ is_steered: false }), ["1.83 kW \u00b1 20 W|power, measured|"]);
  assert.deepEqual(told({}), ["1.83 kW \u00b1 20 W|inside at least 1.7 kW, measured|"]);
  assert.deepEqual(told({ upper: 1800, is_outside: true }), ["1.83 kW \u00b1 20 W|outside 1.7 kW to 1.8 kW, measured|bad"]);
  assert.match(told({ verdict: { is_kept: false, reason: "no work" } })[0], /cannot be kept: no work\|bad/);
  assert.match(told({ doubt: "frozen" })[0], /careful, power cannot be trusted: frozen\|bad/);
});

test("what the clock says, and the one on the wall", () => {
  assert.deepEqual(clockOf({ time: 65, epoch: null }), ["1:05", "elapsed"]);
  assert.match(clockOf({ time: 65, epoch: 0 })[1], /^elapsed; it is \d+ \w{3} \d\d:01:05$/);
});

test("keys lead from tab to tab, and round", () => {
  assert.deepEqual(["ArrowRight", "ArrowLeft", "Home", "End", "x"].map((key) => tabFor(key, 2, 3)), [0, 1, 0, 2, null]);
  assert.equal(tabFor("ArrowLeft", 0, 3), 2);
  assert.deepEqual(["ArrowUp", "ArrowDown", "Home", "End", "x"].map((key) => shareFor(key, 0.5)), [0.45, 0.55, 0.15, 0.8, null]);
  assert.equal(shareFor("ArrowUp", 0.16), 0.15);
});

test("bounds in words", () => {
  assert.deepEqual(
    [[0, null], [5, null], [0, 2000], [1700, 2000]].map((bounds) => showBounds(...bounds, "W")),
    ["no bounds", "at least 5 W", "at most 2 kW", "1.7 kW to 2 kW"],
  );
  assert.deepEqual(given(" 1 kW ", ""), { "power.lower": "1 kW" });
});

test("a curve has the value of its last step", () => {
  const curve = { time: [0, 10], value: [4, 0] };
  assert.deepEqual([-1, 0, 9, 10, 99].map((time) => valueAt(curve, time)), [undefined, 4, 4, 0, 0]);
});

test("a reader of a feed goes on where it was, and says what is wrong", async () => {
  const [told, asked] = [[], []];
  const answers = [{ count: 3, whole: { head: 3 } }, { count: 5, news: [{ head: 4 }, { head: 5 }] }, new Error("closed"), { count: 9, whole: { head: 9 } }];
  const reader = new Reader("hpc-feed", async (url) => {
    asked.push(url);
    const next = answers.shift();
    if (next instanceof Error) throw next;
    return next;
  });
  const model = new Model({}, (...what) => reader.hear(...what));
  model.on("msg:custom", (message) => told.push(message));
  await reader.look(model);
  await reader.look(model);
  await reader.look(model);
  assert.equal(model.get("contact"), "closed");
  await reader.look(model);
  assert.equal(model.get("contact"), "");
  assert.deepEqual(asked.map((url) => url.split("=")[1]), ["-1", "3", "5", "-1"]);
  assert.deepEqual(told, [{ whole: { head: 3 } }, { news: { head: 4 } }, { news: { head: 5 } }, { whole: { head: 9 } }]);
});

test("what was refused stays said while the feed goes on", async () => {
  const reader = new Reader("hpc-feed", async (url, sent) => (sent ? { problem: `no ${sent.asked.policy}`, token: sent.token } : { count: 1, news: [] }));
  const model = new Model({ token: "t", control: "hpc-control" }, (...what) => reader.hear(...what));
  await reader.hear({ do: "set", asked: { policy: "x" } }, model);
  await reader.look(model);
  assert.equal(model.get("problem"), "no x");
});

const TOGETHER = {
  kept: [{ kind: "load", waiting: 1200, in_flight: 1 }, { kind: "sum", waiting: 0, in_flight: 2 }],
  memory: {
    why_not: [],
    worker: { limit: 1000e6, base: 100e6, threads: 4 },
    kinds: [
      { kind: "old", peak: 2e9, remembered: true, at_once: 1 },
      { kind: "sum", peak: 1e6, remembered: false, at_once: 4 },
      { kind: "load", peak: 300e6, remembered: false, at_once: 2 },
    ],
  },
  neighbours: {
    kinds: [
      { kind: "sum", tasks: 40, seconds: 0.25, how: "fastest", class: null, by: "bytes" },
      { kind: "load", tasks: 90, seconds: 2, how: "alone", class: "I", by: "counters" },
    ],
    slowdowns: { load: { load: { ratio: 1.7349, stderr: 0.17, tasks: 9.6 }, sum: { ratio: 12.4, stderr: 0.1, tasks: 9.4 } }, sum: { sum: { ratio: 1.04, stderr: 0, tasks: 40 } } },
    limits: [
      { job: "", kind: "load", beside: 1, alone: null, is_trial: true, reason: "tries it" },
      { job: "7", kind: "sum", beside: 0, alone: 3, is_trial: false, reason: "saves 10%" },
    ],
    mpe: 12.345,
    nrmse: 0.0512,
    why_not: ["no perf"],
  },
};

test("kinds of which most tasks have ended have a row and a column each, by name; what is not sure is marked, and has no colour", () => {
  const rows = rowsOfKinds(TOGETHER.neighbours);
  assert.deepEqual(rows.map((row) => [row.kind, row.alone, row.memoryClass, row.cells.map((one) => one.text)]), [
    ["load", "2 s", "I", ["1.73", "~12"]],
    ["sum", "0.25 s", null, ["-", "1.04"]],
  ]);
  assert.deepEqual(rows.map((row) => row.cells.map((one) => one.depth > 0)), [[true, false], [false, false]]);
  assert.equal(rows[0].cells[1].words, "load takes 12 \u00b1 0.10 times as long beside sum, by 9 tasks");
  const cellOf = (seen) => rowsOfKinds({ kinds: TOGETHER.neighbours.kinds, slowdowns: { load: { load: { ratio: 1.7, tasks: 40, ...seen } } } })[0].cells[0];
  assert.deepEqual([0.17, 0.18, null].map((stderr) => cellOf({ stderr }).text), ["1.70", "~1.70", "~1.70"]);
  assert.equal(cellOf({ stderr: null }).words, "load takes 1.70 times as long beside load, by 40 tasks");
  assert.equal(rows[1].cells[0].words, "sum was not seen beside load");
  assert.match(rows[1].how, /fastest/);
  assert.match(rows[0].how, /^seen alone$/);
  const many = Array.from({ length: 20 }, (_, i) => ({ kind: `k${i}`, tasks: i, seconds: 1, how: "alone", class: null }));
  const few = rowsOfKinds({ kinds: many, slowdowns: {} });
  assert.deepEqual([few.length, few[0].kind, few[11].kind, few[0].cells.length], [12, "k8", "k19", 12]);
});

test("a slowdown is the deeper in colour the more it is, up to three times", () => {
  assert.deepEqual([0.5, 1, 1.049, 3, 50].map(depthOf), [0, 0, 0, 1, 1]);
  assert.ok(depthOf(1.05) > 0 && depthOf(1.5) > depthOf(1.2) && depthOf(2.5) < 1);
});

test("figures of kinds say how well times were foreseen, and how many tasks wait", () => {
  assert.deepEqual(figuresOfKinds(TOGETHER), [
    ["2", "kinds of tasks seen"],
    ["12 %", "mean error of foreseen times (MPE)"],
    ["0.051", "error by the range of times (NRMSE)"],
    ["1,200", "tasks wait for room"],
  ]);
  const nothing = { kinds: [], slowdowns: {}, limits: [], mpe: null, nrmse: null, why_not: [] };
  assert.deepEqual(figuresOfKinds({ kept: [], memory: null, neighbours: nothing }), []);
  assert.deepEqual(figuresOfKinds({ kept: [{ waiting: 1 }], memory: null, neighbours: null }), [["1", "task waits for room"]]);
});

test("limits are said in words, of memory and of neighbours", () => {
  const names = { 7: "fit" };
  assert.deepEqual(limitsOf(TOGETHER, (job) => names[job]), [
    { kind: "load", now: "1 runs, 1,200 wait", waits: 1200, limits: [
      ["1 at once on a node beside others, any number alone", "on trial: tries it"],
      ["2 at once on a worker", "one needs 300 MB of 1 GB"],
    ] },
    { kind: "sum", now: "2 run, 0 wait", waits: 0, limits: [["job fit: none on a node beside others, 3 alone", "saves 10%"]] },
  ]);
  const probed = limitsOf({ kept: [{ kind: "new", waiting: 1, in_flight: 1 }], memory: { ...TOGETHER.memory, kinds: [] }, neighbours: null });
  assert.deepEqual(probed, [{ kind: "new", now: "1 runs, 1 waits", waits: 1, limits: [["few at once on a worker", "until one has ended nobody knows what they need"]] }]);
  assert.deepEqual(limitsOf({ kept: [], memory: null, neighbours: null }), []);
});

test("bars of memory: what is taken, one task, the others at once; what was not seen in this program comes last", () => {
  const bars = memoryBars(TOGETHER.memory);
  assert.deepEqual(bars.map((one) => [one.name, one.text, one.isBad]), [
    ["load", "300 MB, 2 at once", false],
    ["sum", "1 MB, one on each thread", false],
    ["old", "2 GB in earlier programs, 1 at once; more than there is", false],
  ]);
  const shares = bars.map(({ base, first, others }) => [base, first, others].map((one) => Math.round(1000 * one)));
  assert.deepEqual(shares, [[100, 300, 300], [100, 1, 0], [100, 900, 0]]);
  const now = TOGETHER.memory.kinds.map((one) => ({ ...one, remembered: false }));
  assert.equal(memoryBars({ ...TOGETHER.memory, kinds: now })[0].isBad, true);
  const [bare] = memoryBars({ worker: null, kinds: [{ kind: "a", peak: 5e6, remembered: false, at_once: null }] });
  assert.deepEqual(bare, { name: "a", base: 0, first: 0, others: 0, text: "5 MB", isBad: false });
});

test("what is not known of kinds is said with the reason", () => {
  const silent = { ...TOGETHER, memory: { ...TOGETHER.memory, why_not: ["no limit"] } };
  assert.deepEqual(unknown(silent), ["Nobody counts how kinds use memory: no perf.", "Not every worker can tell what tasks need: no limit."]);
  assert.deepEqual(unknown({ kept: [], memory: null, neighbours: null }), []);
});

test("a tab is not there while the status has nothing for it", () => {
  assert.deepEqual([null, undefined, [], [1], { kept: [] }].map(isEmpty), [true, true, true, false, false]);
});
