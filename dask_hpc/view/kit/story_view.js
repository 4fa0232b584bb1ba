// Decisions and events, newest first, with a search and the whole reason of any row.

import { Numbering, colourOf } from "./shared/colours.js";
import { follow, stateOf } from "./shared/course.js";
import { claim, fill, h } from "./shared/page.js";
import { countOf, showClock } from "./shared/units.js";

const KEPT = 2000;
const SHOWN = 200;
const EVERY = 300;

/** Rows that have all words that are searched for, newest first. */
export function found(rows, search, nameOf) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const result = [];
  for (let i = rows.length - 1; i >= 0; i -= 1) {
    const [, , decision, job, , reason] = rows[i];
    const text = `${decision} ${nameOf(job)} ${job} ${reason}`.toLowerCase();
    if (words.every((word) => text.includes(word))) result.push(rows[i]);
  }
  return result;
}

/** What is said of a row that is opened: [head, text]. */
export function reasons(row) {
  if (!row) return [["", "it is not remembered any more"]];
  const inputs = Object.entries(row.inputs ?? {}).map(([name, value]) => `${name} ${value}`);
  return [
    ["rule", row.rule],
    ["looked at", inputs.join(", ")],
    ["not done instead", (row.rejected ?? []).join("; ")],
    ["nodes", (row.nodes ?? []).join(", ")],
  ].filter(([, text]) => text);
}

function render({ model, el }) {
  let rows = [];
  const names = new Map();
  const failed = new Set();
  const numbering = new Numbering();
  const opened = new Map();
  let timer = 0;
  let seen = 0;
  let signs = {};
  let isOver = false;
  const search = h("input", {
    type: "search", placeholder: "search: job, decision, reason", "aria-label": "search the story", value: model.get("search") ?? "",
    oninput: () => {
      model.set("search", search.value);
      model.save_changes();
      show();
    },
  });
  const note = h("small");
  const list = h("div", { class: "dh-scroll dh-story-rows", tabindex: "0", role: "list", "aria-label": "The story, newest first" });
  list.style.maxHeight = `${model.get("height") ?? 360}px`;
  claim(el, "dh-story");
  el.append(h("h3", {}, "Story", note), search, list);

  const nameOf = (job) => names.get(job) ?? job;

  function show() {
    timer = 0;
    seen = performance.now();
    const wanted = found(rows, search.value, nameOf);
    note.textContent = wanted.length > SHOWN ? `${SHOWN} newest of ${countOf(wanted.length, "row")}` : countOf(wanted.length, "row");
    const focused = document.activeElement?.dataset?.number;
    fill(list, wanted.slice(0, SHOWN).map(line));
    if (focused) list.querySelector(`[data-number="${focused}"]`)?.focus();
  }

  function line([number, time, decision, job, nodes, reason]) {
    const chip = job ? h("i", { class: "dh-chip" }) : null;
    const isBad = decision === "end" && failed.has(job);
    if (chip) chip.style.background = colourOf(numbering.of(job));
    return h("div", { class: "dh-line", role: "listitem" },
      h("button", { class: "dh-plain", "data-number": String(number), "aria-expanded": String(opened.has(number)), disabled: isOver, onclick: () => toggle(number) },
        h("span", { class: "dh-n" }, showClock(time)), " ", h("b", { class: isBad ? "dh-bad" : "" }, `${signs[decision] ?? "\u00b7"} ${decision}${isBad ? ", failed" : ""}`), " ", chip, nameOf(job), nodes ? ` \u00b7 ${countOf(nodes, "node")}` : ""),
      h("div", { class: "dh-note" }, reason),
      opened.has(number) ? detail(number) : null);
  }

  function detail(number) {
    const row = opened.get(number);
    if (row === undefined) return h("div", { class: "dh-note" }, "\u2026");
    return h("dl", { class: "dh-why" }, reasons(row).flatMap(([head, text]) => [h("dt", {}, head), h("dd", {}, text)]));
  }

  function toggle(number) {
    if (opened.has(number)) opened.delete(number);
    else {
      opened.set(number, undefined);
      model.send({ do: "why", number });
    }
    show();
  }

  function soon() {
    // in a tab that is not seen, nothing is made
    if (!timer && el.offsetParent) timer = setTimeout(show, Math.max(0, EVERY - (performance.now() - seen)));
  }

  const shown = new ResizeObserver(soon);
  shown.observe(el);

  const heard = (message) => {
    if (message.why === undefined || !opened.has(message.why)) return;
    opened.set(message.why, message.row);
    show();
  };

  const end = follow(model, (news, isWhole) => {
    if (isWhole) rows = [];
    for (const job of news.jobs ?? []) {
      names.set(job.id, job.name);
      if (stateOf(job) === "failed") failed.add(job.id);
    }
    numbering.add(news);
    if (news.signs) signs = news.signs;
    if (news.head) isOver = news.head.state === "simulated";
    if (news.story) rows.push(...news.story);
    if (rows.length > KEPT) rows.splice(0, rows.length - KEPT);
    if (isWhole || news.story || news.jobs) soon();
  });
  model.on("msg:custom", heard);
  return () => {
    end();
    shown.disconnect();
    clearTimeout(timer);
    model.off("msg:custom", heard);
  };
}

export default { render };
