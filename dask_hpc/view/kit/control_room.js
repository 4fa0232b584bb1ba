// The line above all views: how the cluster is, and what one can do about it at any time.

import { follow, forget, isEnd, stateOf } from "./shared/course.js";
import { claim, fill, h, tellWhatCame } from "./shared/page.js";
import { countOf, showBounds, showClock, showDuration, showLarge } from "./shared/units.js";

/** What is said of a cluster: [value, name, is it bad]. */
export function figures(news) {
  const { head, jobs, nodes, power } = news;
  if (!head) return [["…", "waits for the cluster", false]];
  if (head.state === "simulated") {
    const over = [[head.policy, "policy", false], [nodes, "nodes", false], [showDuration(head.time), "in all", false]];
    return head.policy ? over : over.slice(1);
  }
  const off = head.state === "off";
  const found = [
    [head.policy, "policy", false],
    [head.state, "control", off],
    [showClock(head.time), "since control began", false],
    head.allotted === undefined
      ? [nodes, nodes === 1 ? "node" : "nodes", false]
      : [`${head.allotted} of ${nodes}`, "nodes allotted", false],
    [jobs.running, "running", false],
    [jobs.waiting, "waiting", false],
  ];
  if (jobs.failed) found.push([jobs.failed, "failed", true]);
  if (news.holds?.length) found.push([news.holds.length, "workers on hold", false]);
  if (head.resizes) found.push([head.resizes, "resizes", false]);
  if (power) found.push(...powerFigures(power));
  if (head.errors) found.push([head.errors, "errors", true]);
  if (head.lost) found.push([head.lost, head.lost === 1 ? "result lost" : "results lost", true]);
  return found;
}

function powerFigures(power) {
  const doubt = power.uncertainty ? ` \u00b1 ${showLarge(power.uncertainty, "W")}` : "";
  const bad = power.is_outside && power.is_steered;
  const found = [[showLarge(power.watts, "W"), `power, ${power.source}${doubt}`, bad]];
  if (!power.is_steered || (!(power.lower > 0) && power.upper === null)) return found;
  found.push([showBounds(power.lower, power.upper, "W"), "power corridor", false]);
  if (power.doubt) found.push(["careful", `power cannot be trusted: ${power.doubt}`, true]);
  else if (power.verdict && !power.verdict.is_kept) found.push(["cannot be kept", power.verdict.reason, true]);
  else found.push([bad ? "outside" : "inside", `the corridor; violations: ${power.violations}`, bad]);
  return found;
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
  }

  get jobs() {
    const states = [...this.states.values()];
    const count = (state) => states.filter((one) => one === state).length;
    return { running: count("running"), waiting: count("waiting"), failed: count("failed") };
  }
}

function render({ model, el }) {
  const headline = new Headline();
  const cards = h("div", { class: "dh-row dh-cards" });
  const said = h("span", { class: "dh-note", role: "status", "aria-live": "polite" });
  const pause = h("button", { onclick: () => model.send({ do: pause.dataset.does }), "data-does": "pause" }, "Pause");
  const undo = h("button", { onclick: () => model.send({ do: "undo" }), disabled: true }, "Undo");
  claim(el, "dh-headline");
  el.setAttribute("role", "region");
  el.setAttribute("aria-label", "The cluster in a line");
  el.append(h("div", { class: "dh-row" }, cards, pause, undo, said));
  let seen = 0;

  const end = follow(model, (news, isWhole) => {
    if (isWhole) headline.clear();
    headline.add(news);
    if (performance.now() - seen < 250 && !isWhole) return;
    seen = performance.now();
    fill(cards, figures(headline).map(([value, name, isBad]) =>
      h("span", { class: `dh-card${isBad ? " dh-bad" : ""}` }, h("b", {}, String(value)), ` ${name}`)));
    const isPaused = headline.head?.state === "paused";
    pause.textContent = isPaused ? "Resume" : "Pause";
    pause.dataset.does = isPaused ? "resume" : "pause";
    pause.hidden = undo.hidden = headline.head?.state === "simulated" || Boolean(model.get("readonly"));
    undo.disabled = !headline.head?.undo;
    undo.title = `Back to what was before the last change; ${countOf(headline.head?.undo ?? 0, "step")} back at most`;
  });
  const quiet = tellWhatCame(model, said);
  return () => {
    end();
    quiet();
  };
}

export default { render };
