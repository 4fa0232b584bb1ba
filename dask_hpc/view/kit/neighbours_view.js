// Kinds of tasks that share nodes: how much they slow each other, what they need of a worker's memory, and how
// many at once follow from it.

import { follow } from "./shared/course.js";
import { claim, fill, h } from "./shared/page.js";
import { countOf, showDuration, showLarge } from "./shared/units.js";

const MOST_KINDS = 12; // of the picture, of limits, of bars
const SLIGHT = 1.05; // slowdowns below have no colour: the same task takes now a little more, now less
const DEEPEST = 3; // those from here on have the deepest
const [FEW, UNSURE] = [10, 0.1]; // what fewer tasks say, or is less sure than this share, is marked and has no colour
const OFF = "Kinds of tasks are not watched: policy together keeps them from slowing each other, memory-lanes from needing too much memory.";

/** How deep the colour of a slowdown is, from 0 to 1. */
export function depthOf(ratio) {
  return ratio < SLIGHT ? 0 : Math.min(1, Math.log(ratio) / Math.log(DEEPEST));
}

/** Those that come first in that order, by name: nothing moves while somebody reads. */
function first(all, compare) {
  return [...all].sort((a, b) => compare(a, b) || byName(a, b)).slice(0, MOST_KINDS).sort(byName);
}

function byName(a, b) {
  return a.kind.localeCompare(b.kind, "en", { numeric: true });
}

/** Of the kinds of which most tasks have ended a row each: {kind, alone, how, memoryClass, tasks, cells}. A cell is of
 * a task of the row's kind beside one of each of them: {text, depth, words}. */
export function rowsOfKinds({ kinds, slowdowns }) {
  const chosen = first(kinds, (a, b) => b.tasks - a.tasks);
  return chosen.map((one) => ({
    kind: one.kind,
    alone: showDuration(one.seconds),
    how: one.how === "fastest" ? "none was seen alone: the fastest of them" : `seen ${one.how === "alone" ? "alone" : `with ${one.how}`}`,
    memoryClass: one.class,
    tasks: one.tasks,
    cells: chosen.map((other) => {
      const seen = slowdowns[one.kind]?.[other.kind];
      if (!seen) return { text: "-", depth: 0, words: `${one.kind} was not seen beside ${other.kind}` };
      const isKnown = Math.round(seen.tasks) >= FEW && seen.stderr !== null && seen.stderr <= UNSURE * seen.ratio;
      const times = seen.ratio.toFixed(seen.ratio < 10 ? 2 : 0);
      const unsure = seen.stderr === null ? "" : ` \u00b1 ${seen.stderr.toFixed(2)}`;
      return {
        text: isKnown ? times : `~${times}`,
        depth: isKnown ? depthOf(seen.ratio) : 0,
        words: `${one.kind} takes ${times}${unsure} times as long beside ${other.kind}, by ${countOf(Math.round(seen.tasks), "task")}`,
      };
    }),
  }));
}

/** How well times are foreseen, and what waits, as [value, name]. */
export function figuresOfKinds({ kept, neighbours }) {
  const figures = [];
  if (neighbours?.kinds.length) figures.push([String(neighbours.kinds.length), neighbours.kinds.length === 1 ? "kind of tasks seen" : "kinds of tasks seen"]);
  if (typeof neighbours?.mpe === "number") figures.push([`${Number(neighbours.mpe.toPrecision(2))} %`, "mean error of foreseen times (MPE)"]);
  if (typeof neighbours?.nrmse === "number") figures.push([neighbours.nrmse.toFixed(3), "error by the range of times (NRMSE)"]);
  const waits = kept.reduce((all, one) => all + one.waiting, 0);
  if (kept.length) figures.push([waits.toLocaleString("en"), `${waits === 1 ? "task waits" : "tasks wait"} for room`]);
  return figures;
}

/** Why something is not known. */
export function unknown({ memory, neighbours }) {
  return [
    ...(neighbours?.why_not ?? []).map((why) => `Nobody counts how kinds use memory: ${why}.`),
    ...(memory?.why_not ?? []).map((why) => `Not every worker can tell what tasks need: ${why}.`),
  ];
}

function limitInWords({ job, beside, alone }, nameOf) {
  const few = beside ? `${beside} at once on a node beside others` : "none on a node beside others";
  return `${job ? `job ${nameOf(job)}: ` : ""}${few}, ${alone === null ? "any number" : alone} alone`;
}

/** Kinds that are let pass one by one: {kind, now, waits, limits}; a limit is [words, why]. */
export function limitsOf({ kept, memory, neighbours }, nameOf = (job) => job) {
  const found = new Map();
  const of = (kind) => {
    if (!found.has(kind)) found.set(kind, { kind, now: "", waits: 0, limits: [] });
    return found.get(kind);
  };
  for (const { kind, waiting, in_flight: runs } of kept) {
    Object.assign(of(kind), { waits: waiting, now: `${runs} ${runs === 1 ? "runs" : "run"}, ${waiting.toLocaleString("en")} ${waiting === 1 ? "waits" : "wait"}` });
  }
  for (const one of neighbours?.limits ?? []) of(one.kind).limits.push([limitInWords(one, nameOf), one.is_trial ? `on trial: ${one.reason}` : one.reason]);
  const known = new Map((memory?.kinds ?? []).map((one) => [one.kind, one]));
  for (const one of [...found.values()]) {
    const need = known.get(one.kind);
    if (need && memory.worker && need.at_once < memory.worker.threads) {
      one.limits.push([`${need.at_once} at once on a worker`, `one needs ${showLarge(need.peak, "B")} of ${showLarge(memory.worker.limit, "B")}`]);
    } else if (memory && !need) one.limits.push(["few at once on a worker", "until one has ended nobody knows what they need"]);
  }
  return [...found.values()];
}

/** Of each kind what one needs of the worker that has least for each thread, and the others that run there at the
 * same time: {name, base, first, others, text, isBad}, shares of its limit. Those that need most come first, and
 * last those that were not seen in this program. */
export function memoryBars({ worker, kinds }) {
  // a program that is over needs nothing any more, whatever it did
  const sorted = [...kinds].sort((a, b) => a.remembered - b.remembered || b.peak - a.peak || byName(a, b));
  return sorted.map(({ kind, peak, remembered, at_once: few }) => {
    const need = `${showLarge(peak, "B")}${remembered ? " in earlier programs" : ""}`;
    if (!worker) return { name: kind, base: 0, first: 0, others: 0, text: need, isBad: false };
    const isLimited = few < worker.threads;
    const base = Math.min(1, worker.base / worker.limit);
    const first = Math.min(1 - base, peak / worker.limit);
    const others = Math.min(1 - base - first, isLimited ? ((few - 1) * peak) / worker.limit : 0);
    const isTooMuch = worker.base + peak > worker.limit;
    return { name: kind, base, first, others, text: `${need}, ${isLimited ? `${few} at once` : "one on each thread"}${isTooMuch ? "; more than there is" : ""}`, isBad: isTooMuch && !remembered };
  });
}

function slowdownTable(rows) {
  const hasClass = rows.some((row) => row.memoryClass !== null);
  const named = (kind) => h("span", { title: kind }, kind);
  return h("table", { "aria-label": "slowdowns: rows are slowed, columns are beside them" },
    h("thead", {}, h("tr", {},
      h("th", { scope: "col" }, "kind"), h("th", { scope: "col", class: "dh-n" }, "alone"),
      hasClass ? h("th", { scope: "col", title: "of memory use: I most, V least" }, "class") : null,
      rows.map((row) => h("th", { scope: "col", class: "dh-beside" }, named(row.kind))))),
    h("tbody", {}, rows.map((row) => h("tr", {},
      h("th", { scope: "row", title: `${row.kind}: ${countOf(row.tasks, "task")}` }, row.kind), h("td", { class: "dh-n", title: row.how }, row.alone),
      hasClass ? h("td", {}, row.memoryClass ?? "-") : null,
      row.cells.map(({ text, depth, words }) => {
        const cell = h("td", { class: depth ? "dh-heat" : "dh-cool", title: words }, text);
        if (depth) cell.style.setProperty("--dh-depth", `${Math.round(10 + depth * 45)}%`);
        return cell;
      })))));
}

function limitLine({ kind, now, limits }) {
  return h("div", { class: "dh-line", role: "listitem" },
    h("b", {}, kind), now ? h("span", { class: "dh-note" }, ` ${now}`) : null,
    limits.map(([words, why]) => h("div", {}, words, h("span", { class: "dh-note" }, ` \u00b7 ${why}`))));
}

function memoryBar({ name, base, first, others, text, isBad }) {
  const parts = [["dh-own", base], [isBad ? "dh-slow" : "dh-has", first], ["dh-others", others]].map(([kind, share]) => {
    const part = h("span", { class: kind });
    part.style.width = `${share * 100}%`;
    return part;
  });
  return h("div", { class: "dh-node", role: "listitem", "aria-label": `${name}: ${text}` },
    h("span", { class: "dh-name", title: name }, name), h("span", { class: "dh-bar" }, parts), h("span", { class: `dh-note${isBad ? " dh-bad" : ""}` }, text));
}

/** A part of the view with its own heading, which is there while it has something to show. */
function section(title, body) {
  const note = h("small");
  const element = h("section", { hidden: true, "aria-label": title }, h("h3", {}, title, note), body);
  return {
    element,
    show(said, ...children) {
      element.hidden = !children.flat().length;
      note.textContent = said;
      fill(body, ...children);
    },
  };
}

function render({ model, el }) {
  const names = new Map();
  const words = h("div", { class: "dh-note" });
  const cards = h("div", { class: "dh-row" });
  const notes = h("div", { class: "dh-note" });
  const slowdowns = section("Slowdowns", h("div", { class: "dh-scroll dh-slowdowns", tabindex: "0", role: "group", "aria-label": "slowdowns" }));
  const limits = section("Limits", h("div", { role: "list", "aria-label": "limits in force" }));
  const memory = section("Memory of a worker", h("div", { class: "dh-needs", role: "list", "aria-label": "memory by kind" }));
  claim(el, "dh-neighbours");
  el.append(h("h3", {}, "Neighbours"), words, h("div", { class: "dh-neighbours-body" }, cards, slowdowns.element, limits.element, memory.element, notes));
  let now = null;

  function show() {
    el.hidden = Boolean(model.get("tiles")) && !now;
    words.textContent = now ? (now.kept.length || now.neighbours?.kinds.length || now.memory?.kinds.length ? "" : "No task has ended yet.") : OFF;
    fill(cards, now ? figuresOfKinds(now).map(([value, name]) => h("span", { class: "dh-card" }, h("b", {}, value), ` ${name}`)) : []);
    fill(notes, now ? unknown(now).map((one) => h("div", {}, one)) : []);
    const rows = now?.neighbours ? rowsOfKinds(now.neighbours) : [];
    const count = now?.neighbours?.kinds.length ?? 0;
    slowdowns.show(`${count > rows.length ? `${rows.length} of ${countOf(count, "kind")}; ` : ""}how many times as long as alone a row takes beside a column; "~": not known well, "-": not seen`,
      rows.length ? [slowdownTable(rows)] : []);
    const few = now ? limitsOf(now, (job) => names.get(job) ?? job) : [];
    limits.show(few.length > MOST_KINDS ? `${MOST_KINDS} of ${countOf(few.length, "kind")}` : "", first(few, (a, b) => b.waits - a.waits).map(limitLine));
    const { worker = null, kinds = [] } = now?.memory ?? {};
    const there = worker ? `${showLarge(worker.limit, "B")} for ${countOf(worker.threads, "thread")}, ${showLarge(worker.base, "B")} taken when idle` : "";
    memory.show([there, kinds.length > MOST_KINDS ? `${MOST_KINDS} of ${countOf(kinds.length, "kind")}` : ""].filter(Boolean).join("; "),
      now?.memory ? memoryBars(now.memory).slice(0, MOST_KINDS).map(memoryBar) : []);
  }

  show();
  return follow(model, (news, isWhole) => {
    for (const job of news.jobs ?? []) names.set(job.id, job.name);
    if (isWhole || "together" in news) {
      now = news.together ?? null;
      show();
    }
  });
}

export default { render };
