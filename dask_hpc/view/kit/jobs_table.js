// A row for each job, and buttons for what can be done about it in its state.

import { Numbering, colourOf } from "./shared/colours.js";
import { follow, forget, isEnd, stateOf } from "./shared/course.js";
import { onTheWall } from "./shared/moment.js";
import { claim, csvOf, h, saveAs, tellWhatCame } from "./shared/page.js";
import { Table, whileSeen } from "./shared/table.js";
import { countOf, showClock, showDuration, showLarge } from "./shared/units.js";

const ORDER = { running: 0, waiting: 1 };
const EVERY = 500;
const NONE = "No job yet: with dask_hpc.job(...) submits one, and dask-hpc run. Work outside of jobs runs as in plain Dask and is not shown here.";

/** Jobs in the order in which people look for them: running, waiting, then the newest that are over. */
export function sorted(jobs) {
  return [...jobs].sort(
    (a, b) =>
      (ORDER[a.state] ?? 2) - (ORDER[b.state] ?? 2) ||
      (isOver(a) ? b.ended - a.ended : a.submitted - b.submitted),
  );
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

/** Seconds of its walltime that are left, below 0 when it is over; all of them while it waits. */
export function walltimeLeft(job, now) {
  if (typeof job.walltime !== "number" || isOver(job)) return null;
  return job.state === "running" && typeof job.started === "number" ? job.started + job.walltime - now : job.walltime;
}

/** "3.5 min", "over by 2 min". */
export function showWalltime(seconds) {
  const whole = seconds === null ? null : Math.round(seconds);
  return whole !== null && whole < 0 ? `over by ${showDuration(-whole)}` : showDuration(whole);
}

/** "0.25", "1,250"; null as long as nothing is known. */
export function showNodeHours(seconds) {
  if (typeof seconds !== "number") return null;
  const hours = seconds / 3600;
  if (hours > 0 && hours < 0.001) return "< 0.001";
  return hours < 1000 ? String(Number(hours.toPrecision(3))) : Math.round(hours).toLocaleString("en");
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

/** What is said below a job: tasks that raised, and why it is as it is: [text, is it bad]. */
export function saidOf(job) {
  const raised = job.failed ? [`${countOf(job.failed, "task failed", "tasks failed")}${job.error ? `: ${job.error}` : ""}`, true] : null;
  const why = (job.state === "waiting" ? job.waiting_because : null) ?? (raised && isOver(job) ? null : job.reason);
  return [raised, why ? [why, false] : null].filter(Boolean);
}

/** What can be done about it now: [what, text, hint, more]; nothing in a cluster that is over. */
export function offersFor(job, isFixed) {
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

/** What a search finds a job by. */
export function wordsOf(job) {
  const held = (job.waiting_because ?? "").startsWith("held:") ? "held" : "";
  return [job.name, job.user, stateOf(job), held, job.kind, job.id].filter(Boolean).join(" ");
}

/** "3 running, 1 failed". */
export function countsOf(jobs) {
  const counts = new Map([["running", 0], ["waiting", 0]]);
  for (const job of jobs) counts.set(stateOf(job), (counts.get(stateOf(job)) ?? 0) + 1);
  return [...counts].filter(([, count]) => count).map(([state, count]) => `${count.toLocaleString("en")} ${state}`).join(", ");
}

/** Jobs as a file for a spreadsheet: plain numbers, in seconds and joules. */
export function jobsCsv(rows) {
  const columns = [
    ["id", (job) => job.id], ["job", (job) => job.name], ["user", (job) => job.user], ["state", stateOf], ["kind", (job) => job.kind],
    ["nodes", (job) => job.nodes], ["asked_nodes", (job) => job.asks], ["min_nodes", (job) => job.min_nodes], ["max_nodes", (job) => job.max_nodes],
    ["submitted_s", (job) => job.submitted], ["started_s", (job) => job.started], ["ended_s", (job) => job.ended], ["walltime_s", (job) => job.walltime],
    ["progress", share], ["node_seconds", (job) => job.node_seconds],
    ["node_hours", (job) => (typeof job.node_seconds === "number" ? job.node_seconds / 3600 : null)], ["energy_J", (job) => job.energy],
    ["efficiency", efficiency], ["finished_tasks", (job) => job.finished_tasks], ["failed_tasks", (job) => job.failed], ["error", (job) => job.error],
    ["reason", (job) => (job.state === "waiting" ? job.waiting_because : null) ?? job.reason],
  ];
  return csvOf(columns.map(([name]) => name), rows.map((job) => columns.map(([, value]) => value(job) ?? null)));
}

/** The columns of a table of jobs; clock() is the time now. */
export function jobColumns(clock) {
  const known = (value) => (typeof value === "number" && !Number.isNaN(value) ? value : null);
  const percent = (value) => (value === null ? "-" : `${Math.round(value * 100)} %`);
  const tasks = (job) => (job.unfinished_tasks ? countOf(job.unfinished_tasks, "task left", "tasks left") : "");
  const lasts = (job) => (isOver(job) ? job.ended : clock()) - (job.started ?? job.submitted);
  return [
    { name: "job", width: [100, 3], value: (job) => job.name, show: (job) => job.name },
    { name: "user", width: [48, 1], rank: 4, value: (job) => job.user, show: (job) => job.user || "-" },
    {
      name: "state", width: [116, 2], value: (job) => stateOf(job),
      show: (job) => ({ text: stateOf(job), isBad: ["failed", "killed"].includes(stateOf(job)), note: showDuration(known(lasts(job))), title: took(job) }),
    },
    { name: "nodes", width: [94, 1], isNumber: true, value: (job) => (job.state === "running" ? job.nodes : job.asks), show: sizeOf },
    {
      name: "progress", width: [100, 2], isNumber: true, value: share,
      show: (job) => ({ text: "-", part: share(job), note: share(job) === null ? "" : percent(share(job)), title: tasks(job) }),
    },
    { name: "left", width: [58, 1], isNumber: true, rank: 1, value: (job) => left(job, clock()), show: (job) => showDuration(left(job, clock())), hint: "until it is expected to end" },
    {
      name: "walltime left", width: [98, 1], isNumber: true, rank: 1, value: (job) => walltimeLeft(job, clock()),
      show: (job) => {
        const rest = walltimeLeft(job, clock());
        return { text: showWalltime(rest), isBad: rest !== null && rest < 0, title: rest === null ? "" : `of ${showDuration(job.walltime)}` };
      },
    },
    { name: "energy", width: [60, 1], isNumber: true, rank: 2, value: (job) => known(job.energy), show: (job) => showLarge(known(job.energy), "J") },
    { name: "node-hours", width: [72, 1], isNumber: true, rank: 3, value: (job) => known(job.node_seconds), show: (job) => showNodeHours(job.node_seconds) ?? "-" },
    { name: "efficiency", width: [66, 1], isNumber: true, rank: 5, value: efficiency, show: (job) => percent(efficiency(job)), hint: "share of its time that it computed" },
  ];
}

/** What is said of a job that is opened: [head, text]. */
export function aboutJob(job, epoch) {
  const at = (time) => (typeof time === "number" ? [showClock(time), onTheWall(epoch, time)].filter(Boolean).join(", at ") : "");
  return [
    ["failed", job.failed ? `${countOf(job.failed, "task")}${job.error ? `; the first: ${job.error}` : ""}` : ""],
    ["waits", job.state === "waiting" ? job.waiting_because : ""],
    ["last decision", job.reason],
    ["submitted", at(job.submitted)],
    ["started", at(job.started)],
    ["ended", at(job.ended)],
    ["walltime", typeof job.walltime === "number" ? showDuration(job.walltime) : ""],
    ["took", took(job)],
    ["tasks", [job.finished_tasks ? `${job.finished_tasks.toLocaleString("en")} done` : "", job.unfinished_tasks ? `${job.unfinished_tasks.toLocaleString("en")} left` : ""].filter(Boolean).join(", ")],
    ["used", [
      typeof job.node_seconds === "number" ? `${showNodeHours(job.node_seconds)} node-hours` : "",
      typeof job.energy === "number" ? showLarge(job.energy, "J") : "",
      efficiency(job) === null ? "" : `computed for ${Math.round(efficiency(job) * 100)} % of its time`,
    ].filter(Boolean).join(", ")],
    ["user", job.user],
    ["kind", job.kind],
    ["id", job.id],
  ].filter(([, text]) => text);
}

function render({ model, el }) {
  const jobs = new Map();
  const numbering = new Numbering();
  const said = h("span", { role: "status", "aria-live": "polite", class: "dh-note" });
  const counts = h("small");
  let [now, epoch] = [0, null];
  let isFixed = Boolean(model.get("readonly"));
  const table = new Table(model, {
    label: "Jobs", hint: "name, user, state", columns: jobColumns(() => now), arranged: sorted, height: model.get("height") ?? 360,
    id: (job) => job.id, job: (job) => job.id, words: wordsOf, line: saidOf, state: stateOf,
    colour: (job) => colourOf(numbering.of(job.id)),
    more: (job) => aboutJob(job, epoch),
    offers: (job) => offersFor(job, isFixed).map(([what, text, hint, more]) => ({
      key: `${what} ${text}`, text, hint,
      question: what === "cancel" ? `Really cancel ${job.name}?` : "",
      ask: () => model.send({ do: what, job: job.id, ...more }),
    })),
  });
  const save = h("button", { title: "these jobs as comma-separated values", onclick: () => saveAs("jobs.csv", jobsCsv(table.wanted), "text/csv") }, "CSV");
  const tools = h("div", { class: "dh-row dh-tools", hidden: true }, table.search, save, said);
  claim(el, "dh-jobs");
  el.append(h("h3", {}, "Jobs", counts), tools, table.element);
  const drawn = whileSeen(el, EVERY, () => {
    counts.textContent = countsOf(jobs.values());
    tools.hidden = !jobs.size;
    table.set([...jobs.values()], NONE);
  });

  const end = follow(model, (news, isWhole) => {
    if (isWhole) jobs.clear();
    if (news.head) {
      now = news.head.time;
      epoch = news.head.epoch ?? null;
      isFixed ||= news.head.state === "simulated";
    }
    numbering.add(news);
    for (const job of news.jobs ?? []) jobs.set(job.id, job);
    forget(jobs);
    // what is left of a walltime changes by itself
    if (isWhole || news.jobs || (news.head && jobs.size)) drawn.soon();
  });
  const quiet = model.get("readonly") || model.get("beside") ? () => {} : tellWhatCame(model, said);
  return () => {
    end();
    drawn.end();
    table.end();
    quiet();
  };
}

export default { render };
