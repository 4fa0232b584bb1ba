// Two runs on one axis.

import assert from "node:assert/strict";
import { test } from "node:test";

import { PowerOf, powerTip, together, wholeWindow } from "../../dask_hpc/view/kit/compare.js";
import { Model } from "../../dask_hpc/view/kit/shared/document.js";

const over = (begin, time) => ({ begin, time, state: "simulated" });

function power(samples, head) {
  const found = new PowerOf();
  found.add({ head, samples });
  return found;
}

test("all that there is to see is from the first begin to the last end", () => {
  assert.deepEqual(wholeWindow([over(10, 50), over(30, 90)]), [10, 90]);
  assert.deepEqual(wholeWindow([over(0, 0), over(0, 0)]), [0, 1]);
  // what goes on is seen as far back as the other is long, or as usual
  assert.deepEqual(wholeWindow([{ begin: 0, time: 9000, state: "on" }, over(8990, 9100)]), [8400, 9100]);
  assert.deepEqual(wholeWindow([{ begin: 0, time: 9000, state: "on" }, over(9000, 12000)]), [6000, 12000]);
});

test("power of both at a time, and how much more the second draws", () => {
  const powers = [power([[0, 1000], [10, 2000]], over(0, 20)), power([[5, 500]], over(5, 15))];
  const at = (time) => powerTip(powers, ["a", "b"], time, String);
  assert.deepEqual(at(-1), null);
  assert.deepEqual(at(3), ["3", "a: 1 kW", "b: -"]);
  assert.deepEqual(at(10), ["10", "a: 2 kW", "b: 500 W", "\u22121.5 kW"]);
  assert.deepEqual(at(16), ["16", "a: 2 kW", "b: -"]);
  assert.equal(powers[0].most, 2000);
  assert.equal(power([[0, 1, 0, 3000]], over(0, 1)).most, 3000);
});

test("what one sets, all have, and nothing chosen is everything", () => {
  const models = [new Model({}), new Model({}), new Model({})];
  const end = together(models, (name, value) => (name === "window" ? value ?? [0, 100] : value));
  const all = (name) => models.map((one) => one.get(name));
  models[1].set("window", [3, 9]);
  assert.deepEqual(all("window"), [[3, 9], [3, 9], [3, 9]]);
  models[2].set("window", null);
  assert.deepEqual(all("window"), [[0, 100], [0, 100], [0, 100]]);
  models[0].set("cursor", 7);
  assert.deepEqual(all("cursor"), [7, 7, 7]);
  models[1].set("cursor", null);
  assert.deepEqual(all("cursor"), [null, null, null]);
  end();
  models[0].set("cursor", 8);
  assert.deepEqual(all("cursor"), [8, null, null]);
});
