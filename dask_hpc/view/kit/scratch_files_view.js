// Scratch files in the memory of nodes: of each file system how it is and how fast, and a bar for each node of the
// blocks that it keeps.

import { follow } from "./shared/course.js";
import { claim, fill, h } from "./shared/page.js";
import { countOf, showLarge } from "./shared/units.js";

const MOST = 12; // file systems
const MOST_NODES = 64; // of each
const OFF = 0.1; // share of what is recommended by which operations may be slower

/** How a file system is, as [value, name, is it bad]. */
export function figuresOf(one) {
  const missing = Math.max(0, (one.wanted ?? 0) - one.nodes.length);
  const figures = [
    [showLarge(one.nbytes, "B"), `in ${countOf(one.files, "file")}`, false],
    [String(one.nodes.length), `${one.nodes.length === 1 ? "node keeps" : "nodes keep"} them${missing ? `; ${missing} more when they come` : ""}`, false],
  ];
  if (one.writers) figures.push([String(one.writers), one.writers === 1 ? "file is being written" : "files are being written", false]);
  for (const { to, files, done } of one.staging) figures.push([`${done} of ${files}`, `files copied to ${to}`, false]);
  if (one.store_problem) figures.push(["no store", `it cannot be written: ${one.store_problem}`, true]);
  else if (one.to_store) figures.push([String(one.to_store), `${one.to_store === 1 ? "file" : "files"} on the way to the store`, false]);
  if (one.lost) figures.push([String(one.lost), `${one.lost === 1 ? "block" : "blocks"} lost`, true]);
  return figures;
}

/** How fast operations are: share of the bar, where on it is what is recommended, words, is it bad; null if
 * nothing is known. */
export function speedOf({ throughput, settings: { recommended } }) {
  if (throughput === null && !recommended) return null;
  const most = Math.max(throughput ?? 0, recommended) || 1;
  const said = [throughput === null ? "" : showLarge(throughput, "B/s"), recommended ? `${showLarge(recommended, "B/s")} recommended` : ""];
  return {
    share: (throughput ?? 0) / most,
    mark: recommended ? recommended / most : null,
    text: said.filter(Boolean).join(", "),
    isBad: throughput !== null && throughput < (1 - OFF) * recommended,
  };
}

/** Of each node its blocks, as a share of those of the one that has most, by name. */
export function barsOf(nodes) {
  const most = Math.max(1, ...nodes.map((one) => one.blocks));
  const sorted = [...nodes].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  return sorted.map((one) => ({ name: one.name, share: one.blocks / most, text: countOf(one.blocks, "block") }));
}

function bar({ name, share, text, mark = null, isBad = false }) {
  const filled = h("span", { class: isBad ? "dh-slow" : "dh-has" });
  filled.style.width = `${share * 100}%`;
  const parts = [filled];
  if (mark !== null) {
    parts.push(h("i", { class: "dh-mark", title: "recommended" }));
    parts[1].style.left = `calc(${mark * 100}% - ${mark * 2}px)`;
  }
  return h("div", { class: "dh-node", role: "listitem", "aria-label": `${name}: ${text}` },
    h("span", { class: "dh-name" }, name), h("span", { class: "dh-bar" }, parts), h("span", { class: `dh-note${isBad ? " dh-bad" : ""}` }, text));
}

function fileSystem(one) {
  const speed = speedOf(one);
  const bars = barsOf(one.nodes).slice(0, MOST_NODES).map(bar);
  return h("div", { "data-name": one.name },
    h("h3", {}, one.name, h("small", {}, one.state)),
    h("div", { class: "dh-row" }, figuresOf(one).map(([value, name, isBad]) => h("span", { class: `dh-card${isBad ? " dh-bad" : ""}` }, h("b", {}, value), ` ${name}`))),
    speed ? h("div", { role: "list", "aria-label": `${one.name}: speed of operations` }, bar({ name: "throughput", ...speed })) : null,
    h("div", { role: "list", "aria-label": `${one.name}: blocks by node` }, bars),
    one.nodes.length > MOST_NODES ? h("div", { class: "dh-note" }, `and ${one.nodes.length - MOST_NODES} more nodes`) : null);
}

function render({ model, el }) {
  const note = h("small");
  const body = h("div", { class: "dh-scratch-body" });
  claim(el, "dh-scratch");
  el.append(h("h3", {}, "Scratch files", note), body);

  function show(found) {
    el.hidden = Boolean(model.get("tiles")) && !found.length;
    note.textContent = found.length > MOST ? `${MOST} of ${countOf(found.length, "file system")}` : "";
    fill(body, found.length
      ? found.slice(0, MOST).map(fileSystem)
      : h("div", { class: "dh-note" }, "No file system in memory: dask_hpc.MemoryFiles(\"scratch\") makes one."));
  }

  show([]);
  return follow(model, (news, isWhole) => {
    if (isWhole || "files" in news) show(news.files ?? []);
  });
}

export default { render };
