import assert from "node:assert/strict";
import { test } from "node:test";

import { Order, forget, follow } from "../../dask_hpc/view/kit/shared/course.js";

globalThis.document = { visibilityState: "hidden", addEventListener() {}, removeEventListener() {} };

/** What a page sends and takes, and how it is told something; it ends with its test. */
function page(t) {
  const [sent, taken] = [[], []];
  let tell = null;
  const model = {
    get: () => ({}),
    send: (message) => sent.push(message.do),
    on: (_, heard) => (tell = heard),
    off: () => {},
  };
  t.after(follow(model, (news, isWhole) => taken.push([news.head?.count, isWhole])));
  return { sent, taken, tell: (message) => tell(message) };
}

function at(count) {
  return { head: { count } };
}

test("answers are taken in order, each once", () => {
  const order = new Order();
  assert.equal(order.place(at(7)), "next");
  order.took(at(7));
  assert.deepEqual([7, 8, 9].map((count) => order.place(at(count))), ["old", "next", "gap"]);
  assert.equal(order.place({ problem: "no answer" }), "next");
});

test("a page that comes back behind asks for everything once, and goes on from there", (t) => {
  const { sent, taken, tell } = page(t);
  tell({ whole: at(1) });
  for (let count = 100; count < 700; count += 1) tell({ news: at(count) });
  assert.deepEqual(sent, ["whole", "whole"], "one as it opens, one for all the gaps");
  tell({ whole: at(700) });
  tell({ news: at(700) });
  tell({ news: at(701) });
  tell({ news: at(703) });
  assert.deepEqual(taken, [[undefined, true], [1, true], [700, true], [701, false]]);
  assert.equal(sent.length, 3, "another gap, another question");
});

test("an answer that was lost is asked for again", () => {
  const order = new Order();
  assert.deepEqual([0, 100, 4999, 5000].map((now) => order.asks(now)), [true, false, false, true]);
});

test("another course may count from its beginning", (t) => {
  const { taken, tell } = page(t);
  tell({ whole: at(500) });
  tell({ whole: at(1) });
  tell({ news: at(2) });
  assert.deepEqual(taken.slice(1), [[500, true], [1, true], [2, false]]);
});

test("a page that is open for weeks forgets jobs that are done", () => {
  const jobs = new Map([["a", { state: "running" }], ["b", { state: "done" }], ["c", { state: "done" }], ["d", { state: "done" }]]);
  forget(jobs, 2);
  assert.deepEqual([...jobs.keys()], ["a", "d"]);
});
