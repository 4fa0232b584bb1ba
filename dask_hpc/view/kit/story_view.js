// Decisions and events, newest first, with a search and the whole reason of any row.

import { Numbering, colourOf } from "./shared/colours.js";
import { follow, isEnd, stateOf } from "./shared/course.js";
import { onTheWall } from "./shared/moment.js";
import { claim, fill, h } from "./shared/page.js";
import { arrange, pointing, whileSeen } from "./shared/table.js";
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
    const text = `${wordFor(decision)[0]} ${nameOf(job)} ${job} ${reason}`.toLowerCase();
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

/** A row's word, and whether it is bad: [word, is it bad]. ended is how its job is now, if it is over. */
export function wordFor(decision, ended) {
  if (decision === "fail") return ["failed", true];
  if (decision === "lost") return [decision, true];
  return decision === "end" && ["failed", "cancelled", "killed"].includes(ended) ? [`end, ${ended}`, ended !== "cancelled"] : [decision, false];
}

function render({ model, el }) {
  let rows = [];
  const names = new Map();
  const ended = new Map();
  const lines = new Map();
  const numbering = new Numbering();
  const opened = new Map();
  let signs = {};
  let isOver = false;
  let epoch = null;
  const search = h("input", {
    type: "search", class: "dh-search", placeholder: "search: job, decision, reason", "aria-label": "search the story", value: model.get("search") ?? "",
    oninput: () => {
      model.set("search", search.value);
      model.save_changes();
      drawn.now();
    },
  });
  const note = h("small");
  const list = h("div", { class: "dh-scroll dh-list dh-story-rows", role: "list", "aria-label": "The story, newest first", onkeydown: step });
  list.style.setProperty("--dh-height", `${model.get("height") ?? 360}px`);
  claim(el, "dh-story");
  el.append(h("h3", {}, "Story", note), h("div", { class: "dh-row dh-tools" }, search), list);

  const nameOf = (job) => names.get(job) ?? job;
  const drawn = whileSeen(el, EVERY, show);

  function show() {
    const wanted = found(rows, search.value, nameOf);
    note.textContent = wanted.length > SHOWN ? `${SHOWN} newest of ${countOf(wanted.length, "row")}` : countOf(wanted.length, "row");
    arrange(list, lines, wanted.slice(0, SHOWN), ([number]) => number, line);
    highlight();
  }

  /** A row that stays the same element: who reads it goes on reading, whatever comes above. */
  function line(row) {
    const [number, time, decision, job, nodes, reason] = row;
    const chip = job ? h("i", { class: "dh-chip" }) : null;
    const [clock, sign, name, why] = [h("span", { class: "dh-n" }, showClock(time)), h("b"), h("span"), h("div")];
    const opener = h("button", { class: "dh-plain", "data-number": String(number), disabled: isOver, onclick: () => toggle(number) },
      clock, " ", sign, " ", chip, name, nodes ? ` \u00b7 ${countOf(nodes, "node")}` : "");
    const wall = h("span", { class: "dh-note dh-wall" });
    const element = h("div", { class: "dh-line", role: "listitem", "data-of": job || false }, opener, wall, h("div", { class: "dh-note" }, reason), why);
    if (job) pointing(model, element, () => job);
    let before = "";
    const update = () => {
      const [word, isBad] = wordFor(decision, ended.get(job));
      const isOpen = opened.has(number);
      const said = JSON.stringify([word, nameOf(job), signs[decision], epoch !== null, isOpen, isOpen && opened.get(number), numbering.of(job)]);
      if (said === before) return;
      before = said;
      if (chip) chip.style.background = colourOf(numbering.of(job));
      sign.textContent = `${signs[decision] ?? "\u00b7"} ${word}`;
      sign.className = isBad ? "dh-bad" : "";
      name.textContent = nameOf(job);
      wall.textContent = onTheWall(epoch, time);
      opener.setAttribute("aria-expanded", String(isOpen));
      fill(why, isOpen ? detail(number) : null);
    };
    return { element, update };
  }

  function highlight() {
    const job = model.get("pointed") ?? null;
    for (const { element } of lines.values()) element.classList.toggle("dh-pointed", job !== null && element.dataset.of === job);
  }

  model.on("change:pointed", highlight);

  /** Up and down from row to row. */
  function step(event) {
    const way = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const row = way && event.target.closest?.(".dh-line");
    if (!row) return;
    event.preventDefault();
    row[way]?.querySelector("button").focus();
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
    drawn.now();
  }

  const heard = (message) => {
    if (message.why === undefined || !opened.has(message.why)) return;
    opened.set(message.why, message.row);
    drawn.now();
  };

  const end = follow(model, (news, isWhole) => {
    if (isWhole) {
      rows = [];
      lines.clear();
      fill(list);
    }
    for (const job of news.jobs ?? []) {
      names.set(job.id, job.name);
      if (isEnd(stateOf(job))) ended.set(job.id, stateOf(job));
    }
    numbering.add(news);
    if (news.signs) signs = news.signs;
    if (news.head) {
      isOver = news.head.state === "simulated";
      epoch = news.head.epoch ?? null;
    }
    if (news.story) rows.push(...news.story);
    if (rows.length > KEPT) rows.splice(0, rows.length - KEPT);
    if (isWhole || news.story || news.jobs) drawn.soon();
  });
  model.on("msg:custom", heard);
  return () => {
    end();
    drawn.end();
    model.off("change:pointed", highlight);
    model.off("msg:custom", heard);
  };
}

export default { render };
