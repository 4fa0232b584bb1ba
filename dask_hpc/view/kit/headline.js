// The line above all views: how the cluster is, and what one can do about it at any time.

import { onTheWall } from "./shared/moment.js";
import { alertsBadge } from "./shared/alerts.js";
import { follow, forget, isEnd, stateOf } from "./shared/course.js";
import { claim, deeds, fill, h, saveAs } from "./shared/page.js";
import { countOf, showBounds, showClock, showDuration, showLarge } from "./shared/units.js";

const EVERY = 250; // ms between two times that it is drawn

/** What is said of a cluster, what matters most first: [value, name, is it bad]. */
export function figures(news) {
  const { head, jobs, nodes, power } = news;
  if (!head) return [["\u2026", "waits for the cluster", false]];
  if (head.state === "simulated") {
    const over = [[head.policy, "policy", false], [nodes, countOf(nodes, "node").split(" ")[1], false], [showDuration(head.time), "in all", false], ...measured(news.measured)];
    return head.policy ? over : over.slice(1);
  }
  const found = [
    [head.policy, head.state === "on" ? "policy" : `policy, control ${head.state}`, head.state === "off"],
    head.allotted === undefined
      ? [nodes, nodes === 1 ? "node" : "nodes", false]
      : [`${head.allotted} of ${nodes}`, "nodes allotted", false],
    [jobs.running, `running, ${jobs.waiting} waiting`, false],
  ];
  if (jobs.failed) found.push([jobs.failed, "failed", true]);
  if (head.lost) found.push([head.lost, head.lost === 1 ? "result lost" : "results lost", true]);
  if (head.errors) found.push([head.errors, "errors of ours", true]);
  if (power) found.push(powerFigure(power));
  if (news.holds?.length) found.push([news.holds.length, "workers on hold", false]);
  return [...found, ...measured(news.measured)];
}

/** What else is known, in words. */
export function details(news) {
  const { head, measured: found, jobs } = news;
  if (!head) return [];
  return [
    head.resizes ? countOf(head.resizes, "change of size", "changes of size") : "",
    jobs?.cancelled ? countOf(jobs.cancelled, "job was cancelled", "jobs were cancelled") : "",
    known(found?.mean_response) ? `from submission to the end: ${showDuration(found.mean_response)} (mean), bounded slowdown ${Number(found.mean_bounded_slowdown.toPrecision(3))}` : "",
    ...Object.entries(found?.adaptation ?? {}).map(([way, { count, total }]) => (count ? `to ${way}: ${showDuration(total.last)}, ${showDuration(total.largest)} at most` : "")),
  ].filter(Boolean);
}

/** How much of the cluster is used and how long jobs wait, as far as it is known. */
function measured(found) {
  if (!found) return [];
  const cards = [];
  if (found.node_seconds > 0 || found.makespan > 0) cards.push([`${Math.round(found.utilisation * 100)} %`, "of node-seconds used", false]);
  if (known(found.mean_response)) cards.push([showDuration(Math.round(10 * found.mean_wait) / 10), "mean wait", false]);
  return cards;
}

function known(value) {
  return value !== null && value !== undefined;
}

function powerFigure(power) {
  const doubt = power.uncertainty ? ` \u00b1 ${showLarge(power.uncertainty, "W")}` : "";
  const watts = `${showLarge(power.watts, "W")}${doubt}`;
  if (!power.is_steered || (!(power.lower > 0) && power.upper === null)) return [watts, `power, ${power.source}`, false];
  const bounds = showBounds(power.lower, power.upper, "W");
  if (power.doubt) return [watts, `careful, power cannot be trusted: ${power.doubt}`, true];
  if (power.verdict && !power.verdict.is_kept) return [watts, `${bounds} cannot be kept: ${power.verdict.reason}`, true];
  return [watts, `${power.is_outside ? "outside" : "inside"} ${bounds}, ${power.source}`, power.is_outside];
}

/** What figures() looks at, brought up to date. */
export class Headline {
  constructor() {
    this.clear();
  }

  clear() {
    this.states = new Map();
    this.head = null;
    this.nodes = 0;
    this.power = null;
    this.measured = null;
    this.holds = [];
  }

  add(news) {
    if (news.head) this.head = news.head;
    if (news.nodes) {
      const gone = news.nodes.gone.reduce((sum, [first, last]) => sum + last - first + 1, 0);
      this.nodes = news.nodes.names.length - gone;
    }
    for (const job of news.jobs ?? []) this.states.set(job.id, stateOf(job));
    forget(this.states, 1000, isEnd);
    if (news.holds) this.holds = news.holds;
    if (news.power_now !== undefined) this.power = news.power_now;
    if (news.figures) this.measured = news.figures;
  }

  get jobs() {
    const states = [...this.states.values()];
    const count = (state) => states.filter((one) => one === state).length;
    return { running: count("running"), waiting: count("waiting"), failed: count("failed"), cancelled: count("cancelled") };
  }
}

/** "1:02:03", and what a clock on the wall says then, if somebody knows. */
export function clockOf(head) {
  const wall = onTheWall(head.epoch, head.time);
  return [showClock(head.time), wall ? `elapsed; it is ${wall}` : "elapsed"];
}

function render({ model, el }) {
  const headline = new Headline();
  const cards = h("div", { class: "dh-figures" });
  const pause = h("button", { onclick: () => model.send({ do: pause.dataset.does }), "data-does": "pause" }, "Pause");
  const undo = h("button", { onclick: () => model.send({ do: "undo" }), disabled: true }, "Undo");
  const hands = deeds({}, pause, undo);
  const alerts = alertsBadge(model);
  const report = h("button", { title: "All that is shown, as one page to keep", onclick: () => (model.get("report") ? saveAs("dask-hpc.html", model.get("report")) : model.send({ do: "report" })) }, "Report");
  claim(el, "dh-headline");
  el.setAttribute("role", "region");
  el.setAttribute("aria-label", "The cluster in a line");
  el.append(cards, h("div", { class: "dh-hands" }, alerts.element, hands, report));
  let seen = 0;

  const end = follow(model, (news, isWhole) => {
    if (isWhole) headline.clear();
    headline.add(news);
    if (performance.now() - seen < EVERY && !isWhole) return;
    seen = performance.now();
    const { head } = headline;
    const isOver = head?.state === "simulated";
    const shown = figures(headline);
    if (head && !isOver) shown.splice(1, 0, [...clockOf(head), false]);
    fill(cards, shown.map(([value, name, isBad]) =>
      h("div", { class: `dh-figure${isBad ? " dh-bad" : ""}`, title: name }, h("b", {}, String(value)), h("span", {}, name))));
    cards.title = details(headline).join("\n");
    const isPaused = head?.state === "paused";
    pause.textContent = isPaused ? "Resume" : "Pause";
    pause.dataset.does = isPaused ? "resume" : "pause";
    report.hidden = alerts.element.hidden = isOver;
    pause.hidden = undo.hidden = isOver || Boolean(model.get("readonly"));
    undo.disabled = !head?.undo;
    undo.title = head?.undo ? `Back to what was before the last change; ${countOf(head.undo, "step")} back at most` : "Nothing to undo";
  });
  const heard = (message) => {
    if (message.report) saveAs("dask-hpc.html", message.report, "text/html");
  };
  model.on("msg:custom", heard);
  return () => {
    end();
    alerts.end();
    model.off("msg:custom", heard);
  };
}

export default { render };
