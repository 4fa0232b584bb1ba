// Protected results and their copies: a table, and a bar for each node of what it has and keeps for others.

import { colourOf } from "./shared/colours.js";
import { follow } from "./shared/course.js";
import { claim, deeds, fill, h, tellWhatCame } from "./shared/page.js";
import { countOf, showDuration, showLarge } from "./shared/units.js";

const MOST_NODES = 64;
const MOST_PROTECTED = 30;

/** How checkpoints are, as [value, name, is it bad]. */
export function figuresOf(found) {
  const { protected: kept, agents, store, counts, levels } = found;
  const [keys, copied] = [sum(kept.map((one) => one.keys)), sum(kept.map((one) => one.copied))];
  const figures = [[`${copied} of ${keys}`, "protected results have a copy", false]];
  for (const [name, level] of Object.entries(levels)) {
    if (!level.copies && name !== "partner") continue;
    const where = name === "partner" ? "on other nodes" : `of them on ${name}`;
    figures.push([showLarge(level.nbytes, "B"), `${countOf(level.copies, "copy", "copies")} ${where}`, false]);
  }
  const [budget, used] = [sum(agents.map((one) => one.budget)), sum(agents.map((one) => one.used))];
  if (budget > 0) figures.push([`${Math.round((used / budget) * 100)} %`, `of ${showLarge(budget, "B")} that agents may use`, used > 0.9 * budget]);
  const last = found.last_commit;
  if (last) {
    const same = last.unchanged ? `, ${showLarge(last.unchanged, "B")} unchanged` : "";
    figures.push([`${showDuration(Math.round(last.ago))} ago`, `last commit: ${showDuration(last.seconds)}, ${showLarge(last.moved, "B")} moved${same}`, false]);
  }
  const due = kept.map((one) => one.next_due).filter((one) => typeof one === "number");
  if (due.length) figures.push([showDuration(Math.round(Math.max(0, Math.min(...due)))), "until the next commit", false]);
  if (store.problem) figures.push(["no store", `it cannot be used: ${store.problem}`, true]);
  else if (store.waiting) figures.push([showLarge(store.waiting, "B"), "on their way to the store", false]);
  if (found.exposed) figures.push([String(found.exposed), "results have copies on their own node only", true]);
  if (counts.unrecovered) figures.push([String(counts.unrecovered), "results without an intact copy", true]);
  return figures;
}

/** Whether anything is or was protected: agents may be there for others. */
export function isUsed({ protected: kept, versions, counts }) {
  return Boolean(kept.length || versions.length || counts.commits || counts.recoveries);
}

/** In words, what happened so far. */
export function happened(counts) {
  return [
    countOf(counts.commits, "commit"),
    `${showLarge(counts.moved, "B")} moved`,
    counts.unchanged ? `${showLarge(counts.unchanged, "B")} unchanged` : "",
    counts.failed ? `${countOf(counts.failed, "copy", "copies")} not made` : "",
    `${countOf(counts.recoveries, "recovery", "recoveries")} of ${countOf(counts.recovered, "result")}`,
    counts.damaged ? `${countOf(counts.damaged, "copy", "copies")} unreadable` : "",
  ].filter(Boolean).join(", ");
}

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
  const isFixed = Boolean(model.get("readonly"));
  const said = h("div", { role: "status", "aria-live": "polite", class: "dh-note" });
  const body = h("div", { class: "dh-checkpoints-body" });
  claim(el, "dh-checkpoints");
  el.append(h("h3", {}, "Checkpoints"), said, deeds({}, body));

  function show(found) {
    el.hidden = Boolean(model.get("tiles")) && !found;
    if (!found) return fill(body, h("div", { class: "dh-note" }, "Nothing is protected: dask_hpc.protect(x, name=\"x\") keeps copies of x on other nodes."));
    const focused = body.contains(document.activeElement) ? document.activeElement.dataset.unprotects : undefined;
    const numbers = new Map(found.nodes.map((one, i) => [one.name, i]));
    fill(body,
      h("div", { class: "dh-row" }, figuresOf(found).map(([value, name, isBad]) => h("span", { class: `dh-card${isBad ? " dh-bad" : ""}` }, h("b", {}, value), ` ${name}`))),
      h("div", { class: "dh-note" }, happened(found.counts)),
      h("table", { "aria-label": "protected results" },
        h("thead", {}, h("tr", {}, ["name", "copied", "last commit", "next due", "levels", ""].map((one) => h(one ? "th" : "td", {}, one)))),
        h("tbody", {}, found.protected.slice(-MOST_PROTECTED).toReversed().flatMap(protectedRow))),
      h("h3", {}, "Copies by node", h("small", {}, `${countOf(found.levels.partner?.copies ?? 0, "copy", "copies")}, ${showLarge(found.levels.partner?.nbytes ?? 0, "B")}${found.exposed ? `; ${found.exposed} only beside their result` : ""}`)),
      h("div", { role: "list", "aria-label": "copies by node" }, bars(found.nodes).slice(0, MOST_NODES).map((one) => bar(one, numbers))),
      found.nodes.length > MOST_NODES ? h("div", { class: "dh-note" }, `and ${found.nodes.length - MOST_NODES} more nodes`) : null,
      found.versions.length ? versions(found.versions) : null);
    if (focused !== undefined) body.querySelector(`[data-unprotects="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  function protectedRow(one) {
    const last = one.last_commit;
    const row = h("tr", { "data-name": one.name },
      h("td", {}, one.name),
      h("td", {}, h("progress", { max: "1", value: String(coverage(one)), "aria-label": `${one.name}: ${Math.round(coverage(one) * 100)} % has copies` }), h("div", { class: coverage(one) < 1 ? "dh-bad" : "dh-note" }, `${one.copied} of ${one.keys}, ${showLarge(one.nbytes, "B")}`)),
      h("td", {}, last ? `${showDuration(last.ago)} ago, ${showLarge(last.moved, "B")} in ${showDuration(last.seconds)}` : "none yet"),
      h("td", {}, one.next_due === null ? "-" : typeof one.next_due === "number" ? showDuration(one.next_due) : String(one.next_due)),
      h("td", {}, Object.entries(one.every ?? {}).map(([level, every]) => h("div", {}, `${level}: every ${typeof every === "number" ? showDuration(every) : every}`))),
      h("td", {}, isFixed ? null : h("button", { "aria-label": `${one.name}: its copies are not kept any longer`, "data-unprotects": one.name, onclick: () => model.send({ do: "unprotect", name: one.name }) }, "Unprotect")));
    return one.why ? [row, h("tr", {}, h("td", { colspan: "6", class: "dh-note" }, one.why))] : [row];
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
    if (isWhole || "checkpoint" in news) show(news.checkpoint && isUsed(news.checkpoint) ? news.checkpoint : null);
  });
  const quiet = isFixed || model.get("beside") ? () => {} : tellWhatCame(model, said);
  return () => {
    end();
    quiet();
  };
}

export default { render };
