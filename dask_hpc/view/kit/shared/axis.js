// One axis of time for all pictures of a page: what is seen of it, where the pointer is, and what hands do.

import { onTheWall } from "./moment.js";
import { Canvas } from "./canvas.js";
import { Tip, fill, h } from "./page.js";
import { clamp, hasMoved, linear, shifted, zoomed } from "./scale.js";
import { showClock, showLarge, ticks, timeTicks } from "./units.js";

/** Pixels beside what is drawn, the same for all pictures: names to the left, a handle's half to the right. */
export const EDGE = { left: 92, right: 10 };
/** Seconds shown at first, at least, and kept; the part of a picture that lies ahead of now. */
const SPAN = { shown: 600, least: 5, young: 20, kept: 7200, ahead: 0.2 };

/** The window of time that is seen. It follows the present until people choose one. */
export class TimeAxis {
  constructor() {
    /** What people chose: [from, to]; null follows the present. */
    this.chosen = null;
    /** Seconds before now that are seen while it follows. */
    this.length = SPAN.shown;
    this.now = this.begin = 0;
    this.isOver = false;
    this.policy = "";
    /** Wall-clock time at 0, if somebody knows. */
    this.epoch = null;
    /** Whether anything is drawn to the right of now, and the last time for which something is planned. */
    this.hasFuture = false;
    this.planned = 0;
    /** What is drawn along it, from the top down; each says whether it is seen. */
    this.pictures = [];
    this.hasToolbar = false;
    this.listeners = new Set();
  }

  add({ head, corridor, samples }) {
    if (samples?.length || corridor?.length) this.hasFuture = true;
    if (corridor !== undefined) this.planned = corridor?.at(-1)?.[0] ?? 0;
    if (head?.time === undefined) return;
    this.now = head.time;
    this.policy = head.policy ?? "";
    this.epoch = head.epoch ?? null;
    this.begin = head.begin ?? 0;
    if (this.isOver === (head.state === "simulated")) return;
    this.isOver = !this.isOver;
    this.tell(); // the way back has another name
  }

  /** The share of the picture right of now while it follows. */
  get ahead() {
    return this.hasFuture && !this.isOver ? SPAN.ahead : 0;
  }

  get earliest() {
    return this.isOver ? this.begin : Math.max(this.begin, this.now - SPAN.kept);
  }

  get window() {
    if (this.chosen) return this.chosen;
    if (this.isOver) return [this.begin, Math.max(this.now, this.begin + 1e-6)];
    const from = Math.max(this.begin, this.now - this.length);
    const past = Math.max(this.now - from, Math.min(this.length, SPAN.young));
    return [from, from + past / (1 - this.ahead)];
  }

  get isFollowing() {
    return this.chosen === null;
  }

  /** The latest time that a window of that length may reach. */
  latest(length) {
    return Math.max(this.now + length * this.ahead, this.isOver ? 0 : this.planned + length * 0.05);
  }

  scale(width) {
    const [from, to] = this.window;
    return linear(from, to, EDGE.left, width - EDGE.right);
  }

  /** Nearer (below 1) or further away, around a time or what is in the middle; around now while it follows. */
  zoom(factor, around = null) {
    if (this.chosen === null && around === null && !this.isOver) {
      this.length = clamp(Math.min(this.length, this.now - this.earliest || this.length) * factor, SPAN.least, SPAN.kept);
      return this.tell();
    }
    const [from, to] = this.window;
    const length = (to - from) * factor;
    const found = zoomed([from, to], around ?? (from + to) / 2, factor, this.earliest, this.latest(length), SPAN.least);
    this.choose(...found);
  }

  /** By a share of what is seen. */
  pan(share) {
    const [from, to] = this.window;
    this.choose(...shifted([from, to], share * (to - from), this.earliest, this.latest(to - from)));
  }

  /** See what is between two times, in any order. What ends where the present would be follows it. */
  choose(one, other) {
    const [from, to] = one < other ? [one, other] : [other, one];
    const length = to - from;
    if (length < SPAN.least / 50) return;
    if (this.isOver) {
      const isAll = from <= this.begin + length * 1e-6 && to >= this.now - length * 1e-6;
      this.chosen = isAll ? null : [from, to];
      return this.tell();
    }
    const off = Math.abs(to - (this.now + length * this.ahead));
    this.chosen = off <= length * 0.02 ? null : [from, to];
    if (this.chosen === null) this.length = length * (1 - this.ahead);
    this.tell();
  }

  /** Follow the present again, as at first. */
  follow() {
    this.chosen = null;
    this.length = SPAN.shown;
    this.tell();
  }

  /** "14:03:10", with its day unless that is today's on this clock. */
  wall(time) {
    return onTheWall(this.epoch, time, new Date(1000 * (this.epoch + this.now)));
  }

  /** "0:45 · 14:03:10". */
  show(time) {
    const wall = this.wall(time);
    return wall ? `${showClock(time)} · ${wall}` : showClock(time);
  }

  /** Be told when it is another window. Answers how to end it. */
  listen(take) {
    this.listeners.add(take);
    return () => this.listeners.delete(take);
  }

  tell() {
    for (const take of this.listeners) take();
  }
}

const AXES = new WeakMap();

/** The axis of all pictures on one model, whose window it shares with others that look at it. */
export function axisOf(model) {
  let axis = AXES.get(model);
  if (axis) return axis;
  AXES.set(model, (axis = new TimeAxis()));
  axis.chosen = model.get("window") ?? null;
  axis.listen(() => {
    if ((model.get("window") ?? null) !== axis.chosen) model.set("window", axis.chosen);
  });
  model.on("change:window", () => {
    const chosen = model.get("window") ?? null;
    if (chosen === axis.chosen) return;
    axis.chosen = chosen;
    axis.tell();
  });
  return axis;
}

/** What a colour, or a sign in it, means: the colour may be the theme's name of one. */
export function swatch([colour, words, glyph]) {
  const sign = h("i", { class: glyph ? "dh-glyph" : "dh-chip", "aria-hidden": "true" }, glyph ?? "");
  sign.style[glyph ? "color" : "background"] = colour.startsWith("#") ? colour : `var(--dh-${colour})`;
  return h("span", {}, sign, words);
}

/** What keys do to an axis; whether that one does anything. */
export function pressed(axis, key) {
  const deeds = {
    ArrowLeft: () => axis.pan(-0.2),
    ArrowRight: () => axis.pan(0.2),
    "+": () => axis.zoom(0.8),
    "=": () => axis.zoom(0.8),
    "-": () => axis.zoom(1.25),
    Escape: () => axis.follow(),
  };
  deeds[key]?.();
  return key in deeds;
}

/** A picture along the axis. What it is given: name, height, and paint(context, width, floor, theme, x), which draws
 * between the top and the floor; below come the times, if it is the lowest that is seen. It may be given
 * tip(px, py, height), lines for a place; brushed(from, to), true if it did what is to be done about two places
 * [px, py]; key(event), likewise; left(), when the pointer goes; legend, pairs of a colour and words. */
export class TimePicture {
  constructor(model, plot, given) {
    this.model = model;
    this.axis = axisOf(model);
    this.given = given;
    this.painted = 0;
    /** Where the pointer is, and where a brush began: [px, py]. */
    this.pointer = null;
    this.brush = null;
    const { height, name } = given;
    this.canvas = new Canvas(plot, (...where) => this.paint(...where), { height, label: name });
    this.line = h("div", { class: "dh-cursor", hidden: true, "aria-hidden": "true" }, h("span"));
    this.rubber = h("div", { class: "dh-rubber", hidden: true }, h("span"));
    /** What the colours mean, for a heading. */
    this.legend = h("span", { class: "dh-legend" });
    this.legendTold = -Infinity;
    plot.append(this.line, this.rubber);
    this.tip = new Tip(plot);
    this.axis.pictures.push(this);
    this.hear();
    this.quiet = this.axis.listen(() => this.repaint());
    this.move = () => this.placeCursor();
    model.on("change:cursor", this.move);
  }

  get isSeen() {
    return this.canvas.width > 0;
  }

  /** Pixels below what is drawn. */
  get foot() {
    if (this.axis.pictures.findLast((one) => one.isSeen) !== this) return 5;
    return this.axis.epoch === null ? 20 : 33;
  }

  get floor() {
    return this.canvas.height - this.foot;
  }

  repaint() {
    this.canvas.repaint();
  }

  /** Repaint if what is seen has moved by half a pixel since, or something else is new. */
  follow(isNew) {
    const pixels = (this.canvas.width - EDGE.left) * devicePixelRatio;
    if (isNew || hasMoved(this.axis.window, this.axis.now - this.painted, pixels)) this.repaint();
    if (performance.now() - this.legendTold > 500) this.tellLegend();
  }

  tellLegend() {
    this.legendTold = performance.now();
    const found = this.given.legend?.() ?? [];
    const words = JSON.stringify(found);
    if (words === this.legendWords) return;
    this.legendWords = words;
    fill(this.legend, found.map(swatch));
    this.legend.title = found.map((one) => one[1]).join(", ");
  }

  paint(context, width, height, theme) {
    this.painted = this.axis.now;
    const floor = height - this.foot;
    const x = this.axis.scale(width);
    this.given.paint(context, width, floor, theme, x);
    if (this.foot > 5) this.times(context, width, floor, theme, x);
    if (this.pointer && !this.brush) this.point(...this.pointer);
    this.placeCursor();
  }

  times(context, width, floor, theme, x) {
    const { axis } = this;
    const [from, to] = axis.window;
    const end = axis.isOver ? Math.min(to, axis.now) : to;
    context.fillStyle = theme.faint;
    context.strokeStyle = theme.line;
    context.lineWidth = 1;
    context.textAlign = "center";
    context.beginPath();
    const isLong = axis.epoch !== null && to - from > 43_200;
    for (const time of timeTicks(Math.max(axis.begin, from), end, (width - EDGE.left) / (isLong ? 120 : 90))) {
      context.moveTo(x(time), floor);
      context.lineTo(x(time), floor + 4);
      const place = clamp(x(time), EDGE.left + (axis.epoch === null ? 14 : 26), width - 26);
      context.fillText(showClock(time), place, floor + 12);
      const wall = axis.wall(time);
      if (wall) context.fillText(wall, place, floor + 25);
    }
    context.stroke();
    context.textAlign = "right";
    context.fillText("elapsed", EDGE.left - 24, floor + 12);
    if (axis.epoch !== null) context.fillText("clock", EDGE.left - 24, floor + 25);
  }

  /** The pointer is there: the time that it points to is everybody's. */
  point(px, py) {
    const time = this.timeAt(px);
    if (this.model.get("cursor") !== time) this.model.set("cursor", time);
  }

  timeAt(px) {
    return this.axis.scale(this.canvas.width).invert(px);
  }

  placeCursor() {
    const time = this.model.get("cursor") ?? null;
    const [from, to] = this.axis.window;
    this.line.hidden = time === null || time < from || time > to;
    if (this.line.hidden) return;
    const isLowest = this.foot > 5;
    this.line.style.height = `${this.floor}px`;
    this.line.style.transform = `translateX(${this.axis.scale(this.canvas.width)(time)}px)`;
    this.line.firstChild.hidden = !isLowest;
    if (isLowest) this.line.firstChild.textContent = this.axis.show(Math.round(time * 10) / 10);
  }

  leave() {
    this.pointer = null;
    this.tip.hide();
    this.model.set("cursor", null);
    this.given.left?.();
  }

  isInside(px, py) {
    return px >= EDGE.left && px <= this.canvas.width - EDGE.right && py >= 0 && py <= this.floor;
  }

  tell(px, py) {
    const lines = this.given.tip?.(px, py, this.floor);
    if (lines) this.tip.show(px, py, lines);
    else this.tip.hide();
  }

  hear() {
    const { element } = this.canvas;
    const on = (name, take, options) => element.addEventListener(name, take, options);
    on("pointermove", (event) => {
      const [px, py] = Canvas.place(event);
      if (this.brush) return this.stretch(px, py);
      if (!this.isInside(px, py)) return this.leave();
      this.pointer = [px, py];
      this.point(px, py);
      this.tell(px, py);
    });
    on("pointerleave", () => this.leave());
    on("pointerdown", (event) => {
      const place = Canvas.place(event);
      if (event.button !== 0 || !this.isInside(...place)) return;
      this.brush = place;
      element.setPointerCapture(event.pointerId);
    });
    on("pointerup", (event) => {
      const [from, to] = [this.brush, Canvas.place(event)];
      this.drop();
      if (!from || Math.hypot(to[0] - from[0], to[1] - from[1]) < 5) return;
      to[0] = clamp(to[0], EDGE.left, this.canvas.width - EDGE.right);
      to[1] = clamp(to[1], 0, this.floor);
      if (!this.given.brushed?.(from, to)) this.axis.choose(this.timeAt(from[0]), this.timeAt(to[0]));
    });
    on("pointercancel", () => this.drop());
    on("dblclick", () => this.reset());
    on("wheel", (event) => {
      const [px, py] = Canvas.place(event);
      if (!this.isInside(px, py) || !(event.ctrlKey || event.shiftKey)) return;
      event.preventDefault();
      this.axis.zoom(event.deltaY > 0 || event.deltaX > 0 ? 1.25 : 0.8, this.timeAt(px));
    }, { passive: false });
    on("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key === "Escape" && this.brush) this.drop();
      else if (event.key === "Escape") this.reset();
      else if (!this.given.key?.(event) && !pressed(this.axis, event.key)) return;
      event.preventDefault();
    });
  }

  /** Follow the present, and see all that there is. */
  reset() {
    for (const one of this.axis.pictures) one.given.reset?.();
    this.axis.follow();
  }

  stretch(px, py) {
    const [x, y] = this.brush;
    this.tip.hide();
    const [left, right] = [Math.min(x, px), Math.max(x, px)].map((one) => clamp(one, EDGE.left, this.canvas.width - EDGE.right));
    const isHigh = !this.given.brushed;
    const [top, bottom] = [isHigh ? 0 : Math.min(y, py), isHigh ? this.floor : Math.max(y, py)].map((one) => clamp(one, 0, this.floor));
    Object.assign(this.rubber.style, { left: `${left}px`, width: `${right - left}px`, top: `${top}px`, height: `${bottom - top}px` });
    this.rubber.hidden = false;
    this.rubber.firstChild.textContent = `${showClock(Math.round(this.timeAt(left)))} to ${showClock(Math.round(this.timeAt(right)))}`;
  }

  drop() {
    this.brush = null;
    this.rubber.hidden = true;
  }

  remove() {
    this.quiet();
    this.model.off("change:cursor", this.move);
    this.axis.pictures.splice(this.axis.pictures.indexOf(this), 1);
    this.canvas.remove();
    this.line.remove();
    this.rubber.remove();
    this.tip.element.remove();
  }
}

/** Lines across a picture of power, and the watts that they stand for. */
export function wattLines(context, top, right, floor, theme, y) {
  context.fillStyle = theme.faint;
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  context.textAlign = "right";
  context.beginPath();
  for (const watts of ticks(0, top, clamp(floor / 40, 2, 5))) {
    context.moveTo(EDGE.left, y(watts));
    context.lineTo(right, y(watts));
    context.fillText(showLarge(watts, "W"), EDGE.left - 8, Math.max(7, y(watts)));
  }
  context.stroke();
}
