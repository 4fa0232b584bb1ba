// Sizes of jobs that keep power between two bounds.

import { colourOf } from "./shared/colours.js";
import { asker, slider } from "./shared/explore.js";
import { claim, fill, h } from "./shared/page.js";
import { clamp } from "./shared/scale.js";
import { countOf, showLarge, ticks } from "./shared/units.js";

const BOUNDS = [["lower", "lower bound"], ["upper", "upper bound"]];
const KEYS = [["dh-reach", "can be reached"], ["dh-band", "the corridor"], ["dh-before", "power before"], ["dh-after", "power after"]];

/** The right end of the bar of watts. */
export function mostWatts(found, upper) {
  return 1.1 * Math.max(found.highest ?? 0, upper, found.after[1], found.before[1], 1);
}

/** Where things are on one bar of watts, in percent: what can be reached, the corridor, power before and after. */
export function marks(found, lower, upper) {
  const most = mostWatts(found, upper);
  const percent = (watts) => clamp((watts / most) * 100, 0, 100);
  return {
    reach: [percent(found.lowest), percent(found.highest ?? most)],
    corridor: [percent(lower), upper > 0 ? percent(upper) : 100],
    before: found.before.map(percent),
    after: found.after.map(percent),
  };
}

function render({ model, el }) {
  const ask = asker(model);
  const controls = h("div", { class: "dh-sliders" });
  const bar = h("div", { class: "dh-watts", role: "img" });
  const scale = h("div", { class: "dh-scale", "aria-hidden": "true" });
  const key = h("div", { class: "dh-row dh-note" }, KEYS.map(([kind, words]) => h("span", {}, h("span", { class: `dh-chip ${kind}` }), words)));
  const sizes = h("div");
  const answer = h("div", { class: "dh-answer", role: "status", "aria-live": "polite" });
  claim(el, "dh-feasible");
  el.append(h("h3", {}, "Can this corridor be kept?"), controls, answer, bar, scale, key, sizes);
  const knobs = Object.fromEntries(BOUNDS.map(([name, label]) => [name, slider({ label, low: 1, high: 20000, value: model.get(name), unit: "W", none: "none", change: (x) => ask(name, x) })]));
  controls.append(...Object.values(knobs));

  function span([from, to], kind, title) {
    const one = h("span", { class: kind, title });
    one.style.left = `${from}%`;
    one.style.width = `${Math.max(0.6, to - from)}%`;
    return one;
  }

  function tell() {
    const found = model.get("found");
    const problem = model.get("problem");
    for (const [name, knob] of Object.entries(knobs)) knob.put(model.get(name));
    if (problem || !found.jobs) return fill(answer, h("div", { class: "dh-bad" }, problem));
    const most = mostWatts(found, model.get("upper"));
    fill(scale, ticks(0, most, 5).map((watts) => {
      const mark = h("span", {}, showLarge(watts, "W"));
      mark.style.setProperty("--at", (watts / most).toFixed(4));
      return mark;
    }));
    const { reach, corridor, before, after } = marks(found, model.get("lower"), model.get("upper"));
    fill(bar,
      span(reach, "dh-reach", `can be reached: ${showLarge(found.lowest, "W")} to ${showLarge(found.highest, "W")}`),
      span(corridor, "dh-band", "the corridor"),
      span(before, "dh-before", `before: ${showLarge(found.before[0], "W")} to ${showLarge(found.before[1], "W")}`),
      span(after, "dh-after", `after: ${showLarge(found.after[0], "W")} to ${showLarge(found.after[1], "W")}`));
    bar.setAttribute("aria-label", `Power before ${showLarge(found.before[1], "W")}, after ${showLarge(found.after[1], "W")}`);
    fill(sizes, h("table", {}, found.jobs.map((job, i) => {
      const inner = h("span");
      inner.style.width = `${(job.after / Math.max(1, job.most)) * 100}%`;
      inner.style.background = colourOf(i);
      return h("tr", {}, h("td", {}, job.id), h("td", { class: "dh-wide" }, h("span", { class: "dh-bar" }, inner)), h("td", { class: "dh-n" }, job.before === job.after ? countOf(job.after, "node") : `${job.before} \u2192 ${countOf(job.after, "node")}`));
    })));
    fill(answer, h("div", { class: found.is_feasible ? "dh-good" : "dh-bad" }, found.reason));
  }

  tell();
  const seen = ["found", "problem", "lower", "upper"].map((one) => `change:${one}`).join(" ");
  model.on(seen, tell);
  return () => model.off(seen, tell);
}

export default { render };
