// Power over time, the band it is to stay in, and two handles that move the band's edges.

import { Canvas } from "./shared/canvas.js";
import { follow } from "./shared/course.js";
import { Tip, claim, fill, h, tellWhatCame } from "./shared/page.js";
import { clamp, hasMoved, linear } from "./shared/scale.js";
import { countOf, showBounds, showClock, showDuration, showLarge, ticks, timeTicks } from "./shared/units.js";

const LEFT = 92;
const BOTTOM = 32;
const TOP = 10;
const AHEAD = 0.22;
const SHOWN = 300;
const KEPT = 7200;
const MOST_MARKS = 500;
/** Of what was done: its colour, and what it is called. */
const SIGNS = {
  more: ["#009e73", "grew or started"],
  less: ["#e69f00", "shrank"],
  hold: ["#cc79a7", "held"],
  other: ["#888888", "other"],
};

/** What is drawn, without a page. A bound that does not bind is null. */
export class Power {
  constructor() {
    this.clear();
    this.length = SHOWN;
    /** The window of time that people chose, in whichever view; null follows the present. */
    this.chosen = null;
    /** Bounds that are being moved: {lower: watts, upper: watts}. */
    this.moved = {};
  }

  clear() {
    this.now = 0;
    this.samples = [];
    this.steps = [];
    /** What was done for the sake of power: [time, kind, what]. */
    this.marks = [];
    /** When power counted as outside, if somebody said so: [from, to]. */
    this.outside = null;
    this.told = null;
    this.isOver = false;
  }

  add(news) {
    if (news.head) this.now = news.head.time;
    if (news.head?.state === "simulated") {
      this.length = Infinity;
      this.isOver = true;
      this.begin = news.head.begin ?? 0;
    }
    if (news.outside) this.outside = news.outside;
    if (news.marks) {
      this.marks.push(...news.marks);
      if (this.marks.length > MOST_MARKS) this.marks.splice(0, this.marks.length - MOST_MARKS);
    }
    if (news.samples) {
      this.samples.push(...news.samples);
      if (!this.isOver && this.samples.length > KEPT) this.samples.splice(0, this.samples.length - KEPT);
    }
    if (news.corridor !== undefined) this.steps = news.corridor ?? [];
    if (news.power_now !== undefined) this.told = news.power_now;
  }

  get last() {
    return this.samples.at(-1);
  }

  /** Now, and the time shown before and after it. */
  get window() {
    if (this.chosen) return this.chosen;
    if (this.isOver) return [this.begin, this.now];
    const past = Math.min(this.length, Math.max(20, this.now - (this.samples[0]?.[0] ?? this.now)));
    return [this.now - past, this.now + past * (AHEAD / (1 - AHEAD))];
  }

  /** The bounds that hold at a time from now on. */
  bounds(time) {
    const step = this.steps.findLast((one) => one[0] <= time) ?? this.steps[0];
    if (!step) return { lower: null, upper: null };
    const found = { lower: step[1] > 0 ? step[1] : null, upper: step[2] };
    return time <= this.now || this.steps.length < 2 ? { ...found, ...this.moved } : found;
  }

  get coming() {
    return this.steps.filter((one, i) => i > 0 && one[0] > this.now);
  }

  /** The sample that holds at a time; undefined before the first. */
  at(time) {
    const i = this.since(time);
    return this.samples[i]?.[0] === time ? this.samples[i] : this.samples[i - 1];
  }

  /** Where the samples from a time on begin. (Here and below no lists are made of them: a page that is
   * painted several times a second for hours would fill its memory with what is thrown away.) */
  since(time) {
    let i = this.samples.length;
    while (i > 0 && this.samples[i - 1][0] >= time) i -= 1;
    return i;
  }

  /** From nothing to above all that is seen, so that an edge can be moved further. */
  get top() {
    let most = 1;
    const see = (value) => {
      if (Number.isFinite(value) && value > most) most = value;
    };
    for (let i = Math.max(0, this.since(this.window[0]) - 1); i < this.samples.length; i += 1) {
      see(this.samples[i][1]);
      see(this.samples[i][3]);
      if (!this.isOver) see(this.samples[i][5]); // a vague forecast of the past is not to squeeze the rest
    }
    for (const [, lower, upper] of this.steps) {
      see(lower);
      see(upper);
    }
    see(this.moved.lower);
    see(this.moved.upper);
    return most * 1.25;
  }

  scales(width, height) {
    const [from, to] = this.window;
    return { x: linear(from, to, LEFT, width - 8), y: linear(0, this.top, height - BOTTOM, TOP) };
  }

  /** Spans of time outside, of what is seen: [from, to]. */
  get violations() {
    if (this.outside) return this.outside;
    const found = [];
    let began = null;
    for (let i = this.since(this.window[0]); i < this.samples.length; i += 1) {
      const [time, watts, lower, upper] = this.samples[i];
      const isOut = watts < lower || (upper !== null && watts > upper);
      if (isOut && began === null) began = time;
      if (!isOut && began !== null) {
        found.push([began, time]);
        began = null;
      }
    }
    if (began !== null) found.push([began, this.now]);
    return found;
  }

  /** For how long and how far at most it was outside around a time; "" if it was not. */
  said(time) {
    const span = this.violations.find(([from, to]) => from <= time && time < to);
    if (!span) return "";
    let [above, below] = [0, 0];
    for (let i = Math.max(0, this.since(span[0]) - 1); i < this.samples.length; i += 1) {
      const [when, watts, lower, upper] = this.samples[i];
      if (when >= span[1]) break;
      if (when < span[0] && this.samples[i + 1]?.[0] <= span[0]) continue;
      above = Math.max(above, upper === null ? 0 : watts - upper);
      below = Math.max(below, lower - watts);
    }
    const far = [above > 0 ? `up to ${showLarge(above, "W")} above` : "", below > 0 ? `up to ${showLarge(below, "W")} below` : ""];
    return [`outside for ${showDuration(span[1] - span[0])}`, far.filter(Boolean).join(" and ")].filter(Boolean).join(", ");
  }

  get summary() {
    if (!this.last) return "Power is not watched.";
    const [, watts, lower, upper] = this.last;
    if (this.isOver) return this.outside?.length ? `outside its corridor ${countOf(this.outside.length, "time")}` : "";
    const bounds = showBounds(lower, upper, "W");
    const source = this.told ? `, ${this.told.source}` : "";
    return `${showLarge(watts, "W")}${source}; corridor ${bounds}`;
  }
}

/** A round number of watts near a place between two edges. */
export function nearWatts(value, top) {
  const step = 10 ** Math.max(0, Math.floor(Math.log10(top)) - 2);
  return Math.max(0, Math.round(value / step) * step);
}

function paint(power, context, width, height, theme) {
  const { x, y } = power.scales(width, height);
  const [from, to] = power.window;
  const floor = height - BOTTOM;
  band(power, context, x, y, from, to, floor, theme);
  context.fillStyle = theme.faint;
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  context.textAlign = "right";
  context.beginPath();
  for (const watts of ticks(0, power.top, 5)) {
    context.moveTo(LEFT, y(watts));
    context.lineTo(width, y(watts));
    context.fillText(showLarge(watts, "W"), LEFT - 8, y(watts));
  }
  context.textAlign = "center";
  for (const time of timeTicks(Math.max(0, from), to, (width - LEFT) / 100)) {
    context.fillText(showClock(time), clamp(x(time), LEFT + 12, width - 20), floor + 22);
  }
  context.stroke();
  cone(power, context, x, y, to, theme);
  context.fillStyle = theme.bad;
  for (const [since, until] of power.violations) {
    if (until < from || since > to) continue;
    context.fillRect(Math.max(LEFT, x(since)), floor - 3, Math.max(2, x(until) - Math.max(LEFT, x(since))), 3);
  }
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, width - LEFT, floor);
  context.clip();
  doubt(power, context, x, y, from, theme);
  trace(power, context, x, y, from, theme.accent);
  beyond(power, context, x, y, from, to, floor, theme);
  context.restore();
  for (const [time, kind] of power.marks) if (time >= from && time <= to) sign(context, x(time), floor + 8, kind);
  if (power.isOver) return;
  context.setLineDash([3, 3]);
  line(context, [[x(power.now), TOP], [x(power.now), floor]], theme.faint, 1);
  context.setLineDash([]);
}

function sign(context, x, y, kind) {
  context.fillStyle = SIGNS[kind][0];
  context.beginPath();
  if (kind === "more" || kind === "less") {
    const tip = kind === "more" ? -4 : 4;
    context.moveTo(x - 4.5, y - tip);
    context.lineTo(x + 4.5, y - tip);
    context.lineTo(x, y + tip);
  } else if (kind === "hold") context.rect(x - 3.5, y - 4, 7, 8);
  else context.arc(x, y, 3.5, 0, 7);
  context.fill();
}

/** How sure what was measured is, around it. */
function doubt(power, context, x, y, from, theme) {
  context.fillStyle = theme.accent;
  context.globalAlpha = 0.15;
  for (let i = Math.max(0, power.since(from) - 1); i + 1 < power.samples.length; i += 1) {
    const [time, watts, , , , , by] = power.samples[i];
    if (by) context.fillRect(x(time), y(watts + by), x(power.samples[i + 1][0]) - x(time), y(watts - by) - y(watts + by));
  }
  context.globalAlpha = 1;
}

/** The same line again beyond either edge of the corridor, in another colour. */
function beyond(power, context, x, y, from, to, floor, theme) {
  context.save();
  context.beginPath();
  for (let i = Math.max(0, power.since(from) - 1); i < power.samples.length; i += 1) {
    const [time, , lower, upper] = power.samples[i];
    if (time > to) break;
    const wide = x(power.samples[i + 1]?.[0] ?? power.now) - x(time) + 0.5;
    if (upper !== null) context.rect(x(time), 0, wide, y(upper));
    if (lower > 0) context.rect(x(time), y(lower), wide, floor - y(lower));
  }
  context.clip();
  trace(power, context, x, y, from, theme.bad, 2.4);
  context.restore();
}

/** What was measured, from a little before what is seen. */
function trace(power, context, x, y, from, colour, thick = 1.8) {
  context.strokeStyle = colour;
  context.lineWidth = thick;
  context.lineJoin = "round";
  context.beginPath();
  let before = null;
  for (let i = Math.max(0, power.since(from) - 1); i < power.samples.length; i += 1) {
    const [time, watts] = power.samples[i];
    // what is simulated changes in steps; between two readings nobody knows
    if (power.isOver && before !== null) context.lineTo(x(time), y(before));
    context.lineTo(x(time), y(watts));
    before = watts;
  }
  if (power.isOver && before !== null) context.lineTo(x(power.now), y(before));
  context.stroke();
}

/** A rectangle for each span of time in which the bounds are the same. */
function band(power, context, x, y, from, to, floor, theme) {
  let since = from;
  let lower = null;
  let upper = null;
  const end = (time) => {
    if (lower === null && upper === null) return;
    const [left, right] = [x(since), x(time)];
    const top = upper === null ? TOP : y(upper);
    const bottom = lower === null ? floor : y(lower);
    context.globalAlpha = since >= power.now ? 0.2 : 0.12;
    context.fillStyle = theme.good;
    context.fillRect(left, top, right - left, bottom - top);
    context.globalAlpha = 1;
    for (const edge of [upper === null ? null : top, lower === null ? null : bottom]) {
      if (edge !== null) line(context, [[left, edge], [right, edge]], theme.good, 1.5);
    }
  };
  const begin = (time, low, high) => {
    if (low === lower && high === upper && time !== power.now) return;
    end(time);
    since = time;
    lower = low;
    upper = high;
  };
  for (let i = Math.max(0, power.since(from) - 1); i < power.samples.length; i += 1) {
    const [time, , low, high] = power.samples[i];
    begin(Math.max(from, time), low > 0 ? low : null, high);
  }
  for (const time of power.isOver ? [] : [power.now, ...power.coming.map((one) => one[0])]) {
    const bounds = power.bounds(time);
    begin(time, bounds.lower, bounds.upper);
  }
  end(power.isOver ? Math.min(to, power.now) : to);
}

function cone(power, context, x, y, to, theme) {
  const last = power.last;
  if (power.isOver) return pastForecast(power, context, x, y, theme);
  if (!last || last[4] === null || last[4] === undefined) return;
  context.globalAlpha = 0.25;
  context.fillStyle = theme.accent;
  context.beginPath();
  context.moveTo(x(last[0]), y(last[1]));
  context.lineTo(x(to), y(last[5]));
  context.lineTo(x(to), y(last[4]));
  context.fill();
  context.globalAlpha = 1;
}

/** What was forecast when, of a run that is over. */
function pastForecast(power, context, x, y, theme) {
  context.globalAlpha = 0.13;
  context.fillStyle = theme.accent;
  for (let i = 0; i < power.samples.length; i += 1) {
    const [time, , , , least, most] = power.samples[i];
    if (least === null || least === undefined) continue;
    context.fillRect(x(time), y(most), x(power.samples[i + 1]?.[0] ?? power.now) - x(time), y(least) - y(most));
  }
  context.globalAlpha = 1;
}

/** What the colours and signs mean, of those that are seen. */
function legend(power) {
  const kinds = Object.keys(SIGNS).filter((kind) => power.marks.some((one) => one[1] === kind));
  const glyphs = { more: "\u25b2", less: "\u25bc", hold: "\u25a0", other: "\u25cf" };
  const found = kinds.map((kind) => {
    const glyph = h("span", {}, glyphs[kind]);
    glyph.style.color = SIGNS[kind][0];
    return h("span", {}, glyph, ` ${SIGNS[kind][1]}`);
  });
  if (power.violations.length) found.push(h("span", { class: "dh-bad" }, "\u2501 outside"));
  return found;
}

function line(context, points, colour, width = 1.8) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  points.forEach(([px, py], i) => (i ? context.lineTo(px, py) : context.moveTo(px, py)));
  context.stroke();
}

function handle(which, moves) {
  return h("div", {
    class: `dh-edge dh-edge-${which}`,
    role: "slider",
    tabindex: "0",
    "aria-label": `${which} bound of power`,
    "aria-orientation": "vertical",
    title: `Drag to move the ${which} bound; arrow keys do, too`,
    ...moves,
  });
}

function render({ model, el }) {
  const power = new Power();
  const note = h("small");
  const said = h("div", { class: "dh-note", role: "status", "aria-live": "polite" });
  const plot = h("div", { class: "dh-plot" });
  const undo = h("button", { onclick: () => model.send({ do: "undo" }) }, "Undo");
  claim(el, "dh-corridor");
  const form = later();
  const meaning = h("div", { class: "dh-row dh-note" });
  const isFixed = Boolean(model.get("readonly"));
  el.append(h("h3", {}, "Power", note, undo), plot, meaning, form, said);
  const canvas = new Canvas(plot, (...where) => {
    paint(power, ...where);
    place();
  }, { height: model.get("height") ?? 240, label: "Power over time" });
  const tip = new Tip(plot);
  /** What was said of an edge last, and the edge that is dragged. */
  let begun = null;
  let held = null;
  let painted = 0;
  const handles = { upper: edge("upper"), lower: edge("lower") };
  plot.append(handles.upper, handles.lower);

  function edge(which) {
    return handle(which, {
      onpointerdown: (event) => {
        event.target.setPointerCapture(event.pointerId);
        power.moved[which] = power.bounds(power.now)[which] ?? (which === "upper" ? power.top / 1.25 : 0);
        begun = power.moved[which];
        held = which;
      },
      onpointermove: (event) => {
        if (held !== which) return;
        const top = canvas.element.getBoundingClientRect().top;
        move(which, power.scales(canvas.width, canvas.height).y.invert(event.clientY - top));
      },
      onpointerup: () => settle(which),
      onpointercancel: () => {
        held = null;
        delete power.moved[which];
        canvas.repaint();
      },
      onkeydown: (event) => {
        const by = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
        if (by === undefined && event.key !== "Enter" && event.key !== "Escape") return;
        event.preventDefault();
        if (event.key === "Enter") return settle(which);
        if (event.key === "Escape") {
          delete power.moved[which];
          return canvas.repaint();
        }
        begun = null;
        const now = power.moved[which] ?? power.bounds(power.now)[which] ?? power.top / 1.25;
        move(which, now + by * (power.top / 100));
      },
      onblur: () => settle(which),
    });
  }

  function move(which, watts) {
    const other = power.bounds(power.now);
    const [low, high] = which === "upper" ? [other.lower ?? 0, Infinity] : [0, other.upper ?? Infinity];
    power.moved[which] = clamp(nearWatts(watts, power.top), low, high);
    said.textContent = `${which} bound: ${showLarge(power.moved[which], "W")}`;
    canvas.repaint();
  }

  function settle(which) {
    const watts = power.moved[which];
    held = null;
    if (watts === undefined) return;
    if (watts !== begun) model.send({ do: "bound", which, watts });
    begun = watts;
    // what holds then comes as news; if it was refused, the edge goes back
    setTimeout(() => {
      delete power.moved[which];
      canvas.repaint();
    }, 700);
  }

  function place() {
    const { y } = power.scales(canvas.width, canvas.height);
    for (const [which, element] of Object.entries(handles)) {
      const watts = power.bounds(power.now)[which];
      element.hidden = !power.steps.length || undo.hidden || isFixed;
      const height = y(watts ?? (which === "upper" ? power.top / 1.06 : 0));
      element.style.transform = `translateY(${height - 8}px)`;
      element.setAttribute("aria-valuenow", String(Math.round(watts ?? 0)));
      element.setAttribute("aria-valuemin", "0");
      element.setAttribute("aria-valuemax", String(Math.round(power.top)));
      element.setAttribute("aria-valuetext", watts === null ? "no bound" : showLarge(watts, "W"));
      element.dataset.none = String(watts === null);
    }
  }

  function later() {
    const chip = h("span", { class: "dh-later", draggable: "true", title: "Drag onto the picture, right of now" }, "⇢ change for later");
    const at = h("input", { size: "7", "aria-label": "from when on, on the clock of the picture, in seconds", placeholder: "at, s" });
    const lower = h("input", { size: "8", "aria-label": "lower bound from then on", placeholder: "lower" });
    const upper = h("input", { size: "8", "aria-label": "upper bound from then on", placeholder: "upper, 2 kW" });
    const send = () => model.send({ do: "later", at: Number(at.value), lower: lower.value, upper: upper.value });
    const form = h("form", { class: "dh-row", onsubmit: (event) => { event.preventDefault(); send(); } },
      chip, at, lower, upper, h("button", { type: "submit" }, "Schedule"));
    chip.addEventListener("dragstart", (event) => event.dataTransfer.setData("text/plain", "later"));
    plot.addEventListener("dragover", (event) => event.preventDefault());
    plot.addEventListener("drop", (event) => {
      event.preventDefault();
      const { x, y } = power.scales(canvas.width, canvas.height);
      const box = canvas.element.getBoundingClientRect();
      at.value = String(Math.round(Math.max(power.now + 1, x.invert(event.clientX - box.left))));
      upper.value = `${nearWatts(y.invert(event.clientY - box.top), power.top)} W`;
      upper.focus();
    });
    return form;
  }

  canvas.element.addEventListener("pointermove", (event) => {
    const [px, py] = Canvas.place(event);
    const time = power.scales(canvas.width, canvas.height).x.invert(px);
    const sample = power.at(time);
    if (!sample || time > power.now) return tip.hide();
    const [at, watts, low, high, least, most, by, why] = sample;
    const apart = 6 / Math.max(1e-9, Math.abs(power.scales(canvas.width, canvas.height).x(1) - power.scales(canvas.width, canvas.height).x(0)));
    const near = power.marks.filter(([when]) => Math.abs(when - time) < apart);
    tip.show(px, py, [
      `${showLarge(watts, "W")}${by ? ` \u00b1 ${showLarge(by, "W")}` : ""}`,
      power.isOver ? showClock(time) : `${showClock(at)}, ${showDuration(power.now - at)} ago`,
      `corridor: ${showBounds(low, high, "W")}`,
      ...(typeof least === "number" ? [`forecast then: ${showLarge(least, "W")} to ${showLarge(most, "W")}`] : []),
      ...(why ? [`not to be trusted: ${why}`] : []),
      ...(power.said(time) ? [power.said(time)] : []),
      ...near.slice(0, 8).map(([when, , text]) => `${showClock(when)} ${text}`),
      ...(near.length > 8 ? [`and ${near.length - 8} more`] : []),
    ]);
  });
  canvas.element.addEventListener("pointerleave", () => tip.hide());

  const end = follow(model, (news, isWhole) => {
    if (isWhole) power.clear();
    power.add(news);
    const pixels = (canvas.width - LEFT) * devicePixelRatio;
    const isNew = isWhole || "samples" in news || "corridor" in news || "marks" in news;
    if (!isNew && !hasMoved(power.window, power.now - painted, pixels)) return;
    painted = power.now;
    note.textContent = power.summary;
    el.hidden = Boolean(model.get("beside")) && !power.last;
    if (news.head) form.hidden = undo.hidden = isFixed || news.head.state === "simulated";
    fill(meaning, legend(power));
    canvas.element.setAttribute("aria-label", `Power over time: ${power.summary}`);
    canvas.repaint();
  });
  const moved = () => {
    power.chosen = model.get("window") ?? null;
    canvas.repaint();
  };
  model.on("change:window", moved);
  const quiet = isFixed ? () => {} : tellWhatCame(model, said);
  return () => {
    end();
    quiet();
    model.off("change:window", moved);
    canvas.remove();
  };
}

export default { render };
