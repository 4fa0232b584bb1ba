// How efficiency depends on the interval between two commits.

import { Canvas } from "./shared/canvas.js";
import { asker, scaleMarks, slider } from "./shared/explore.js";
import { claim, fill, h } from "./shared/page.js";
import { clamp, linear } from "./shared/scale.js";
import { showDuration } from "./shared/units.js";

const LEFT = 56;
const BOTTOM = 24;
const LONGEST = 2000 * 3600; // seconds of work; what is not known counts as that

/** Pixels of the curve: interval by its logarithm to the right, efficiency upwards. */
export function points(curve, width, height) {
  if (!curve.length) return [];
  const x = linear(Math.log(curve[0][0]), Math.log(curve.at(-1)[0]), LEFT, width - 10);
  const y = linear(lowest(curve), 1, height - BOTTOM, 8);
  return curve.map(([work, share]) => [x(Math.log(work)), y(share)]);
}

export function lowest(curve) {
  return Math.max(0, Math.floor(Math.min(...curve.map(([, share]) => share)) * 20 - 1) / 20);
}

function render({ model, el }) {
  const ask = asker(model);
  const answer = h("div", { class: "dh-answer", role: "status", "aria-live": "polite" });
  const controls = h("div", { class: "dh-sliders" });
  const plot = h("div", { class: "dh-plot" });
  claim(el, "dh-interval");
  el.append(h("h3", {}, "How often to commit"), controls, answer, h("div", { class: "dh-note" }, "share of the time that is work, by the work between two commits"), plot);
  const canvas = new Canvas(plot, paint, { height: 200, label: "Efficiency by interval" });
  let levels = structuredClone(model.get("levels"));

  let knobs = [];
  const hours = slider({ label: "work to do", low: 360, high: LONGEST, value: model.get("hours") * 3600 || LONGEST, unit: "s", change: (x) => ask("hours", x / 3600) });

  /** Sliders for each level, anew only if there are others: somebody may hold one. */
  function show() {
    const names = levels.map((one) => one.name).join();
    levels = structuredClone(model.get("levels"));
    if (!knobs.length || names !== levels.map((one) => one.name).join()) {
      knobs = levels.flatMap((level, i) => [
        knob(i, "commit", `${level.name}: a commit takes`, 0.05, 3600),
        knob(i, "mtbf", `${level.name}: needed every`, 600, 90 * 86400),
      ]);
      fill(controls, knobs.map(([, , one]) => one), hours);
    }
    for (const [i, key, one] of knobs) one.put(levels[i][key]);
    hours.put(model.get("hours") * 3600 || LONGEST);
  }

  function knob(i, key, label, low, high) {
    return [i, key, slider({ label, low, high, value: levels[i][key], unit: "s", change: (value) => {
      levels[i][key] = value;
      ask("levels", structuredClone(levels));
    } })];
  }

  function tell() {
    const { every, efficiency, reason } = model.get("found");
    const problem = model.get("problem");
    fill(answer, problem ? h("div", { class: "dh-bad" }, problem) : [
      h("div", {}, Object.entries(every ?? {}).map(([name, seconds]) => h("b", {}, `${name}: ${seconds === null ? "never" : `every ${showDuration(seconds)}`}  `))),
      h("div", { class: "dh-note" }, `${((efficiency ?? 0) * 100).toFixed(1)} % of the time is work; ${reason ?? ""}`),
    ]);
    canvas.element.setAttribute("aria-label", `Efficiency by interval: ${answer.textContent}`);
    canvas.repaint();
  }

  function paint(context, width, height, theme) {
    const { curve, work } = model.get("found");
    if (!curve?.length) return;
    const low = lowest(curve);
    const y = linear(low, 1, height - BOTTOM, 8);
    const x = linear(Math.log(curve[0][0]), Math.log(curve.at(-1)[0]), LEFT, width - 10);
    context.strokeStyle = theme.line;
    context.fillStyle = theme.faint;
    context.textAlign = "right";
    for (const share of [low, (low + 1) / 2, 1]) {
      context.beginPath();
      context.moveTo(LEFT, y(share));
      context.lineTo(width, y(share));
      context.stroke();
      context.fillText(`${Math.round(share * 100)} %`, LEFT - 6, y(share));
    }
    context.textAlign = "center";
    for (const [seconds, , words] of scaleMarks(curve[0][0], curve.at(-1)[0], "s", width - LEFT)) {
      context.fillText(words, clamp(x(Math.log(seconds)), LEFT + 20, width - 30), height - 12);
      context.fillRect(x(Math.log(seconds)), height - BOTTOM, 1, 4);
    }
    context.strokeStyle = theme.accent;
    context.lineWidth = 2;
    context.beginPath();
    points(curve, width, height).forEach(([px, py], i) => (i ? context.lineTo(px, py) : context.moveTo(px, py)));
    context.stroke();
    if (work) {
      context.fillStyle = theme.accent;
      context.beginPath();
      context.arc(x(Math.log(work)), y(model.get("found").efficiency), 5, 0, 7);
      context.fill();
    }
  }

  show();
  tell();
  model.on("change:found change:problem", tell);
  model.on("change:levels change:hours", show);
  return () => {
    model.off("change:found change:problem", tell);
    model.off("change:levels change:hours", show);
    canvas.remove();
  };
}

export default { render };
