// Which walltimes to ask for, one after the other, and what that costs if a commit takes longer or shorter.

import { Canvas } from "./shared/canvas.js";
import { asker, scaleMarks, slider } from "./shared/explore.js";
import { claim, fill, h } from "./shared/page.js";
import { clamp, linear } from "./shared/scale.js";
import { showDuration, ticks } from "./shared/units.js";

const LEFT = 56;
const [TOP, BOTTOM] = [8, 24];
const MOST_ROWS = 8;
export const WAYS = [
  ["best", "#0072b2", "the best plan"],
  ["all", "#e69f00", "always commit"],
  ["none", "#009e73", "never commit"],
];
export const SPENT = [
  ["restart", "#cc79a7", "restart"],
  ["again", "#f2cf80", "work done before"],
  ["work", "#0072b2", "new work"],
  ["commit", "#d55e00", "commit"],
];

/** Name, label, bounds, unit; and what the lowest place stands for, if that is nothing. */
const KNOBS = [
  ["mean", "mean time of the job", 60, 30 * 86400, "s"],
  ["std", "standard deviation", 10, 30 * 86400, "s"],
  ["checkpoint", "a commit takes", 1, 86400, "s"],
  ["restart", "a restart takes", 1, 86400, "s"],
  ["alpha", "cost of a second asked for", 0.01, 100, ""],
  ["beta", "cost of a second used", 0.001, 100, "", "none"],
  ["gamma", "cost of asking, as time", 1, 86400, "s", "none"],
];

/** Pixels of each way's curve: seconds of a commit by their logarithm to the right, cost over that of somebody
 * who knows upwards; a way that does not exist somewhere has no point there. */
export function lines(curve, width, height) {
  if (!curve.length) return {};
  const x = linear(Math.log(curve[0].checkpoint), Math.log(curve.at(-1).checkpoint), LEFT, width - 10);
  const y = linear(1, highest(curve), height - BOTTOM, TOP);
  return Object.fromEntries(WAYS.map(([way]) => [way, curve.filter((one) => Number.isFinite(one[way] ?? NaN)).map((one) => [x(Math.log(one.checkpoint)), y(one[way])])]));
}

/** The top of the plot: a way that costs ten times as much as the best one is let go out of it. */
export function highest(curve) {
  const [best, all] = [Math.max(...curve.map((one) => one.best)), curve.flatMap((one) => [one.all, one.none]).filter(Number.isFinite)];
  return Math.max(1.1, Math.min(Math.max(best, ...all), 3 * best)) * 1.02;
}

/** What each request is spent on, as shares of the longest: [kind, from, to]. */
export function segments(requests) {
  const most = Math.max(1e-12, ...requests.map((one) => one.length));
  return requests.map((one) => {
    let at = 0;
    return SPENT.map(([kind]) => {
      const from = at;
      at += (one[kind] ?? 0) / most;
      return [kind, from, at];
    }).filter(([, from, to]) => to > from);
  });
}

/** "57 % of jobs": to two digits, and all of them are 100 %. */
export function share(probability) {
  return `${Number((100 * probability).toPrecision(2))} % of jobs`;
}

function render({ model, el }) {
  const ask = asker(model);
  const controls = h("div", { class: "dh-sliders" });
  const plot = h("div", { class: "dh-plot" });
  const legend = h("div", { class: "dh-row dh-note" }, "cost over knowing in advance, by what a commit takes:", WAYS.map(([, colour, words]) => key(colour, words)));
  const rows = h("div");
  const answer = h("div", { class: "dh-answer", role: "status", "aria-live": "polite" });
  const family = h("select", { "aria-label": "law", onchange: () => ask("family", family.value) },
    model.get("families").map((one) => h("option", { value: one }, one)));
  claim(el, "dh-reservation");
  el.append(h("h3", {}, "How long to ask for", family), controls, answer, plot, legend, rows);
  const canvas = new Canvas(plot, paint, { height: 200, label: "Cost by the time of a commit" });

  const knobs = Object.fromEntries(KNOBS.map(([name, label, low, high, unit, none]) => [name,
    slider({ label, low, high, unit, none, value: model.get(name), change: (value) => ask(name, value) })]));
  fill(controls, Object.values(knobs));

  function key(colour, words) {
    const chip = h("span", { class: "dh-chip" });
    chip.style.background = colour;
    return h("span", {}, chip, words);
  }

  function tell() {
    const found = model.get("found");
    const problem = model.get("problem");
    family.value = model.get("family");
    for (const [name, knob] of Object.entries(knobs)) knob.put(model.get(name));
    canvas.repaint();
    if (problem || !found.requests) {
      fill(answer, h("div", { class: "dh-bad" }, problem));
      return;
    }
    const shown = found.requests.slice(0, MOST_ROWS);
    const more = found.count - shown.length;
    const parts = segments(shown);
    fill(rows,
      h("div", { class: "dh-row dh-note" }, SPENT.map(([, colour, words]) => key(colour, words))),
      h("table", {}, shown.map((one, i) => h("tr", { title: `work until ${showDuration(one.until)}` },
        h("td", { class: "dh-n" }, showDuration(one.length)),
        h("td", { class: "dh-wide" }, bar(parts[i])),
        h("td", { class: "dh-n" }, share(one.needed))))),
      more > 0 ? h("div", { class: "dh-note" }, `and ${more} more, for ${share(found.requests[MOST_ROWS].needed)}`) : null);
    const others = Object.entries(found.others).map(([name, cost]) => `${name}: ${cost === null ? "no" : `${cost.toFixed(2)} times`}`);
    fill(answer,
      h("div", {}, h("b", {}, `${found.over_omniscient.toFixed(2)} times the cost of knowing in advance`), `; ${others.join("; ")}`),
      h("div", { class: "dh-note" }, found.reason));
    canvas.element.setAttribute("aria-label", `Cost by the time of a commit: ${answer.textContent}`);
  }

  function bar(parts) {
    return h("span", { class: "dh-bar" }, parts.map(([kind, from, to]) => {
      const [, colour, words] = SPENT.find(([name]) => name === kind);
      const one = h("span", { title: words });
      one.style.width = `${(to - from) * 100}%`;
      one.style.background = colour;
      return one;
    }));
  }

  function paint(context, width, height, theme) {
    const { curve } = model.get("found");
    if (!curve?.length) return;
    const x = linear(Math.log(curve[0].checkpoint), Math.log(curve.at(-1).checkpoint), LEFT, width - 10);
    const y = linear(1, highest(curve), height - BOTTOM, TOP);
    context.strokeStyle = theme.line;
    context.fillStyle = theme.faint;
    context.textAlign = "right";
    for (const cost of ticks(1, highest(curve), 4)) {
      context.beginPath();
      context.moveTo(LEFT, y(cost));
      context.lineTo(width, y(cost));
      context.stroke();
      context.fillText(`${cost} x`, LEFT - 6, y(cost));
    }
    context.textAlign = "center";
    for (const [seconds, , words] of scaleMarks(curve[0].checkpoint, curve.at(-1).checkpoint, "s", width - LEFT)) {
      context.fillText(words, clamp(x(Math.log(seconds)), LEFT + 20, width - 30), height - 12);
      context.fillRect(x(Math.log(seconds)), height - BOTTOM, 1, 4);
    }
    const now = x(Math.log(clamp(model.get("checkpoint"), curve[0].checkpoint, curve.at(-1).checkpoint)));
    context.setLineDash([4, 4]);
    context.beginPath();
    context.moveTo(now, TOP);
    context.lineTo(now, height - BOTTOM);
    context.stroke();
    context.setLineDash([]);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, height - BOTTOM);
    context.clip();
    context.lineWidth = 2;
    const found = lines(curve, width, height);
    // the best one last: where two are the same, it is seen
    for (const [way, colour] of WAYS.toReversed()) {
      context.strokeStyle = colour;
      context.setLineDash(way === "best" ? [] : [7, 4]);
      context.beginPath();
      found[way].forEach(([px, py], i) => (i ? context.lineTo(px, py) : context.moveTo(px, py)));
      context.stroke();
    }
    context.restore();
  }

  tell();
  const seen = ["found", "problem", "family", ...KNOBS.map(([name]) => name)].map((one) => `change:${one}`).join(" ");
  model.on(seen, tell);
  return () => {
    model.off(seen, tell);
    canvas.remove();
  };
}

export default { render };
