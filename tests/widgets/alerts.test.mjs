// Which alerts are new to whom.

import assert from "node:assert/strict";
import { test } from "node:test";

import { AlertBook, notificationOf } from "../../dask_hpc/view/kit/shared/alerts.js";

const alert = (number, time) => [number, time, "job-failed", `job ${number} failed`, "j"];
const numbers = (rows) => rows.map(([number]) => number);

test("alerts that were there before the page was opened count, and nobody is notified of them", () => {
  const book = new AlertBook();
  assert.deepEqual(book.add({}, true), []);
  assert.deepEqual(book.add({ head: { time: 100 }, alerts: [alert(0, 50), alert(1, 99)] }, true), []);
  assert.equal(book.unseen, 2);
  assert.deepEqual(numbers(book.add({ head: { time: 105 }, alerts: [alert(2, 104)] }, false)), [2]);
  assert.equal(book.unseen, 3);
  book.look();
  assert.equal(book.unseen, 0);
  book.add({ alerts: [alert(3, 106)] }, false);
  assert.equal(book.unseen, 1);
});

test("whoever was told does not hear it again with everything, but of what came meanwhile", () => {
  const book = new AlertBook();
  book.add({ head: { time: 10 }, alerts: [alert(0, 5)] }, true);
  book.add({ alerts: [alert(1, 11)] }, false);
  book.look();
  assert.deepEqual(numbers(book.add({ head: { time: 20 }, alerts: [0, 1, 2].map((one) => alert(one, 11 + one)) }, true)), [2]);
  assert.equal(book.unseen, 1);
  assert.deepEqual(numbers(book.rows), [0, 1, 2]);
});

test("another cluster counts from its beginning", () => {
  const book = new AlertBook();
  book.add({ head: { time: 10 }, alerts: [alert(7, 5)] }, true);
  book.look();
  book.add({ head: { time: 1 }, alerts: [alert(0, 1)] }, true);
  assert.equal(book.unseen, 1);
});

test("the newest hundred are remembered", () => {
  const book = new AlertBook();
  for (let i = 0; i < 130; i += 1) book.add({ head: { time: i }, alerts: [alert(i, i)] }, i === 0);
  assert.deepEqual([book.rows.length, book.rows[0][0], book.unseen], [100, 30, 100]);
});

test("two views of one alert make one notification", () => {
  const [title, options] = notificationOf(alert(3, 1));
  assert.equal(title, "dask-hpc: job failed");
  assert.deepEqual(options, { body: "job 3 failed", tag: "dask-hpc-alert-3" });
  assert.deepEqual(notificationOf(alert(3, 1)), [title, options]);
});
