// Who waits, in a line that opens to the list.

import { colourOf, Numbering } from "./colours.js";
import { follow, forget } from "./course.js";
import { fill, h } from "./page.js";
import { countOf, showDuration } from "./units.js";

const MOST_IN_QUEUE = 40;

/** "2 jobs wait: assembly, 4 nodes: needs 4 nodes, 1 idle"; the first speaks for those behind it. */
export function queueLine(waiting) {
  if (!waiting.length) return "No job waits.";
  const [first] = waiting;
  const why = first.waiting_because ? `: ${first.waiting_because}` : "";
  const count = `${countOf(waiting.length, "job")} ${waiting.length === 1 ? "waits" : "wait"}`;
  return `${count}: ${first.name}, ${countOf(first.asks, "node")}${why}`;
}

/** Those of some jobs that wait, the first to come first. */
export function waitingOf(jobs) {
  return [...jobs].filter((job) => job.state === "waiting").sort((a, b) => a.submitted - b.submitted);
}

/** Keep an element showing the queue of a model. Answers how to end it. */
export function showQueue(model, element) {
  const numbering = new Numbering();
  const jobs = new Map();
  const line = h("summary");
  const list = h("div", { class: "dh-queue dh-scroll", tabindex: "0", role: "group", "aria-label": "Jobs that wait" });
  const whole = h("details", { class: "dh-waiting" }, line, list);
  element.append(whole);
  let now = 0;
  let seen = -Infinity;

  function show() {
    seen = performance.now();
    const waiting = waitingOf(jobs.values());
    line.textContent = queueLine(waiting);
    whole.classList.toggle("dh-none", !waiting.length);
    if (!waiting.length) whole.open = false;
    if (whole.open) fill(list, rows(waiting));
  }

  function rows(waiting) {
    const shown = waiting.slice(0, MOST_IN_QUEUE).map((job) => {
      const chip = h("i", { class: "dh-chip" });
      chip.style.background = colourOf(numbering.of(job.id));
      const why = job.waiting_because ? `: ${job.waiting_because}` : "";
      return h("div", { class: "dh-waits" }, chip, h("b", {}, job.name), ` ${countOf(job.asks, "node")}, since ${showDuration(now - job.submitted)}${why}`);
    });
    return waiting.length > MOST_IN_QUEUE ? [...shown, h("div", {}, `and ${waiting.length - MOST_IN_QUEUE} more`)] : shown;
  }

  whole.addEventListener("toggle", show);
  return follow(model, (news, isWhole) => {
    if (isWhole) jobs.clear();
    numbering.add(news);
    for (const job of news.jobs ?? []) jobs.set(job.id, job);
    forget(jobs);
    if (news.head) now = news.head.time;
    element.hidden = news.head?.state === "simulated";
    if (isWhole || performance.now() - seen > 400) show();
  });
}
