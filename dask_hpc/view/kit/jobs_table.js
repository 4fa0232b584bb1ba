// A row for each job, and buttons for what can be done about it in its state.

import { Numbering, colourOf } from "./shared/colours.js";
import { follow, forget, isEnd, stateOf } from "./shared/course.js";
import { claim, fill, h, tellWhatCame } from "./shared/page.js";
import { countOf, showDuration } from "./shared/units.js";

const ORDER = { running: 0, waiting: 1 };
const [MOST_DONE, MOST_OF_PAST] = [20, 200];
const EVERY = 500;
/** Name, and whether it is of numbers. */
const COLUMNS = [["job"], ["state"], ["nodes", true], ["progress"], ["left", true], ["efficiency", true]];

/** Jobs in the order in which people look for them: running, waiting, then the newest that are done. */
export function sorted(jobs, most = MOST_DONE) {
  const found = [...jobs].sort(
    (a, b) =>
      (ORDER[a.state] ?? 2) - (ORDER[b.state] ?? 2) ||
      (isOver(a) ? b.ended - a.ended : a.submitted - b.submitted),
  );
  return [...found.filter((job) => !isOver(job)), ...found.filter(isOver).slice(0, most)];
}

function isOver(job) {
  return isEnd(stateOf(job));
}

/** How much of a job is done, from 0 to 1; null as long as nobody knows. One that failed is as far as it came. */
export function share(job) {
  const state = stateOf(job);
  if (state === "done") return 1;
  if (state === "failed" && job.finished_tasks !== undefined) return job.finished_tasks / (job.finished_tasks + job.failed);
  return isEnd(state) ? (job.progress ?? 0) : job.progress;
}

/** "2 of 1 to 4", "3". */
export function sizeOf(job) {
  const now = job.state === "running" ? job.nodes : job.asks;
  return job.min_nodes === job.max_nodes ? String(now) : `${now} of ${job.min_nodes} to ${job.max_nodes}`;
}

/** Share of its time that it computed; null as long as nothing is known. */
export function efficiency(job) {
  const all = job.compute + job.transfer;
  return all > 0 ? job.compute / all : null;
}

/** Seconds until it is expected to end. */
export function left(job, now) {
  if (job.state !== "running") return null;
  if (job.progress > 0 && job.progress < 1 && job.started !== null) {
    return ((now - job.started) / job.progress) * (1 - job.progress);
  }
  return job.expected_end === null ? null : Math.max(0, job.expected_end - now);
}

/** How long it waited and took, and what its last change of size did, as far as it is known. */
export function took(job) {
  const known = (seconds) => seconds !== null && seconds !== undefined;
  const change = job.adaptation;
  return [
    known(job.waited) ? `waited ${showDuration(job.waited)}` : null,
    known(job.response) ? `response ${showDuration(job.response)}` : null,
    known(job.bounded_slowdown) ? `bounded slowdown ${Number(job.bounded_slowdown.toPrecision(3))}` : null,
    change ? `from ${change.from} to ${countOf(change.to, "node")} in ${showDuration(change.total)}` : null,
  ].filter(Boolean).join("; ");
}

/** What can be done about it now: [what, text, hint, more]; nothing in a cluster that is over. */
export function deeds(job, isFixed) {
  const found = [];
  if (isFixed || isOver(job)) return found;
  if (job.state === "running" && ["malleable", "evolving"].includes(job.kind)) {
    if (job.nodes > job.min_nodes) found.push(["resize", "\u2212", "ask for one node less", { nodes: -1 }]);
    if (job.nodes < job.max_nodes) found.push(["resize", "+", "ask for one node more", { nodes: 1 }]);
  }
  if (job.state === "running") found.push(["protect", "Protect", "keep copies of its results on other nodes", {}]);
  if (job.state === "waiting") {
    const isHeld = (job.waiting_because ?? "").startsWith("held:");
    found.push(isHeld ? ["release", "Release", "it may start again", {}] : ["hold", "Hold", "it is not to start", {}]);
  }
  found.push(["cancel", "Cancel", "stop it; what it has done stays", {}]);
  return found;
}

function render({ model, el }) {
  const jobs = new Map();
  const numbering = new Numbering();
  const said = h("div", { role: "status", "aria-live": "polite", class: "dh-note" });
  const body = h("tbody");
  const table = h("div", { class: "dh-scroll", tabindex: "0", "aria-label": "Jobs" },
    h("table", {}, h("thead", {}, h("tr", {}, COLUMNS.map(([name, isNumber]) => h("th", { class: isNumber ? "dh-n" : "" }, name)))), body));
  table.style.maxHeight = `${model.get("height") ?? 360}px`;
  claim(el, "dh-jobs");
  el.append(h("h3", {}, "Jobs"), said, table);
  let now = 0;
  let isFixed = Boolean(model.get("readonly"));
  let isPast = false;
  let seen = 0;
  let timer = 0;
  /** The job that will be cancelled when the button is pressed again. */
  let doomed = null;

  function show() {
    timer = 0;
    seen = performance.now();
    const focused = document.activeElement?.dataset?.deed;
    const rows = sorted(jobs.values(), isPast ? MOST_OF_PAST : MOST_DONE);
    fill(body, rows.length ? rows.flatMap(row) : h("tr", {}, h("td", { colspan: "6", class: "dh-note" }, "No job yet: with dask_hpc.job(...) submits one, and dask-hpc run. Work outside of jobs runs as in plain Dask and is not shown here.")));
    if (focused) body.querySelector(`[data-deed="${CSS.escape(focused)}"]`)?.focus();
  }

  function row(job) {
    const chip = h("i", { class: "dh-chip" });
    chip.style.background = colourOf(numbering.of(job.id));
    const [state, part, well] = [stateOf(job), share(job), efficiency(job)];
    const since = job.started ?? job.submitted;
    const percent = `${Math.round((part ?? 0) * 100)} %`;
    const tasks = [
      job.unfinished_tasks ? countOf(job.unfinished_tasks, "task left", "tasks left") : null,
      job.failed ? h("span", { class: "dh-bad" }, countOf(job.failed, "task failed", "tasks failed")) : null,
    ].filter(Boolean);
    return [
      h("tr", { "data-job": job.id, class: "dh-first" },
        h("td", { title: job.id }, chip, h("b", {}, job.name)),
        h("td", { class: ["failed", "killed"].includes(state) ? "dh-bad" : "", title: took(job) }, state, h("div", { class: "dh-note" }, showDuration((isOver(job) ? job.ended : now) - since))),
        h("td", { class: "dh-n" }, sizeOf(job)),
        h("td", {}, part === null ? "-" : h("progress", { max: "1", value: String(part), title: percent, "aria-label": `${job.name}: ${percent}` }), tasks.map((one) => h("div", { class: "dh-note" }, one))),
        h("td", { class: "dh-n" }, showDuration(left(job, now))),
        h("td", { class: "dh-n" }, well === null ? "-" : `${Math.round(well * 100)} %`)),
      h("tr", {}, h("td", { colspan: "6" }, h("div", { class: "dh-row dh-second" },
        h("span", { class: "dh-note" }, job.waiting_because ?? job.reason),
        h("span", { class: "dh-row" }, deeds(job, isFixed).map((one) => button(job, one)))))),
    ];
  }

  function button(job, [what, text, hint, more]) {
    const isDoomed = what === "cancel" && doomed === job.id;
    return h("button", {
      title: hint, "aria-label": `${job.name}: ${hint}`, "data-deed": `${job.id} ${what} ${text}`,
      class: isDoomed ? "dh-bad" : "",
      onclick: () => {
        if (what === "cancel" && !isDoomed) {
          doomed = job.id;
          setTimeout(() => { doomed = null; soon(); }, 4000);
          return soon();
        }
        doomed = null;
        model.send({ do: what, job: job.id, ...more });
      },
    }, isDoomed ? "Really?" : text);
  }

  function soon() {
    // in a tab that is not seen, nothing is made
    if (!timer && el.offsetParent) timer = setTimeout(show, Math.max(0, EVERY - (performance.now() - seen)));
  }

  const shown = new ResizeObserver(soon);
  shown.observe(el);

  const end = follow(model, (news, isWhole) => {
    if (isWhole) jobs.clear();
    if (news.head) {
      now = news.head.time;
      isPast = news.head.state === "simulated";
      isFixed ||= isPast;
    }
    numbering.add(news);
    for (const job of news.jobs ?? []) jobs.set(job.id, job);
    forget(jobs);
    if (isWhole || news.jobs) soon();
  });
  const quiet = model.get("readonly") ? () => {} : tellWhatCame(model, said);
  return () => {
    end();
    shown.disconnect();
    clearTimeout(timer);
    quiet();
  };
}

export default { render };
