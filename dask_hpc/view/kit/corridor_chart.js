// Power over time, the band it is to stay in, and two handles that move the band's edges.

import { EDGE, TimeAxis, TimePicture, axisOf, wattLines } from "./shared/axis.js";
import { follow } from "./shared/course.js";
import { claim, csvOf, deeds, fill, h, tellWhatCame } from "./shared/page.js";
import { clamp, linear } from "./shared/scale.js";
import { ownToolbar } from "./shared/toolbar.js";
import { countOf, showBounds, showClock, showDuration, showLarge, ticks } from "./shared/units.js";

const TOP = 10;
/** Pixels for the signs of what was done, below all power. */
const SIGNED = 14;
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
  constructor(axis = new TimeAxis()) {
    this.axis = axis;
    this.clear();
    /** Bounds that are being moved: {lower: watts, upper: watts}. */
    this.moved = {};
  }

  clear() {
    this.samples = [];
    this.steps = [];
    /** What was done for the sake of power: [time, kind, what]. */
    this.marks = [];
    /** When power counted as outside, if somebody said so: [from, to]. */
    this.outside = null;
    this.told = null;
  }

  add(news) {
    this.axis.add(news);
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

  get now() {
    return this.axis.now;
  }

  get isOver() {
    return this.axis.isOver;
  }

  get window() {
    return this.axis.window;
  }

  /** What cannot be kept, if so: the reason, which says what would help. */
  get broken() {
    const verdict = this.told?.verdict;
    return !verdict || verdict.is_kept ? "" : `Cannot be kept: ${verdict.reason}`;
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

  scale(floor) {
    return linear(0, this.top, floor, TOP);
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

/** What was measured, in what is seen, as the text of a CSV file. */
export function samplesCsv(power) {
  const [from, to] = power.window;
  const rows = [];
  for (let i = Math.max(0, power.since(from) - 1); i < power.samples.length && power.samples[i][0] <= to; i += 1) rows.push(power.samples[i]);
  return csvOf(["time", "watts", "lower", "upper", "least", "most", "uncertainty", "doubt"], rows);
}

function paint(power, context, width, bottom, theme, x) {
  const floor = bottom - SIGNED;
  const y = power.scale(floor);
  const [from, to] = power.window;
  const right = width - EDGE.right;
  context.save();
  context.beginPath();
  context.rect(EDGE.left, 0, right - EDGE.left, bottom);
  context.clip();
  band(power, context, x, y, from, to, floor, theme);
  context.restore();
  wattLines(context, power.top, right, floor, theme, y);
  context.save();
  context.beginPath();
  context.rect(EDGE.left, 0, right - EDGE.left, bottom);
  context.clip();
  cone(power, context, x, y, to, right, theme);
  context.fillStyle = theme.bad;
  for (const [since, until] of power.violations) {
    if (until < from || since > to) continue;
    context.fillRect(x(since), floor - 3, Math.max(2, x(until) - x(since)), 3);
  }
  doubt(power, context, x, y, from, theme);
  trace(power, context, x, y, from, theme.accent);
  beyond(power, context, x, y, from, to, floor, theme);
  for (const [time, kind] of power.marks) if (time >= from && time <= to) sign(context, x(time), floor + 8, kind);
  if (!power.isOver) {
    context.setLineDash([3, 3]);
    line(context, [[x(power.now), TOP], [x(power.now), floor]], theme.faint, 1);
    context.setLineDash([]);
    planned(power, context, x, from, to, right, floor, theme);
  }
  context.restore();
}

/** The changes of the corridor that are to come. */
function planned(power, context, x, from, to, right, floor, theme) {
  context.textAlign = "left";
  power.coming.forEach(([time, lower, upper], i) => {
    if (time < from || time > to) return;
    context.setLineDash([2, 2]);
    line(context, [[x(time), 2], [x(time), floor]], theme.good, 1);
    context.setLineDash([]);
    const words = showBounds(lower, upper, "W");
    const isTight = right - x(time) < words.length * 7;
    context.fillStyle = theme.good;
    context.textAlign = isTight ? "right" : "left";
    context.fillText(words, x(time) + (isTight ? -4 : 4), floor - 10 - (i % 3) * 14);
  });
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
  // a rectangle for as long as bounds are the same: a browser takes much memory to clip by hundreds
  for (let i = Math.max(0, power.since(from) - 1); i < power.samples.length && power.samples[i][0] <= to; ) {
    const [time, , lower, upper] = power.samples[i];
    do i += 1; while (power.samples[i]?.[2] === lower && power.samples[i]?.[3] === upper);
    const wide = x(power.samples[i]?.[0] ?? power.now) - x(time) + 0.5;
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
    context.fillStyle = power.broken && since === power.now ? theme.bad : theme.good;
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

function cone(power, context, x, y, to, right, theme) {
  const last = power.last;
  if (power.isOver) return pastForecast(power, context, x, y, theme);
  if (!last || last[4] === null || last[4] === undefined || to <= last[0]) return;
  context.globalAlpha = 0.25;
  context.fillStyle = theme.accent;
  context.beginPath();
  context.moveTo(x(last[0]), y(last[1]));
  context.lineTo(x(to), y(last[5]));
  context.lineTo(x(to), y(last[4]));
  context.fill();
  context.globalAlpha = 1;
  if (right - x(last[0]) < 60) return;
  context.fillStyle = theme.accent;
  context.textAlign = "right";
  context.fillText("forecast", right - 32, Math.max(8, y(last[5]) - 9));
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
  const found = [["accent", power.told?.source ? `power, ${power.told.source}` : "power"]];
  const isBound = power.steps.some(([, lower, upper]) => lower > 0 || upper !== null) || power.samples.some((one) => one[2] > 0 || one[3] !== null);
  if (isBound) found.push(["good", "corridor"]);
  if (power.coming.length) found.push(["good", "a change to come", "\u250a"]);
  const isForecast = (one) => typeof one?.[4] === "number";
  if (power.isOver ? power.samples.some(isForecast) : isForecast(power.last)) found.push(["accent", "forecast", "\u25e2"]);
  const glyphs = { more: "\u25b2", less: "\u25bc", hold: "\u25a0", other: "\u25cf" };
  for (const [kind, [colour, words]] of Object.entries(SIGNS)) {
    if (power.marks.some((one) => one[1] === kind)) found.push([colour, words, glyphs[kind]]);
  }
  if (power.violations.length) found.push(["bad", "outside", "\u2501"]);
  return found;
}

/** How power comes to be watched, for whoever sees none. */
export function whyNoPower(steps) {
  if (steps.length) return "Power: no sample yet.";
  return "Power is not watched. A policy with a power strategy turns it on, such as manager.set(\"power-corridor\", **{\"power.upper\": \"2 kW\"}); or hpc.power-watch: true in the configuration, before the cluster is managed.";
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
  const axis = axisOf(model);
  const power = new Power(axis);
  const isFixed = Boolean(model.get("readonly"));
  const isAlone = !model.get("beside");
  const bar = ownToolbar(model);
  const note = h("small");
  const said = h("div", { class: "dh-note", role: "status", "aria-live": "polite" });
  const nothing = h("p", { class: "dh-note dh-folded", hidden: true });
  const verdict = h("div", { class: "dh-verdict", role: "status", tabindex: "0", hidden: true });
  const plot = h("div", { class: "dh-plot" });
  const undo = h("button", { type: "button", disabled: true, onclick: () => model.send({ do: "undo" }) }, "Undo");
  const handles = { upper: edge("upper"), lower: edge("lower") };
  const moves = deeds({}, handles.upper, handles.lower);
  const list = h("div", { class: "dh-row dh-planned" });
  const later = laterForm();
  const summary = h("summary", { title: "Other bounds from a later time on" }, "Change later");
  const planned = h("details", { class: "dh-menu dh-changes" }, summary, h("div", {}, later, list));
  const hands = deeds({}, planned);
  const heading = h("h3", {}, "Power", note, hands, ...(isAlone && !isFixed ? [deeds({}, undo)] : []));
  claim(el, "dh-corridor");
  el.append(...(bar.element ? [bar.element] : []), heading, nothing, verdict, plot, said);
  const drawn = new TimePicture(model, plot, {
    name: "Power over time",
    height: model.get("height") ?? 240,
    paint: (...where) => {
      paint(power, ...where);
      place();
    },
    tip,
    legend: () => legend(power),
    tables: () => [["Power", () => samplesCsv(power)]],
  });
  plot.append(moves);
  heading.append(drawn.legend);
  /** What was said of an edge last, and the edge that is dragged. */
  let begun = null;
  let held = null;
  let plan = "";
  let isSteered = false;

  function edge(which) {
    return handle(which, {
      onpointerdown: (event) => {
        if (event.target.matches(":disabled, fieldset:disabled *")) return;
        event.target.setPointerCapture(event.pointerId);
        power.moved[which] = boundOf(which);
        begun = power.moved[which];
        held = which;
      },
      onpointermove: (event) => {
        if (held !== which) return;
        const top = drawn.canvas.element.getBoundingClientRect().top;
        move(which, scale().invert(event.clientY - top));
      },
      onpointerup: () => settle(which),
      onpointercancel: () => {
        held = null;
        delete power.moved[which];
        drawn.repaint();
      },
      onkeydown: (event) => {
        const by = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
        if (by === undefined && event.key !== "Enter" && event.key !== "Escape") return;
        event.preventDefault();
        if (event.target.matches("fieldset:disabled *")) return;
        if (event.key === "Enter") return settle(which);
        if (event.key === "Escape") {
          delete power.moved[which];
          return drawn.repaint();
        }
        begun = null;
        move(which, (power.moved[which] ?? boundOf(which)) + by * (power.top / 100));
      },
      onblur: () => settle(which),
    });
  }

  function scale() {
    return power.scale(drawn.floor - SIGNED);
  }

  /** Where a bound is, or begins if there is none. */
  function boundOf(which) {
    return power.bounds(power.now)[which] ?? (which === "upper" ? power.top / 1.25 : 0);
  }

  function move(which, watts) {
    const other = power.bounds(power.now);
    const [low, high] = which === "upper" ? [other.lower ?? 0, Infinity] : [0, other.upper ?? Infinity];
    power.moved[which] = clamp(nearWatts(watts, power.top), low, high);
    said.textContent = `${which} bound: ${showLarge(power.moved[which], "W")}`;
    drawn.repaint();
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
      drawn.repaint();
    }, 700);
  }

  function place() {
    const y = scale();
    for (const [which, element] of Object.entries(handles)) {
      const watts = power.bounds(power.now)[which];
      element.hidden = !power.steps.length || !isSteered;
      const height = y(watts ?? (which === "upper" ? power.top / 1.06 : 0));
      element.style.transform = `translateY(${height - 8}px)`;
      element.setAttribute("aria-valuenow", String(Math.round(watts ?? 0)));
      element.setAttribute("aria-valuemin", "0");
      element.setAttribute("aria-valuemax", String(Math.round(power.top)));
      element.setAttribute("aria-valuetext", watts === null ? "no bound" : showLarge(watts, "W"));
      element.dataset.none = String(watts === null);
    }
  }

  function laterForm() {
    const chip = h("span", { class: "dh-later", draggable: "true", title: "Drag onto the picture, right of now" }, "⇢ drag");
    const at = h("input", { size: "12", "aria-label": "from when on: in 10 min, 11:45, +30 s", placeholder: "in 10 min, 11:45" });
    const lower = h("input", { size: "8", "aria-label": "lower bound from then on", placeholder: "lower" });
    const upper = h("input", { size: "8", "aria-label": "upper bound from then on", placeholder: "upper, 2 kW" });
    const send = () => model.send({ do: "later", at: at.value, lower: lower.value, upper: upper.value });
    const form = h("form", { class: "dh-row", onsubmit: (event) => { event.preventDefault(); send(); } },
      chip, at, lower, upper, h("button", { type: "submit" }, "Schedule"));
    chip.addEventListener("dragstart", (event) => event.dataTransfer.setData("text/plain", "later"));
    plot.addEventListener("dragover", (event) => event.preventDefault());
    plot.addEventListener("drop", (event) => {
      event.preventDefault();
      const box = drawn.canvas.element.getBoundingClientRect();
      at.value = `in ${Math.max(1, Math.round(drawn.timeAt(event.clientX - box.left) - power.now))} s`;
      upper.value = `${nearWatts(scale().invert(event.clientY - box.top), power.top)} W`;
      planned.open = true;
      upper.focus();
    });
    return form;
  }

  /** The changes to come, each of which can be taken back; anew only if they are others. */
  function tellPlan() {
    const coming = power.coming;
    const words = JSON.stringify(coming);
    if (words === plan) return;
    plan = words;
    summary.textContent = coming.length ? `Change later: ${coming.length} planned` : "Change later";
    fill(list, coming.map(([time, lower, upper]) => {
      const what = `from ${axis.show(time)} on ${showBounds(lower, upper, "W")}`;
      const name = `Remove the change ${what}`;
      return h("span", { class: "dh-card" }, what, " ", h("button", { type: "button", class: "dh-plain", title: name, "aria-label": name, onclick: () => model.send({ do: "unschedule", at: time }) }, "\u00d7"));
    }));
  }

  function tip(px, py) {
    const time = drawn.timeAt(px);
    const apart = 6 / Math.max(1e-9, axis.scale(drawn.canvas.width)(1) - axis.scale(drawn.canvas.width)(0));
    if (time > power.now && !power.isOver) {
      const { lower, upper } = power.bounds(time);
      const ahead = typeof power.last?.[4] === "number" ? [`forecast: ${showLarge(power.last[4], "W")} to ${showLarge(power.last[5], "W")}`] : [];
      return [axis.show(time), `corridor then: ${showBounds(lower, upper, "W")}`, ...ahead];
    }
    const sample = power.at(time);
    if (!sample || time > power.now) return null;
    const [at, watts, low, high, least, most, by, why] = sample;
    const near = power.marks.filter(([when]) => Math.abs(when - time) < apart);
    return [
      `${showLarge(watts, "W")}${by ? ` \u00b1 ${showLarge(by, "W")}` : ""}`,
      power.isOver ? axis.show(time) : `${axis.show(at)}, ${showDuration(power.now - at)} ago`,
      `corridor: ${showBounds(low, high, "W")}`,
      ...(typeof least === "number" ? [`forecast then: ${showLarge(least, "W")} to ${showLarge(most, "W")}`] : []),
      ...(why ? [`not to be trusted: ${why}`] : []),
      ...(power.said(time) ? [power.said(time)] : []),
      ...near.slice(0, 8).map(([when, , text]) => `${showClock(when)} ${text}`),
      ...(near.length > 8 ? [`and ${near.length - 8} more`] : []),
    ];
  }

  /** A picture of nothing folds to a line. */
  function fold() {
    const isEmpty = !power.last;
    if (plot.hidden !== isEmpty) {
      plot.hidden = heading.hidden = isEmpty;
      for (const one of axis.pictures) one.repaint(); // who has the times is another
    }
    el.classList.toggle("dh-is-folded", isEmpty);
    nothing.hidden = !isEmpty;
    if (isEmpty) nothing.textContent = whyNoPower(power.steps);
    el.hidden = isEmpty && (power.isOver || axis.now === 0);
    hands.hidden = isEmpty || !isSteered || !power.steps.length;
  }

  const end = follow(model, (news, isWhole) => {
    if (isWhole) power.clear();
    power.add(news);
    if (news.head) {
      isSteered = !isFixed && news.head.state !== "simulated";
      undo.disabled = !news.head.undo;
    }
    fold();
    tellPlan();
    note.textContent = power.summary;
    verdict.hidden = !power.broken || plot.hidden;
    if (verdict.textContent !== power.broken) verdict.textContent = verdict.title = power.broken;
    drawn.canvas.element.setAttribute("aria-label", `Power over time: ${[power.summary, power.broken].filter(Boolean).join("; ")}`);
    drawn.follow(isWhole || "samples" in news || "corridor" in news || "marks" in news || "power_now" in news);
  });
  const quiet = isFixed ? () => {} : tellWhatCame(model, said);
  return () => {
    end();
    quiet();
    drawn.remove();
    bar.end();
  };
}

export default { render };
