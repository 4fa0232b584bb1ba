// Two runs on one axis of time: who held which node in each, the power of both, and what differs.

import { EDGE, TimePicture, axisOf, wattLines } from "./shared/axis.js";
import { Model } from "./shared/document.js";
import { claim, fill, h, views } from "./shared/page.js";
import { clamp, linear } from "./shared/scale.js";
import { showLarge, ticks } from "./shared/units.js";

const TOP = 10;
/** Seconds seen of a run that goes on, beside nothing that is longer. */
const USUAL = 600;
const KEPT = 7200;
/** A colour of the theme or any, and dashes: who cannot tell colours apart sees those. */
const LINES = [["accent", []], ["#d55e00", [7, 4]]];
const SHARED = ["window", "cursor", "pointed"];

/** Power of one run, and its bounds. */
export class PowerOf {
  constructor() {
    this.clear();
  }

  clear() {
    this.samples = [];
    this.head = { begin: 0, time: 0, state: "", epoch: null };
  }

  add({ head, samples }) {
    if (head) this.head = { begin: head.begin ?? 0, time: head.time, state: head.state, epoch: head.epoch ?? null };
    if (samples) this.samples.push(...samples);
    if (!this.isOver && this.samples.length > KEPT) this.samples.splice(0, this.samples.length - KEPT);
  }

  get isOver() {
    return this.head.state === "simulated";
  }

  /** The sample that holds at a time; undefined before the first and after the end. */
  at(time) {
    return time > this.head.time ? undefined : this.samples.findLast((one) => one[0] <= time);
  }

  get most() {
    let most = 0;
    for (const [, watts, , upper] of this.samples) most = Math.max(most, watts, upper ?? 0);
    return most;
  }
}

/** All that there is to see of both: from the first begin to the last end; of what goes on the last part. */
export function wholeWindow(heads) {
  const isOver = (head) => head.state === "simulated";
  const length = Math.max(USUAL, ...heads.filter(isOver).map((head) => head.time - head.begin));
  const begins = heads.map((head) => (isOver(head) ? head.begin : Math.max(head.begin, head.time - length)));
  const [from, to] = [Math.min(...begins), Math.max(...heads.map((head) => head.time))];
  return [from, Math.max(to, from + 1)];
}

/** Lines about the power of both at a time; null where neither has any. */
export function powerTip(powers, names, time, show) {
  const found = powers.map((power) => power.at(time)?.[1]);
  if (found.every((one) => one === undefined)) return null;
  const lines = names.map((name, i) => `${name}: ${found[i] === undefined ? "-" : showLarge(found[i], "W")}`);
  const more = found[1] - found[0];
  const differs = Number.isNaN(more) ? [] : [`${more < 0 ? "\u2212" : "+"}${showLarge(Math.abs(more), "W")}`];
  return [show(time), ...lines, ...differs];
}

function colourIn(theme, colour) {
  return theme[colour] ?? colour;
}

/** A line in steps where it is known how it went on, straight from reading to reading elsewhere. */
function drawLine(context, power, place, x, y) {
  context.beginPath();
  let before = null;
  for (const sample of power.samples) {
    const value = place(sample);
    if (value === null || value === undefined) {
      before = null;
      continue;
    }
    if (before === null) context.moveTo(x(sample[0]), y(value));
    else if (power.isOver) context.lineTo(x(sample[0]), y(before));
    context.lineTo(x(sample[0]), y(value));
    before = value;
  }
  if (power.isOver && before !== null) context.lineTo(x(power.head.time), y(before));
  context.stroke();
}

function paintPower(powers, context, width, floor, theme, x) {
  const top = Math.max(1, ...powers.map((power) => power.most)) * 1.1;
  const y = linear(0, top, floor, TOP);
  const right = width - EDGE.right;
  wattLines(context, top, right, floor, theme, y);
  context.save();
  context.beginPath();
  context.rect(EDGE.left, 0, right - EDGE.left, floor);
  context.clip();
  powers.forEach((power, i) => {
    context.setLineDash(LINES[i][1]);
    context.strokeStyle = theme.good;
    context.lineWidth = 1;
    drawLine(context, power, (sample) => sample[3], x, y);
    drawLine(context, power, (sample) => (sample[2] > 0 ? sample[2] : null), x, y);
    context.strokeStyle = colourIn(theme, LINES[i][0]);
    context.lineWidth = 1.8;
    drawLine(context, power, (sample) => sample[1], x, y);
  });
  context.setLineDash([]);
  context.restore();
}

/** Whether any bound is drawn. */
function isBound(powers) {
  return powers.some((power) => power.samples.some(([, , lower, upper]) => lower > 0 || (upper !== null && upper !== undefined)));
}

function sample(number) {
  const [colour, dashes] = LINES[number];
  const line = h("i", { class: "dh-sample", "aria-hidden": "true" });
  line.style.borderTopColor = colour.startsWith("#") ? colour : `var(--dh-${colour})`;
  if (dashes.length) line.style.borderTopStyle = "dashed";
  return line;
}

/** The same to all that look at one time: what one sets, all have. answers(name, value, model) may say otherwise. */
export function together(models, answer) {
  let isSpreading = false;
  const ends = models.flatMap((model) => SHARED.map((name) => {
    const take = () => {
      if (isSpreading) return;
      isSpreading = true;
      const value = answer(name, model.get(name) ?? null);
      for (const one of models) if ((one.get(name) ?? null) !== value) one.set(name, value);
      isSpreading = false;
    };
    model.on(`change:${name}`, take);
    return () => model.off(`change:${name}`, take);
  }));
  return () => ends.forEach((end) => end());
}

/** What compares two: courses, one of which may be null, which is then what the model follows; or figures only. */
function render({ model, el }) {
  const names = model.get("names");
  const courses = model.get("courses");
  const table = h("div", { class: "dh-scroll" });
  const about = h("div", { class: "dh-note" });
  const ends = [];
  claim(el, "dh-compare");
  el.append(h("h3", {}, `${names[0]} and ${names[1]}`));
  if (model.get("has_pictures") ?? courses.some(Boolean)) ends.push(pictures(model, el, names, courses));
  el.append(table, about);

  function show() {
    about.textContent = model.get("about");
    const rows = model.get("table");
    const kind = { better: "dh-good", worse: "dh-bad" };
    fill(table, rows.length ? h("table", {},
      h("thead", {}, h("tr", {}, h("td", {}), names.map((name) => h("th", { class: "dh-n", scope: "col" }, name)), h("th", { class: "dh-n", scope: "col" }, "difference"), h("td", {}))),
      h("tbody", {}, rows.map(([words, a, b, more, verdict]) => h("tr", {}, h("th", { scope: "row" }, words),
        [a, b, more].map((one) => h("td", { class: "dh-n" }, one)), h("td", { class: kind[verdict] ?? "dh-note" }, verdict))))) : []);
  }

  model.on("change:table change:about", show);
  show();
  return () => {
    model.off("change:table change:about", show);
    ends.forEach((end) => end());
  };
}

function pictures(model, el, names, courses) {
  const powers = [new PowerOf(), new PowerOf()];
  let isWhole = true;
  let whole = [0, 1];
  const models = courses.map((course) => new Model({ course: course ?? {}, height: 170, beside: true, readonly: true }, (message) => course || model.send(message)));
  const both = new Model({ beside: true, readonly: true });
  const all = [...models, both];
  for (const one of all) axisOf(one).hasToolbar = true;
  const quiet = together(all, (name, value) => {
    if (name !== "window") return value;
    isWhole = value === null;
    back.disabled = isWhole;
    return value ?? whole;
  });
  const back = h("button", { type: "button", disabled: true, onclick: () => both.set("window", null) }, "See all");
  el.append(h("div", { class: "dh-row" }, back, h("span", { class: "dh-note" }, "Drag: see what is between two times. Ctrl or Shift and wheel: zoom. Escape: see all.")));

  const ends = models.map((one, i) => {
    const place = h("div", { class: "dh-view" });
    el.append(place);
    const end = views.allotment_map.render({ model: one, el: place });
    place.querySelector("h3").firstChild.replaceWith(sample(i), names[i]);
    // the times are below the last picture
    axisOf(one).pictures.push({ isSeen: true, given: {} });
    return end;
  });

  const note = h("small");
  const plot = h("div", { class: "dh-plot" });
  el.append(h("h3", {}, "Power of both", note), plot);
  const drawn = new TimePicture(both, plot, {
    name: "Power of both over time",
    height: 170,
    paint: (...where) => paintPower(powers, ...where),
    tip: (px) => powerTip(powers, names, drawn.timeAt(px), (time) => drawn.axis.show(time)),
  });

  function see(i, news, isNew) {
    if (isNew) powers[i].clear();
    powers[i].add(news);
    const now = wholeWindow(powers.map((one) => one.head));
    const epoch = powers.find((one) => one.head.epoch !== null)?.head.epoch ?? null;
    drawn.axis.add({ head: { begin: now[0], time: now[1], state: "simulated", epoch } });
    const isMoved = Math.abs(now[1] - whole[1]) * 1000 > now[1] - now[0] || now[0] !== whole[0];
    if (isMoved) whole = now;
    if (isMoved && isWhole) both.set("window", null);
    const isThere = powers.some((one) => one.samples.length);
    // without power it is the axis alone
    drawn.canvas.element.style.height = isThere ? "170px" : "34px";
    plot.previousElementSibling.hidden = !isThere;
    note.textContent = isBound(powers) ? "green: the corridor" : "";
    drawn.repaint();
  }

  const heard = (message) => {
    const live = courses.findIndex((one) => !one);
    if (message.whole) see(live, message.whole, true);
    else if (message.news) see(live, message.news, false);
    models[live].tell("msg:custom", message);
  };
  courses.forEach((course, i) => course && see(i, course, true));
  if (courses.some((one) => !one)) {
    model.on("msg:custom", heard);
    model.send({ do: "whole" });
  }
  return () => {
    model.off("msg:custom", heard);
    quiet();
    ends.forEach((end) => end?.());
    drawn.remove();
  };
}

export default { render };
