// Protections against failures side by side, over the size of a machine; and how often to commit.

import { Canvas } from "./shared/canvas.js";
import { asker, scaleMarks, slider } from "./shared/explore.js";
import { claim, fill, h } from "./shared/page.js";
import { clamp, linear } from "./shared/scale.js";
import { showDuration, showLarge } from "./shared/units.js";

const LEFT = 56;
const [TOP, BOTTOM] = [8, 24];
const LONGEST = 2000 * 3600; // seconds of work; what is not known counts as that
const YEAR = 31557600;
const HOPELESS = 0.001; // a share of work that is not worth a number
const BARS = 3; // of the least time: longer bars are cut
const READINGS = [["protocols", "Which protection?"], ["commits", "How often to commit?"]];
const OBJECTIVES = [["time", "least time"], ["energy", "least energy"], ["steady", "steady times"]];
const AXES = [["nodes", "nodes", ""], ["mtbf", "time between failures of a node", "s"], ["memory", "memory of a node", "B"]];
export const PROTOCOLS = { restart: "#d55e00", multilevel: "#e69f00", recovery: "#009e73", "redundancy 1.5": "#56b4e9", "redundancy 2": "#0072b2" };
export const PARTS = [
  ["computing", "#0072b2"], ["recomputation", "#7fb8d8"], ["recovery", "#009e73"], ["commits", "#e69f00"],
  ["failed_commits", "#f2cf80"], ["restarts", "#cc79a7"], ["failed_restarts", "#e5bcd3"],
];
/** Name, label, bounds, unit, whether it is whole, and what its lowest place stands for. */
const KNOBS = [
  ["nodes", "nodes", 100, 1_000_000, "", true],
  ["mtbf", "a node fails every", 30 * 86400, 20 * YEAR, "s"],
  ["memory", "each node keeps", 1e9, 256e9, "B"],
  ["store", "speed of the store", 1e9, 100e12, "B/s"],
  ["messages", "share of time for messages", 0.01, 1, "", false, "none"],
];

/** Pixels of a curve of [value, share]: values by their logarithm to the right, shares upwards from the lowest. */
export function points(curve, width, height, low = lowest(curve)) {
  if (!curve.length) return [];
  const x = linear(Math.log(curve[0][0]), Math.log(curve.at(-1)[0]), LEFT, width - 10);
  const y = linear(low, 1, height - BOTTOM, TOP);
  return curve.map(([value, share]) => [x(Math.log(value)), y(share)]);
}

export function lowest(curve) {
  return Math.max(0, Math.floor(Math.min(...curve.map(([, share]) => share)) * 20 - 1) / 20);
}

/** What the time of each protocol goes into, as shares of the longest bar: [part, from, to]. */
export function segments(ways) {
  const times = ways.map((one) => one.time).filter(Number.isFinite);
  const most = Math.min(Math.max(...times), BARS * Math.min(...times));
  return ways.map((one) => {
    let at = 0; // of what is hopeless there are no parts
    return PARTS.map(([part]) => {
      const from = Math.min(at, 1);
      at += (one.parts[part] ?? 0) / most;
      return [part, from, Math.min(at, 1)];
    }).filter(([, from, to]) => to > from);
  });
}

/** "every 2 min (partner), 1 h (store)": without places that have no commits of their own. */
export function whenTold(every) {
  const own = Object.entries(every).filter(([, seconds], i, all) => seconds !== null && seconds !== all[i + 1]?.[1]);
  return own.length ? `every ${own.map(([place, seconds]) => `${showDuration(seconds)} (${place})`).join(", ")}` : "never";
}

export function percent(share) {
  return share === 0 ? "0 %" : share < 0.001 ? "< 0.1 %" : `${(share * 100).toFixed(1)} %`;
}

function choice(label, options, change) {
  const element = h("select", { "aria-label": label, onchange: () => change(element.value) }, options.map(([value, words]) => h("option", { value }, words)));
  return element;
}

function key(colour, words) {
  const chip = h("span", { class: "dh-chip" });
  chip.style.background = colour;
  return h("span", {}, chip, words);
}

/** Lines of shares from low to 1 with their words, and marks of values to the right. */
function grid(context, width, height, theme, low, [first, last, unit]) {
  const y = linear(low, 1, height - BOTTOM, TOP);
  const x = linear(Math.log(first), Math.log(last), LEFT, width - 10);
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
  for (const [value, , words] of scaleMarks(first, last, unit, width - LEFT)) {
    context.fillText(words, clamp(x(Math.log(value)), LEFT + 20, width - 30), height - 12);
    context.fillRect(x(Math.log(value)), height - BOTTOM, 1, 4);
  }
  return [x, y];
}

function line(context, found, colour) {
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.beginPath();
  found.forEach(([px, py], i) => (i ? context.lineTo(px, py) : context.moveTo(px, py)));
  context.stroke();
}

function hoursOf(model) {
  return model.get("hours") * 3600 || LONGEST;
}

/** A slider of the work to do, which both readings have. */
function work(model, ask) {
  return slider({ label: "work to do", low: 360, high: LONGEST, value: hoursOf(model), unit: "s", change: (x) => ask("hours", x / 3600) });
}

function protocols(model, ask) {
  const knobs = KNOBS.map(([name, label, low, high, unit, isWhole, none]) => [name,
    slider({ label, low, high, unit, isWhole, none, value: model.get(name), change: (value) => ask(name, value) })]);
  const hours = work(model, ask);
  const redundant = h("input", { type: "checkbox", onchange: () => ask("redundancy", redundant.checked) });
  const objective = choice("objective", OBJECTIVES, (value) => ask("objective", value));
  const axis = choice("over", AXES, (value) => ask("axis", value));
  const answer = h("div", { class: "dh-answer", role: "status", "aria-live": "polite" });
  const rows = h("div");
  const legend = h("div", { class: "dh-row dh-note" });
  const plot = h("div", { class: "dh-plot" });
  const element = h("div", { class: "dh-reading" },
    h("div", { class: "dh-sliders" }, knobs.map(([, one]) => one), hours),
    h("div", { class: "dh-row" }, objective, h("label", {}, redundant, " compare redundancy, which takes up to twice the nodes")),
    answer, rows,
    h("div", { class: "dh-row" }, h("span", { class: "dh-note" }, "share of the time that is work, over"), axis),
    legend, plot);
  const canvas = new Canvas(plot, paint, { height: 200, label: "Efficiency of protections" });

  function bar(parts) {
    return h("span", { class: "dh-bar" }, parts.map(([part, from, to]) => {
      const one = h("span", { title: part.replace("_", " ") });
      one.style.width = `${(to - from) * 100}%`;
      one.style.background = PARTS.find(([name]) => name === part)[1];
      return one;
    }));
  }

  function tell() {
    const { ways, best, reason, notes, curve } = model.get("found");
    const problem = model.get("problem");
    for (const [name, one] of knobs) one.put(model.get(name));
    hours.put(hoursOf(model));
    objective.value = model.get("objective");
    axis.value = model.get("axis");
    redundant.checked = model.get("redundancy");
    canvas.repaint();
    if (problem || !ways) return fill(answer, h("div", { class: "dh-bad" }, problem));
    const parts = segments(ways);
    fill(rows,
      h("div", { class: "dh-row dh-note" }, PARTS.filter(([part]) => ways.some((one) => one.parts[part])).map(([part, colour]) => key(colour, part.replace("_", " ")))),
      h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "protection"), h("th", {}, "where its time goes, and when it commits"), ["time", "work", "energy"].map((words) => h("th", { class: "dh-n" }, words)))),
        h("tbody", {}, ways.map((one, i) => h("tr", {},
          h("td", {}, one.name.replace(" ", "\u00a0")),
          h("td", { class: "dh-wide" }, bar(parts[i]), h("span", { class: "dh-note" }, one.efficiency < HOPELESS ? "hopeless" : whenTold(one.every))),
          h("td", { class: "dh-n" }, one.efficiency < HOPELESS ? "-" : showDuration(one.time)),
          h("td", { class: "dh-n" }, percent(one.efficiency)),
          h("td", { class: "dh-n" }, one.efficiency < HOPELESS ? "-" : showLarge(one.energy, "J")))))));
    fill(legend, Object.keys(curve[0][1]).map((name) => key(PROTOCOLS[name], name)));
    const [first, ...more] = reason.split("; ");
    fill(answer, h("b", {}, first), h("div", { class: "dh-note" }, [...more, ...notes].join("; ")));
    canvas.element.setAttribute("aria-label", `Efficiency of protections; best here is ${best}: ${answer.textContent}`);
  }

  function paint(context, width, height, theme) {
    const { ways, curve } = model.get("found");
    if (!ways || !curve?.length) return;
    const over = model.get("axis");
    const [first, last] = [curve[0][0], curve.at(-1)[0]];
    const [x] = grid(context, width, height, theme, 0, [first, last, AXES.find(([name]) => name === over)[2]]);
    for (const name of Object.keys(curve[0][1])) line(context, points(curve.map(([value, shares]) => [value, shares[name]]), width, height, 0), PROTOCOLS[name]);
    const here = x(Math.log(clamp(model.get(over), first, last)));
    context.setLineDash([4, 4]);
    context.lineWidth = 1;
    context.strokeStyle = theme.faint;
    context.beginPath();
    context.moveTo(here, TOP);
    context.lineTo(here, height - BOTTOM);
    context.stroke();
    context.setLineDash([]);
  }

  return { element, tell, canvas };
}

function commits(model, ask) {
  const controls = h("div", { class: "dh-sliders" });
  const answer = h("div", { class: "dh-answer", role: "status", "aria-live": "polite" });
  const plot = h("div", { class: "dh-plot" });
  const hours = work(model, ask);
  const take = h("button", { onclick: () => ask("levels", structuredClone(model.get("found").levels)) }, "Take the levels of the machine");
  const element = h("div", { class: "dh-reading" }, controls, h("div", { class: "dh-row" }, take), answer,
    h("div", { class: "dh-note" }, "share of the time that is work, by the work between two commits"), plot);
  const canvas = new Canvas(plot, paint, { height: 200, label: "Efficiency by interval" });
  let levels = [];
  let knobs = [];

  /** Sliders for each level, anew only if there are others: somebody may hold one. */
  function show() {
    const names = levels.map((one) => one.name).join();
    levels = structuredClone(model.get("levels"));
    if (!knobs.length || names !== levels.map((one) => one.name).join()) {
      knobs = levels.flatMap((level, i) => [
        knob(i, "commit", `${level.name}: a commit takes`, 0.05, 3600),
        knob(i, "mtbf", `${level.name}: needed every`, 10, 90 * 86400),
      ]);
      fill(controls, knobs.map(([, , one]) => one), hours);
    }
    for (const [i, name, one] of knobs) one.put(levels[i][name]);
    hours.put(hoursOf(model));
    take.disabled = !model.get("found").levels;
  }

  function knob(i, name, label, low, high) {
    return [i, name, slider({ label, low, high, value: levels[i][name], unit: "s", change: (value) => {
      levels[i][name] = value;
      ask("levels", structuredClone(levels));
    } })];
  }

  function tell() {
    const { every, efficiency, reason } = model.get("found");
    const problem = model.get("problem");
    show();
    fill(answer, problem ? h("div", { class: "dh-bad" }, problem) : [
      h("b", {}, Object.entries(every ?? {}).map(([name, seconds]) => `${name}: ${seconds === null ? "never" : `every ${showDuration(seconds)}`}`).join("; ")),
      h("div", { class: "dh-note" }, `${((efficiency ?? 0) * 100).toFixed(1)} % of the time is work; ${reason ?? ""}`),
    ]);
    canvas.element.setAttribute("aria-label", `Efficiency by interval: ${answer.textContent}`);
    canvas.repaint();
  }

  function paint(context, width, height, theme) {
    const { every, curve, work: planned, efficiency } = model.get("found");
    if (!every || !curve?.length) return;
    const [x, y] = grid(context, width, height, theme, lowest(curve), [curve[0][0], curve.at(-1)[0], "s"]);
    line(context, points(curve, width, height), theme.accent);
    if (planned) {
      context.fillStyle = theme.accent;
      context.beginPath();
      context.arc(x(Math.log(planned)), y(efficiency), 5, 0, 7);
      context.fill();
    }
  }

  return { element, tell, canvas };
}

function render({ model, el }) {
  const ask = asker(model);
  const reading = choice("reading", READINGS, (value) => ask("reading", value));
  const pages = { protocols: protocols(model, ask), commits: commits(model, ask) };
  claim(el, "dh-resilience");
  el.append(h("h3", {}, "Surviving failures", reading), ...Object.values(pages).map((one) => one.element));

  function tell() {
    const now = model.get("reading");
    reading.value = now;
    for (const [name, one] of Object.entries(pages)) one.element.hidden = name !== now;
    pages[now].tell();
  }

  const traits = ["found", "problem", "reading", "levels", "hours"].map((name) => `change:${name}`).join(" ");
  tell();
  model.on(traits, tell);
  return () => {
    model.off(traits, tell);
    for (const one of Object.values(pages)) one.canvas.remove();
  };
}

export default { render };
