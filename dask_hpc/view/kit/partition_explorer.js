// A machine of nodes and cores in three colours, and how long each of the three takes.

import { Canvas } from "./shared/canvas.js";
import { asker, slider } from "./shared/explore.js";
import { claim, fill, h } from "./shared/page.js";
import { showDuration } from "./shared/units.js";

export const PARTS = [
  ["simulation", "#0072b2", "simulation"],
  ["in_situ", "#e69f00", "in situ, on helper cores"],
  ["in_transit", "#009e73", "in transit, on staging nodes"],
];

const KNOBS = [
  ["bandwidth", "bandwidth of a node", 1e7, 1e12, "B/s"],
  ["memory", "memory of a node", 1e9, 4e12, "B"],
  ["nodes", "nodes", 1, 1024, ""],
  ["cores", "cores of a node", 1, 256, ""],
];

/** Rectangles of the machine in a box: [part, left, top, width, height]; helper cores are on top. */
export function areas(found, nodes, cores, width, height) {
  const simulating = (found.nodes / nodes) * width;
  const helping = (found.helper_cores / cores) * height;
  return [
    ["simulation", 0, helping, simulating, height - helping],
    ["in_situ", 0, 0, simulating, helping],
    ["in_transit", simulating, 0, width - simulating, height],
  ].filter(([, , , wide, high]) => wide > 0.01 && high > 0.01);
}

/** The three times as shares of the longest. */
export function bars(phases) {
  const most = Math.max(1e-12, ...Object.values(phases));
  return PARTS.map(([part, colour, words]) => ({ words, colour, seconds: phases[part], share: phases[part] / most }));
}

function render({ model, el }) {
  const ask = asker(model);
  const plot = h("div", { class: "dh-plot" });
  const answer = h("div", { class: "dh-answer", role: "status", "aria-live": "polite" });
  const times = h("div");
  const controls = h("div", { class: "dh-sliders" });
  const mode = h("select", { "aria-label": "mode", onchange: () => ask("mode", mode.value) },
    h("option", { value: "async" }, "analyses beside the next iteration"), h("option", { value: "sync" }, "the simulation waits for analyses in situ"));
  claim(el, "dh-partition");
  el.append(h("h3", {}, "Who runs where", mode), controls, answer, plot, times);
  const canvas = new Canvas(plot, paint, { height: 190, label: "Nodes and cores" });

  const knobs = Object.fromEntries(KNOBS.map(([name, label, low, high, unit]) => [name,
    slider({ label, low, high, unit, isWhole: !unit, value: model.get(name), change: (value) => ask(name, value) })]));
  fill(controls, Object.values(knobs));

  function tell() {
    const found = model.get("found");
    const problem = model.get("problem");
    mode.value = model.get("mode");
    for (const [name, knob] of Object.entries(knobs)) knob.put(model.get(name));
    canvas.repaint();
    if (problem || !found.phases) return fill(answer, h("div", { class: "dh-bad" }, problem));
    fill(times, bars(found.phases).map(({ words, colour, seconds, share }) => {
      const inner = h("span");
      inner.style.width = `${share * 100}%`;
      inner.style.background = colour;
      return h("div", { class: "dh-phase" }, h("span", {}, words), h("span", { class: "dh-bar" }, inner), h("span", { class: "dh-n" }, showDuration(seconds)));
    }));
    const others = Object.entries(found.others).map(([name, seconds]) => `${name}: ${seconds === null ? "does not fit" : showDuration(seconds)}`);
    fill(answer,
      h("div", {}, h("b", {}, `${showDuration(found.iteration)} per iteration`), `; ${others.join("; ")}`),
      h("div", { class: found.warning ? "dh-bad" : "dh-note" }, found.reason),
      h("div", { class: "dh-note" }, `in situ: ${found.in_situ.join(", ") || "none"}; in transit: ${found.in_transit.join(", ") || "none"}`));
    canvas.element.setAttribute("aria-label", `Nodes and cores: ${answer.textContent}`);
  }

  function paint(context, width, height, theme) {
    const found = model.get("found");
    if (!found.phases) return;
    const [nodes, cores] = [model.get("nodes"), model.get("cores")];
    const box = [width - 2, height - 26];
    for (const [part, left, top, wide, high] of areas(found, nodes, cores, ...box)) {
      context.fillStyle = PARTS.find(([name]) => name === part)[1];
      context.fillRect(left + 1, top + 1, wide, high);
    }
    context.strokeStyle = theme.paper;
    context.lineWidth = 1;
    context.beginPath();
    for (let i = 0; nodes <= 128 && i <= nodes; i += 1) line(context, 1 + (i / nodes) * box[0], 1, 1 + (i / nodes) * box[0], 1 + box[1]);
    for (let i = 0; cores <= 64 && i <= cores; i += 1) line(context, 1, 1 + (i / cores) * box[1], 1 + box[0], 1 + (i / cores) * box[1]);
    context.stroke();
    context.fillStyle = theme.faint;
    context.textAlign = "left";
    context.fillText(`${found.nodes} of ${nodes} nodes simulate, with ${found.helper_cores} of ${cores} cores as helpers`, 2, height - 11);
  }

  function line(context, x0, y0, x1, y1) {
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
  }

  tell();
  const seen = ["found", "problem", "mode", ...KNOBS.map(([name]) => name)].map((one) => `change:${one}`).join(" ");
  model.on(seen, tell);
  return () => {
    model.off(seen, tell);
    canvas.remove();
  };
}

export default { render };
