// Nodes downwards, time to the right, a block for what a job holds; beside it the queue.

import { Canvas } from "./shared/canvas.js";
import { Numbering, colourOf, inkOn, patternOf } from "./shared/colours.js";
import { follow, forget, stateOf } from "./shared/course.js";
import { Tip, claim, fill, h } from "./shared/page.js";
import { clamp, hasMoved, linear, shifted, zoomed } from "./shared/scale.js";
import { Segments } from "./shared/segments.js";
import { countOf, showClock, showDuration, showLarge, timeTicks } from "./shared/units.js";

const LEFT = 92;
const BOTTOM = 22;
const TOP = 4;
const SHOWN = 600;
const LEAST = 5;
const MOST_WAITING = 40;
const KEPT = 2 * 3600;

/** All that is drawn, without a page: what is held, who waits, what is seen of it. */
export class Picture {
  constructor() {
    this.numbering = new Numbering();
    this.clear();
    /** The window of time that people chose; null follows the present. */
    this.chosen = null;
    this.length = SHOWN;
    this.isOver = false;
    /** First and last row that is seen. */
    this.rows = null;
  }

  /** Everything comes anew; what people chose to see stays. */
  clear() {
    this.segments = new Segments();
    this.names = [];
    this.gone = new Set();
    this.jobs = new Map();
    this.watts = new Map();
    this.now = 0;
  }

  add(news) {
    this.numbering.add(news);
    if (news.head) this.now = news.head.time;
    // what is over is seen as a whole
    if (news.head?.state === "simulated") {
      this.isOver = true;
      this.length = Infinity;
      this.since = news.head.begin;
    }
    if (news.nodes) {
      this.names = news.nodes.names;
      this.gone = new Set(news.nodes.gone.flatMap(([first, last]) => range(first, last)));
    }
    if (news.changes) {
      this.segments.add(news.changes);
    }
    for (const job of news.jobs ?? []) this.jobs.set(job.id, job);
    forget(this.jobs, 20_000);
    if (news.power_now) this.watts = new Map(Object.entries(news.power_now.jobs ?? {}));
  }

  get begin() {
    // a live one begins at 0, idle
    return this.since ?? Math.min(this.segments.first, this.isOver ? this.now : 0);
  }

  get window() {
    if (this.chosen) return this.chosen;
    const from = Math.max(this.begin, this.now - this.length);
    return [from, Math.max(this.now, from + Math.min(this.length, 30))];
  }

  get seenRows() {
    return this.rows ?? [0, Math.max(0, this.names.length - 1)];
  }

  scales(width, height) {
    const [from, to] = this.window;
    const [first, last] = this.seenRows;
    return {
      x: linear(from, to, LEFT, width),
      y: linear(first, last + 1, TOP, height - BOTTOM),
    };
  }

  /** Visit the rectangles to fill: visit(left, top, width, height, block). They are thousands several times a
   * second: a list of them would make the page's memory grow. */
  blocks(width, height, visit) {
    const { x, y } = this.scales(width, height);
    const [from, to] = this.window;
    const [first, last] = this.seenRows;
    this.segments.between(from, to, (one) => {
      if (one.last < first || one.first > last) return;
      const left = Math.max(LEFT, x(one.start));
      const right = Math.min(width, x(one.end ?? Math.max(this.now, one.start)));
      const top = y(Math.max(one.first, first));
      const bottom = y(Math.min(one.last, last) + 1);
      visit(left, top, Math.max(0.5, right - left), bottom - top, one);
    });
  }

  /** The node and the time at a place, and what is there. */
  at(px, py, width, height) {
    if (px < LEFT || py < TOP || py > height - BOTTOM) return null;
    const { x, y } = this.scales(width, height);
    const [first, last] = this.seenRows;
    const node = clamp(Math.floor(y.invert(py)), first, last);
    const time = x.invert(px);
    return { node, time, block: time <= this.now ? this.segments.find(node, time) : undefined };
  }

  zoom(around, factor) {
    this.chosen = zoomed(this.window, around, factor, this.begin, this.now, LEAST);
    this.followIfAtEnd();
  }

  pan(seconds) {
    this.chosen = shifted(this.window, seconds, this.begin, this.now);
    this.followIfAtEnd();
  }

  followIfAtEnd() {
    const [from, to] = this.chosen;
    if (to >= this.now - 1e-6) {
      this.length = to - from;
      this.chosen = null;
    }
  }

  /** Rows too: from one place to another, as a brush selects. */
  select(a, b) {
    const [from, to] = [a.time, b.time].sort((one, other) => one - other);
    if (to - from >= LEAST / 10) this.chosen = [from, to];
    const rows = [a.node, b.node].sort((one, other) => one - other);
    this.rows = rows[0] < rows[1] ? rows : this.rows;
  }

  reset() {
    this.chosen = null;
    this.rows = null;
    this.length = this.isOver ? Infinity : SHOWN;
  }

  /** Its name, and how it ended if not well. */
  nameOf(job) {
    const known = this.jobs.get(job);
    if (!known) return job;
    const state = stateOf(known);
    return ["running", "waiting", "done"].includes(state) ? known.name : `${known.name} (${state})`;
  }

  get waiting() {
    return [...this.jobs.values()]
      .filter((job) => job.state === "waiting")
      .sort((a, b) => a.submitted - b.submitted);
  }

  tip({ node, time, block }) {
    const lines = [this.names[node] ?? `node ${node}`, showClock(time)];
    if (!block) return [...lines, this.gone.has(node) ? "not there now" : "nobody's"];
    const held = showDuration((block.end ?? this.now) - block.start);
    const watts = block.end === null ? this.watts.get(block.job) : undefined;
    return [
      `${this.nameOf(block.job)} on ${lines[0]}`,
      `${showClock(block.start)}, for ${held}${block.end === null ? " so far" : ""}`,
      watts ? `${showLarge((watts[0] + watts[1]) / 2, "W")} on all its nodes` : null,
      block.reason,
    ].filter(Boolean);
  }

  /** One line for those who do not see the picture. */
  get summary() {
    if (!this.names.length) return this.isOver ? "not recorded: simulate(..., allotments=True)" : "no node yet";
    const running = new Set([...this.segments.open].map((one) => one.job));
    const there = this.names.length - this.gone.size;
    if (this.isOver) return `${countOf(there, "node")}, ${showDuration(this.now)}`;
    return `${countOf(there, "node")}, ${countOf(running.size, "job")} running, ${this.waiting.length} waiting`;
  }
}

/** Pixels for so many nodes where nobody says how many there are to be. */
function heightFor(nodes) {
  return clamp(nodes * 20 + TOP + BOTTOM, 140, 420);
}

function range(first, last) {
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

function paint(picture, context, width, height, theme) {
  const { x, y } = picture.scales(width, height);
  const [first, last] = picture.seenRows;
  const floor = height - BOTTOM;
  context.fillStyle = theme.idle;
  const begin = Math.max(LEFT, x(picture.begin));
  context.fillRect(begin, TOP, Math.max(0, x(picture.now) - begin), floor - TOP);
  context.fillStyle = theme.gone;
  for (const node of picture.gone) {
    if (node >= first && node <= last) {
      context.fillRect(begin, y(node), Math.max(0, x(picture.now) - begin), y(node + 1) - y(node));
    }
  }
  const gap = y(1) - y(0) > 6 ? 1 : 0;
  picture.blocks(width, height, (left, top, wide, high, one) => {
    const number = picture.numbering.of(one.job);
    const colour = colourOf(number);
    context.fillStyle = colour;
    context.fillRect(left, top + gap / 2, wide, Math.max(0.5, high - gap));
    if (patternOf(number)) hatch(context, left, top, wide, high, patternOf(number), inkOn(colour));
    label(context, picture.nameOf(one.job), left, top, wide, high, inkOn(colour));
  });
  axes(picture, context, width, floor, x, y, theme);
}

function hatch(context, left, top, wide, high, pattern, ink) {
  if (wide < 6 || high < 6) return;
  context.save();
  context.beginPath();
  context.rect(left, top, wide, high);
  context.clip();
  context.strokeStyle = ink;
  context.globalAlpha = 0.25;
  context.beginPath();
  for (let at = -high; at < wide; at += 9) {
    context.moveTo(left + at, pattern === 1 ? top + high : top);
    context.lineTo(left + at + high, pattern === 1 ? top : top + high);
  }
  context.stroke();
  context.restore();
}

function label(context, text, left, top, wide, high, ink) {
  if (high < 12 || wide < 26) return;
  const letters = Math.floor((wide - 8) / 6.8);
  if (letters < 3) return;
  context.fillStyle = ink;
  context.textAlign = "left";
  context.fillText(text.length > letters ? `${text.slice(0, letters - 1)}…` : text, left + 4, top + high / 2);
}

function axes(picture, context, width, floor, x, y, theme) {
  const [from, to] = picture.window;
  context.fillStyle = theme.faint;
  context.strokeStyle = theme.line;
  context.textAlign = "center";
  context.beginPath();
  for (const time of timeTicks(Math.max(0, from), to, (width - LEFT) / 90)) {
    context.moveTo(x(time), floor);
    context.lineTo(x(time), floor + 4);
    context.fillText(showClock(time), clamp(x(time), LEFT + 14, width - 20), floor + 13);
  }
  context.stroke();
  const [first, last] = picture.seenRows;
  const step = Math.max(1, Math.ceil(13 / Math.max(0.01, y(1) - y(0))));
  context.textAlign = "right";
  for (let node = first; node <= last && node < picture.names.length; node += step) {
    const name = picture.names[node];
    const text = name.length > 13 ? `…${name.slice(-12)}` : name;
    context.fillText(text, LEFT - 6, clamp((y(node) + y(Math.min(node + 1, last + 1))) / 2, 8, floor - 4));
  }
}

function queue(picture) {
  if (picture.isOver) return [];
  const waiting = picture.waiting;
  if (!waiting.length) return [h("div", { class: "dh-note" }, "No job waits.")];
  return [
    ...waiting.slice(0, MOST_WAITING).map((job) => {
      const chip = h("i", { class: "dh-chip" });
      chip.style.background = colourOf(picture.numbering.of(job.id));
      const since = showDuration(picture.now - job.submitted);
      return h(
        "div",
        { class: "dh-waits", title: job.waiting_because ?? "" },
        chip,
        h("b", {}, job.name),
        ` ${countOf(job.asks, "node")}, ${since}`,
        h("div", { class: "dh-note" }, job.waiting_because ?? ""),
      );
    }),
    waiting.length > MOST_WAITING ? h("div", {}, `and ${waiting.length - MOST_WAITING} more`) : null,
  ];
}

function render({ model, el }) {
  const picture = new Picture();
  const note = h("small", { "aria-live": "off" });
  const back = h("button", { onclick: reset, hidden: true }, "Follow the present");
  const plot = h("div", { class: "dh-plot" });
  const side = h("div", { class: "dh-queue dh-scroll", "aria-label": "Jobs that wait", tabindex: "0" });
  const height = model.get("height") ?? heightFor(model.get("course")?.nodes?.names.length ?? 16);
  side.style.maxHeight = `${height}px`;
  claim(el, "dh-allotments");
  el.append(
    h("h3", {}, "Who holds which node", note, back),
    h("div", { class: "dh-split" }, plot, side),
  );
  const canvas = new Canvas(plot, (...where) => paint(picture, ...where), {
    height,
    label: "Nodes over time",
  });
  const tip = new Tip(plot);
  let brush = null;
  let sideSeen = -Infinity;
  let painted = 0;

  function changed(isSeen = true) {
    // other views of a page show the same time
    if (model.get("window") !== picture.chosen) model.set("window", picture.chosen);
    if (isSeen) {
      canvas.repaint();
      painted = picture.now;
    }
    back.hidden = !picture.chosen && !picture.rows;
    if (performance.now() - sideSeen > 400) {
      sideSeen = performance.now();
      note.textContent = model.get("problem") || picture.summary;
      side.hidden = picture.isOver;
      side.parentElement.classList.toggle("dh-whole", picture.isOver);
      canvas.element.setAttribute("aria-label", `Nodes over time: ${picture.summary}`);
      fill(side, queue(picture));
    }
  }

  function reset() {
    picture.reset();
    sideSeen = -Infinity;
    changed();
  }

  function at(event) {
    const [x, y] = Canvas.place(event);
    return picture.at(x, y, canvas.width, canvas.height);
  }

  canvas.element.addEventListener("pointermove", (event) => {
    const place = at(event);
    if (!place) return tip.hide();
    tip.show(...Canvas.place(event), picture.tip(place));
  });
  canvas.element.addEventListener("pointerleave", () => tip.hide());
  canvas.element.addEventListener("pointerdown", (event) => {
    brush = at(event);
    canvas.element.setPointerCapture(event.pointerId);
  });
  canvas.element.addEventListener("pointerup", (event) => {
    const place = at(event);
    if (brush && place && (Math.abs(place.time - brush.time) > 0 || place.node !== brush.node)) {
      picture.select(brush, place);
      sideSeen = -Infinity;
      changed();
    }
    brush = null;
  });
  canvas.element.addEventListener("dblclick", reset);
  canvas.element.addEventListener(
    "wheel",
    (event) => {
      const place = at(event);
      if (!place || !(event.ctrlKey || event.shiftKey)) return;
      event.preventDefault();
      picture.zoom(place.time, event.deltaY > 0 || event.deltaX > 0 ? 1.25 : 0.8);
      changed();
    },
    { passive: false },
  );
  canvas.element.addEventListener("keydown", (event) => {
    const [from, to] = picture.window;
    const deeds = {
      ArrowLeft: () => picture.pan(-(to - from) / 5),
      ArrowRight: () => picture.pan((to - from) / 5),
      "+": () => picture.zoom((from + to) / 2, 0.8),
      "-": () => picture.zoom((from + to) / 2, 1.25),
      Escape: () => picture.reset(),
    };
    if (!deeds[event.key]) return;
    event.preventDefault();
    deeds[event.key]();
    sideSeen = -Infinity;
    changed();
  });

  const end = follow(model, (news, isWhole) => {
    if (isWhole) picture.clear();
    picture.add(news);
    if (!picture.isOver) picture.segments.forget(picture.now - KEPT);
    const pixels = (canvas.width - LEFT) * devicePixelRatio;
    changed(isWhole || "nodes" in news || hasMoved(picture.window, picture.now - painted, pixels));
  });
  const moved = () => {
    if (picture.chosen === model.get("window")) return;
    picture.chosen = model.get("window");
    changed();
  };
  const complain = () => changed(false);
  model.on("change:window", moved);
  model.on("change:problem", complain);
  return () => {
    end();
    model.off("change:problem", complain);
    model.off("change:window", moved);
    canvas.remove();
  };
}

export default { render };
