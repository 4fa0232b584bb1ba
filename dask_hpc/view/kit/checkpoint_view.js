// Protected results and their copies: a table, and a bar for each node of what it has and keeps for others.

import { colourOf } from "./shared/colours.js";
import { follow } from "./shared/course.js";
import { claim, fill, h, tellWhatCame } from "./shared/page.js";
import { countOf, showDuration, showLarge } from "./shared/units.js";

const MOST_NODES = 64;

/** Bytes of each node: its own protected results, and copies of those of other nodes, by their node. */
export function bars(nodes) {
  const most = Math.max(1, ...nodes.map((one) => one.own + sum(Object.values(one.kept))));
  return nodes.map((one) => ({
    name: one.name,
    own: one.own / most,
    kept: Object.entries(one.kept).map(([from, nbytes]) => ({ from, nbytes, share: nbytes / most })),
    text: `${showLarge(one.own, "B")} of its own, copies of ${showLarge(sum(Object.values(one.kept)), "B")}`,
  }));
}

/** What is said of one protected thing: how much of it has copies. */
export function coverage(one) {
  const all = one.results ?? one.keys ?? 0;
  return all ? Math.min(1, (one.copied ?? 0) / all) : 1;
}

function sum(values) {
  return values.reduce((all, one) => all + one, 0);
}

function render({ model, el }) {
  const said = h("div", { role: "status", "aria-live": "polite", class: "dh-note" });
  const body = h("div");
  claim(el, "dh-checkpoints");
  el.append(h("h3", {}, "Checkpoints"), said, body);

  function show(found) {
    if (!found) return fill(body, h("div", { class: "dh-note" }, "Nothing is protected: dask_hpc.protect(x, name=\"x\") keeps copies of x on other nodes."));
    const numbers = new Map(found.nodes.map((one, i) => [one.name, i]));
    fill(body,
      h("table", { "aria-label": "protected results" },
        h("thead", {}, h("tr", {}, ["name", "copied", "last commit", "next due", "levels", ""].map((one) => h("th", {}, one)))),
        h("tbody", {}, found.protected.map(protectedRow))),
      h("h3", {}, "Copies by node", h("small", {}, `${countOf(found.levels.partner.copies, "copy").replace("copys", "copies")}, ${showLarge(found.levels.partner.nbytes, "B")}${found.exposed ? `; ${found.exposed} only beside their result` : ""}`)),
      h("div", { role: "list", "aria-label": "copies by node" }, bars(found.nodes).slice(0, MOST_NODES).map((one) => bar(one, numbers))),
      found.nodes.length > MOST_NODES ? h("div", { class: "dh-note" }, `and ${found.nodes.length - MOST_NODES} more nodes`) : null,
      found.versions.length ? versions(found.versions) : null);
  }

  function protectedRow(one) {
    const last = one.last_commit;
    return h("tr", { "data-name": one.name },
      h("td", {}, one.name),
      h("td", {}, h("progress", { max: "1", value: String(coverage(one)), "aria-label": `${one.name}: ${Math.round(coverage(one) * 100)} % has copies` })),
      h("td", {}, last ? `${showDuration(last.ago)} ago, ${showLarge(last.moved, "B")} in ${showDuration(last.seconds)}` : "none yet"),
      h("td", {}, one.next_due === null ? "-" : typeof one.next_due === "number" ? showDuration(one.next_due) : String(one.next_due)),
      h("td", {}, Object.entries(one.every ?? {}).map(([level, every]) => h("div", {}, `${level}: every ${typeof every === "number" ? showDuration(every) : every}`))),
      h("td", {}, h("button", { onclick: () => model.send({ do: "unprotect", name: one.name }) }, "Unprotect")));
  }

  function bar(one, numbers) {
    const parts = [h("span", { class: "dh-own" })];
    parts[0].style.width = `${one.own * 100}%`;
    for (const { from, share, nbytes } of one.kept) {
      const part = h("span", { class: "dh-kept", title: `${showLarge(nbytes, "B")} of ${from || "nobody who is there"}` });
      part.style.width = `${share * 100}%`;
      part.style.background = colourOf(numbers.get(from) ?? 0);
      parts.push(part);
    }
    return h("div", { class: "dh-node", role: "listitem", "aria-label": `${one.name}: ${one.text}` }, h("span", { class: "dh-name" }, one.name), h("span", { class: "dh-bar" }, parts), h("span", { class: "dh-note" }, one.text));
  }

  function versions(found) {
    return h("table", { "aria-label": "versions" },
      h("thead", {}, h("tr", {}, ["checkpoint", "version", "size", "levels"].map((one) => h("th", {}, one)))),
      h("tbody", {}, found.toReversed().slice(0, 12).map((one) => h("tr", {}, h("td", {}, one.name), h("td", { class: "dh-n" }, String(one.version)), h("td", { class: "dh-n" }, one.nbytes === null ? "-" : showLarge(one.nbytes, "B")), h("td", {}, one.levels.join(", "))))));
  }

  show(null);
  const end = follow(model, (news, isWhole) => {
    if (isWhole || "checkpoint" in news) show(news.checkpoint ?? null);
  });
  const quiet = tellWhatCame(model, said);
  return () => {
    end();
    quiet();
  };
}

export default { render };
