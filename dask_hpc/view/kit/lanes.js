// File systems: how many tasks read at once, how fast, and why so many.

import { follow } from "./shared/course.js";
import { claim, fill, h } from "./shared/page.js";
import { countOf } from "./shared/units.js";

const MOST = 20;
const HEADS = ["file system", "reads at once", "wait", "done", "per second", "why"];

/** Cells of each lane, those with most reads first. */
export function rowsOf(lanes) {
  const sorted = [...lanes].sort((a, b) => b.done - a.done || (a.file_system < b.file_system ? -1 : 1));
  return sorted.slice(0, MOST).map((one) => [
    one.file_system,
    `${one.in_flight} (${one.limit === null ? "no limit" : `at most ${one.limit}`})`,
    one.waiting,
    one.done,
    one.reads_per_second === null ? "-" : Number(one.reads_per_second.toPrecision(3)),
    one.reason,
  ].map(String));
}

function render({ model, el }) {
  const body = h("div");
  const note = h("small");
  claim(el, "dh-lanes");
  el.append(h("h3", {}, "File systems", note), body);

  function show(lanes) {
    el.hidden = Boolean(model.get("tiles")) && !lanes.length;
    note.textContent = lanes.length > MOST ? `${MOST} of ${countOf(lanes.length, "file system")}` : "";
    fill(body, lanes.length
      ? h("table", {}, h("tr", {}, HEADS.map((one) => h("th", {}, one))), rowsOf(lanes).map((row) => h("tr", {}, row.map((one) => h("td", {}, one)))))
      : h("div", { class: "dh-note" }, "No task in a lane: limits are set by hpc.io-lanes, or found by the policy io-lanes."));
  }

  show([]);
  return follow(model, (news, isWhole) => {
    if (isWhole || news.lanes) show(news.lanes ?? []);
  });
}

export default { render };
