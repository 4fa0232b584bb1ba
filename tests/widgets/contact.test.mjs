// When a view says that what it shows is not the present.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Contact } from "../../dask_hpc/view/kit/shared/contact.js";

/** Looked at every quarter of a second until then. */
function staleAt(contact, from, to, told = "") {
  let found = null;
  for (let now = from; now <= to; now += 250) found = contact.stale(now, told);
  return found;
}

test("two seconds without news are too many", () => {
  const contact = new Contact(0);
  contact.hears({ news: { head: { count: 7 } } }, 1000);
  assert.equal(contact.count, 7);
  assert.equal(staleAt(contact, 0, 2750), null);
  assert.deepEqual(contact.stale(3000, ""), { seconds: 2, why: "the scheduler does not answer" });
  contact.hears({ news: { head: { count: 8 } } }, 3100);
  assert.equal(contact.stale(3100, ""), null);
});

test("what is told to be wrong is said at once, and why", () => {
  const contact = new Contact(0);
  assert.deepEqual(contact.stale(100, "the client was closed"), { seconds: 0, why: "the client was closed" });
});

test("news without a head are none, and the kernel's answer is as old as it says", () => {
  const contact = new Contact(0);
  contact.hears({ answer: 1 }, 900);
  contact.hears({ heard: true, age: 0.5 }, 2000);
  assert.equal(staleAt(contact, 250, 3250), null);
  contact.hears({ heard: true, age: 3 }, 3300);
  assert.equal(contact.stale(3500, "").seconds, 2);
});

test("who asks and is not answered knows that it is the kernel", () => {
  const contact = new Contact(0);
  contact.asks(0);
  contact.asks(1400); // the first question counts
  assert.equal(contact.isDeaf(1499), false);
  assert.equal(contact.isDeaf(1500), true);
  assert.match(staleAt(contact, 0, 2500).why, /kernel does not answer/);
  contact.hears({ heard: true }, 2600);
  assert.equal(contact.isDeaf(9000), false);
  assert.equal(contact.isKnown, true);
});

test("a page that was busy or hidden itself does not blame others", () => {
  const contact = new Contact(0);
  assert.equal(contact.stale(60_000, ""), null);
  assert.equal(staleAt(contact, 60_250, 61_750), null);
  assert.equal(contact.stale(62_000, "").seconds, 2);
  contact.begin(62_100);
  assert.equal(contact.stale(62_200, ""), null);
});
