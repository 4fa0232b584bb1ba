// The line above all views: how the cluster is, and what one can do about it at any time.

import { follow, forget, isEnd, stateOf } from "./shared/course.js";
import { claim, fill, h, tellWhatCame } from "./shared/page.js";
import { countOf, showBounds, showClock, showDuration, showLarge } from "./shared/units.js";

const ASKS = 4000; // ms between two questions whether the kernel hears
const SILENCE = 1500; // ms without an answer that are silence

/** What is said of a cluster: [value, name, is it bad]. */
export function figures(news) {
  const { head, jobs, nodes, power } = news;
  if (!head) return [["…", "waits for the cluster", false]];
  if (head.state === "simulated") {
    const over = [[head.policy, "policy", false], [nodes, "nodes", false], [showDuration(head.time), "in all", false], ...measured(news.measured)];
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
  found.push(...measured(news.measured));
  if (power) found.push(...powerFigures(power));
  if (head.errors) found.push([head.errors, "errors", true]);
  if (head.lost) found.push([head.lost, head.lost === 1 ? "result lost" : "results lost", true]);
  return found;
}

/** How much of the cluster is used, how long jobs take and what changes of size do, as far as it is known. */
function measured(found) {
  if (!found) return [];
  const cards = [];
  if (found.node_seconds > 0 || found.makespan > 0) cards.push([`${Math.round(found.utilisation * 100)} %`, "of all node-seconds used", false]);
  if (found.mean_response !== null && found.mean_response !== undefined) {
    const slowdown = Number(found.mean_bounded_slowdown.toPrecision(3));
    cards.push([showDuration(found.mean_wait), `mean wait, ${showDuration(found.mean_response)} to the end, bounded slowdown ${slowdown}`, false]);
  }
  for (const [way, { count, total }] of Object.entries(found.adaptation ?? {})) {
    if (count) cards.push([showDuration(total.last), `to ${way}, ${showDuration(total.largest)} at most`, false]);
  }
  return cards;
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
    return { running: count("running"), waiting: count("waiting"), failed: count("failed") };
  }
}

/** Ask now and then whether the kernel listens, and when somebody has pressed something. While it does not, say
 * so, and where the same can be done meanwhile. Answers how to end it. */
function tellOfSilence(model, note) {
  const page = h("a", { target: "_blank", rel: "noopener" }, "the control page");
  const elsewhere = h("span", { hidden: true }, " On ", page, ", which the scheduler serves, it happens at once.");
  note.append("The kernel computes and does not listen: what you do here waits until it does.", elsewhere);
  let waits = null;
  let isSilent = false;
  let isKnown = false; // whether there is a kernel at all
  const show = () => {
    note.hidden = !(isSilent && isKnown);
  };
  const ask = () => {
    if (document.visibilityState !== "visible") return;
    waits ??= setTimeout(() => {
      isSilent = true;
      show();
    }, SILENCE);
    model.send({ do: "looks" });
  };
  const heard = (message) => {
    if (message.page !== undefined) {
      isKnown = true;
      elsewhere.hidden = !message.page;
      if (message.page) page.href = message.page;
    }
    if (message.heard) {
      clearTimeout(waits);
      waits = null;
      isSilent = false;
    }
    show();
  };
  const pressed = (event) => {
    if (event.target.closest?.(".dask-hpc")) ask();
  };
  model.on("msg:custom", heard);
  document.addEventListener("pointerup", pressed);
  const timer = setInterval(ask, ASKS);
  ask();
  return () => {
    clearInterval(timer);
    clearTimeout(waits);
    document.removeEventListener("pointerup", pressed);
    model.off("msg:custom", heard);
  };
}

function render({ model, el }) {
  const headline = new Headline();
  const cards = h("div", { class: "dh-row dh-cards" });
  const said = h("span", { class: "dh-note", role: "status", "aria-live": "polite" });
  const note = h("div", { class: "dh-unheard", role: "status", hidden: true });
  const pause = h("button", { onclick: () => model.send({ do: pause.dataset.does }), "data-does": "pause" }, "Pause");
  const undo = h("button", { onclick: () => model.send({ do: "undo" }), disabled: true }, "Undo");
  claim(el, "dh-headline");
  el.setAttribute("role", "region");
  el.setAttribute("aria-label", "The cluster in a line");
  el.append(h("div", { class: "dh-row" }, cards, pause, undo, said), note);
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
  const deaf = model.get("readonly") ? () => {} : tellOfSilence(model, note);
  return () => {
    end();
    quiet();
    deaf();
  };
}

export default { render };
