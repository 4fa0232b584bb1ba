// Nodes downwards, time to the right, a block for what a job holds; of very many nodes, a band for each job.

import { EDGE, TimeAxis, TimePicture, axisOf } from "./shared/axis.js";
import { Bands } from "./shared/bands.js";
import { Numbering, colourOf, inkOn, patternOf } from "./shared/colours.js";
import { follow, forget, stateOf } from "./shared/course.js";
import { claim, csvOf, h } from "./shared/page.js";
import { queueLine, showQueue, waitingOf } from "./shared/queue.js";
import { clamp, linear } from "./shared/scale.js";
import { Segments } from "./shared/segments.js";
import { ownToolbar } from "./shared/toolbar.js";
import { countOf, showDuration, showLarge, ticks } from "./shared/units.js";

const TOP = 4;
const KEPT = 2 * 3600;
const FORGETS = 10; // seconds between two times that it forgets
/** Below so many pixels a row is confetti; a column of bands is about so wide. */
const THIN = 3;
const COLUMN = 3;
/** How much is seen of the others where somebody points at a job. */
const FADED = 0.25;
/** Of a node that is not as others: its sign, the theme's colour for it and what it is called. */
const SIGNS = {
  hold: ["\u2016", "ink", "on hold"],
  leaving: ["\u2192", "bad", "leaving"],
  drained: ["\u2298", "faint", "drained"],
  lent: ["\u21c4", "accent", "lent"],
};
const BADLY = { failed: "#d32f2f", cancelled: "#777777" };

/** All that is drawn, without a page: what is held, who waits, what is seen of it. */
export class Picture {
  constructor(axis = new TimeAxis()) {
    this.axis = axis;
    this.numbering = new Numbering();
    this.clear();
    /** The nodes that have rows, in order; null for all. */
    this.rows = null;
  }

  /** Everything comes anew; what people chose to see stays. */
  clear() {
    this.bands = new Bands((job) => this.numbering.of(job));
    this.pieces = new Pieces();
    this.segments = new Segments((...found) => this.bands.add(...found));
    /** Where a node is there, as a block of its own; null if nobody says. */
    this.there = null;
    this.names = [];
    this.gone = new Set();
    this.forgot = 0;
    this.marked = new Map();
    this.jobs = new Map();
    this.watts = new Map();
    /** How many nodes there are, named or not, if somebody says so. */
    this.many = null;
    this.counted = 0;
  }

  add(news) {
    this.axis.add(news);
    this.numbering.add(news);
    for (const job of news.jobs ?? []) this.jobs.set(job.id, job);
    forget(this.jobs, 20_000);
    if (news.head) this.many = news.head.nodes ?? null;
    if (news.nodes) {
      this.names = news.nodes.names;
      this.gone = new Set(news.nodes.gone.flatMap(([first, last]) => range(first, last)));
    }
    // of a run that is over, those that nobody held have no names
    if (news.nodes && this.isOver && this.many > this.names.length) this.bands.add(this.axis.begin, null, this.many - this.names.length);
    if (news.presence?.length) this.there ??= new Segments((time, _, by) => this.bands.add(time, null, by));
    this.take(news.changes ?? [], news.presence ?? []);
    if (news.nodes && !this.there) this.recount();
    if (news.marked) this.marked = new Map(news.marked.flatMap(([runs, state, why]) => runs.flatMap(([first, last]) => range(first, last).map((node) => [node, { state, why }]))));
    if (news.power_now) this.watts = new Map(Object.entries(news.power_now.jobs ?? {}));
  }

  /** What changed hands, and who came and went, in order of time. */
  take(changes, presence) {
    let next = 0;
    const comeAndGo = (until) => {
      for (; next < presence.length && presence[next][0] <= until; next += 1) {
        const [time, what, runs] = presence[next];
        this.there.add([[time, what === "joined" ? "" : null, runs, ""]]);
      }
    };
    if (!this.there && !this.counted && changes.length) this.recount(Math.min(changes[0][0], this.axis.begin));
    for (const change of changes) {
      comeAndGo(change[0]);
      this.segments.add([change]);
    }
    comeAndGo(Infinity);
  }

  /** How many nodes there are, where nobody says when they came and went. */
  recount(time = this.axis.now) {
    const count = this.names.length - this.gone.size;
    if (count === this.counted) return;
    this.bands.add(this.counted ? time : Math.min(time, this.axis.begin), null, count - this.counted);
    this.counted = count;
  }

  forget() {
    if (this.isOver || this.now - this.forgot < FORGETS) return;
    this.forgot = this.now;
    const time = this.now - KEPT;
    for (const one of [this.segments, this.there, this.bands]) one?.forget(time);
  }

  get now() {
    return this.axis.now;
  }

  get isOver() {
    return this.axis.isOver;
  }

  get count() {
    return this.rows ? this.rows.length : this.names.length;
  }

  /** Whether there are too many nodes for rows. */
  isBanded(floor) {
    return this.count * THIN > floor - TOP;
  }

  /** How many of the nodes with rows come before this one. */
  before(node) {
    if (!this.rows) return node;
    let [low, high] = [0, this.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle] < node) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** From a row, or a number of nodes, to pixels. */
  scale(floor) {
    if (this.isBanded(floor)) return linear(0, this.rows ? this.count : Math.max(1, this.bands.most), floor, TOP);
    return linear(0, Math.max(1, this.count), TOP, floor);
  }

  /** Visit the rectangles to fill: visit(left, top, width, height, block). They are thousands several times a
   * second: a list of them would make the page's memory grow. */
  blocks(width, floor, x, visit, segments = this.segments) {
    const y = this.scale(floor);
    const [from, to] = this.axis.window;
    segments.between(from, to, (one) => {
      const [first, last] = [this.before(one.first), this.before(one.last + 1)];
      if (first === last) return;
      const left = Math.max(EDGE.left, x(one.start));
      const right = Math.min(width - EDGE.right, x(one.end ?? Math.max(this.now, one.start)));
      visit(left, y(first), Math.max(0.5, right - left), y(last) - y(first), one);
    });
  }

  /** The time at a place, and what is there: a node and its block, or a band. */
  at(px, py, width, floor) {
    if (px < EDGE.left || px > width - EDGE.right || py < TOP || py > floor || !this.count) return null;
    const time = this.axis.scale(width).invert(px);
    const high = this.scale(floor).invert(py);
    if (this.isBanded(floor)) return { time, band: time <= this.now ? this.bands.at(time, high) : undefined };
    const row = clamp(Math.floor(high), 0, this.count - 1);
    const node = this.rows ? this.rows[row] : row;
    return { node, time, block: time <= this.now ? this.segments.find(node, time) : undefined };
  }

  /** Which nodes have rows from now on; all of them if it is none or all. */
  seeRows(nodes) {
    this.rows = nodes.length && nodes.length < this.names.length ? nodes : null;
  }

  /** See what lies between two places: times, and rows; of bands, the nodes that their jobs had then. */
  select(a, b, width, floor) {
    const x = this.axis.scale(width);
    const y = this.scale(floor);
    const times = [x.invert(a[0]), x.invert(b[0])].sort((one, other) => one - other);
    const heights = [y.invert(a[1]), y.invert(b[1])].sort((one, other) => one - other);
    const isHigh = Math.abs(a[1] - b[1]) >= 6;
    if (isHigh && this.isBanded(floor)) this.seeRows(this.nodesIn(times, heights).slice(0, Math.floor((floor - TOP) / THIN)));
    else if (isHigh) {
      const [first, last] = [Math.floor(heights[0]), Math.ceil(heights[1])].map((one) => clamp(one, 0, this.count));
      if (last > first) this.seeRows(this.rows ? this.rows.slice(first, last) : range(first, last - 1));
    }
    if (Math.abs(a[0] - b[0]) >= 5) this.axis.choose(...times);
    else this.axis.tell();
  }

  /** The nodes of bands that are touched at a few times. */
  nodesIn([from, to], [low, high]) {
    const found = new Set();
    for (let i = 0; i <= 4; i += 1) {
      const time = Math.min(from + ((to - from) * i) / 4, this.now);
      const jobs = new Set();
      for (let part = 0; part <= 40; part += 1) {
        const band = this.bands.at(time, low + ((high - low) * part) / 40);
        if (band.job !== null) jobs.add(band.job);
      }
      this.segments.between(time, time, (one) => {
        if (jobs.has(one.job)) for (let node = one.first; node <= one.last; node += 1) found.add(node);
      });
    }
    return [...found].sort((a, b) => a - b);
  }

  /** Other rows, by a share of those that are seen; of bands, the first as rows. */
  page(share, floor) {
    const most = Math.floor((floor - TOP) / THIN);
    if (!this.rows && !this.isBanded(floor)) return false;
    const many = Math.min(this.rows ? this.count : most, this.names.length);
    const first = this.rows ? clamp(this.rows[0] + Math.round(share * many), 0, this.names.length - many) : 0;
    this.seeRows(range(first, first + many - 1));
    this.axis.tell();
    return true;
  }

  reset() {
    this.rows = null;
  }

  stateOf(job) {
    const known = this.jobs.get(job);
    return known ? stateOf(known) : "";
  }

  /** Its name, and how it ended if not well. */
  nameOf(job) {
    const known = this.jobs.get(job);
    if (!known) return job;
    const state = stateOf(known);
    return ["running", "waiting", "done"].includes(state) ? known.name : `${known.name} (${state})`;
  }

  get waiting() {
    return waitingOf(this.jobs.values());
  }

  /** Lines about a job: how it fails, and what it draws. */
  saidOf(job, isRunning) {
    const known = this.jobs.get(job);
    const watts = isRunning ? this.watts.get(job) : undefined;
    const failed = known?.failed ? `${countOf(known.failed, "task")} failed${known.error ? `: ${known.error}` : ""}` : null;
    return [watts ? `${showLarge((watts[0] + watts[1]) / 2, "W")} on all its nodes` : null, failed];
  }

  /** Whether a node is there at a time. */
  isThere(node, time) {
    return this.there ? this.there.find(node, time) !== undefined : !this.gone.has(node);
  }

  tip({ node, time, block, band }) {
    if (node === undefined) return this.bandTip(time, band);
    const name = this.names[node] ?? `node ${node}`;
    const sign = this.marked.get(node);
    const now = sign && `${SIGNS[sign.state]?.[2] ?? sign.state} now${sign.why ? `: ${sign.why}` : ""}`;
    if (!block) {
      const what = time > this.now ? "to come" : this.isThere(node, time) ? "nobody's" : this.there ? "not there then" : "not there now";
      return [name, this.axis.show(time), what, now].filter(Boolean);
    }
    const held = showDuration((block.end ?? this.now) - block.start);
    return [
      `${this.nameOf(block.job)} on ${name}`,
      `${this.axis.show(block.start)}, for ${held}${block.end === null ? " so far" : ""}`,
      ...this.saidOf(block.job, block.end === null),
      block.reason,
      now,
    ].filter(Boolean);
  }

  bandTip(time, band) {
    if (!band) return [this.axis.show(time), "to come"];
    const of = `${countOf(band.held, "node")} of ${band.there.toLocaleString("en")} held`;
    if (band.job === null) return [band.count > 0 ? `${countOf(band.count, "node")} idle` : "no node", this.axis.show(time), of];
    let block = null;
    this.segments.between(time, time, (one) => {
      if (one.job === band.job && (!block || one.start > block.start)) block = one;
    });
    return [
      `${this.nameOf(band.job)} on ${countOf(band.count, "node")}`,
      this.axis.show(time),
      ...this.saidOf(band.job, block?.end === null),
      block?.reason,
      of,
    ].filter(Boolean);
  }

  /** One line for those who do not see the picture. */
  get summary() {
    if (!this.names.length) return this.isOver ? "not recorded: simulate(..., allotments=True)" : "no node yet";
    let running = 0;
    for (const job of this.jobs.values()) running += job.state === "running";
    const there = this.many ?? this.names.length - this.gone.size;
    if (this.isOver) return `${countOf(there, "node")}, ${showDuration(this.now)}`;
    const signs = Object.entries(SIGNS).map(([state, [, , words]]) => {
      const count = this.countOf(state);
      return count ? `, ${count} ${words}` : "";
    });
    const part = this.rows ? `${this.count} of ` : "";
    return `${part}${countOf(there, "node")}${signs.join("")}, ${countOf(running, "job")} running, ${this.waiting.length} waiting`;
  }

  countOf(state) {
    let count = 0;
    for (const one of this.marked.values()) if (one.state === state) count += 1;
    return count;
  }

  /** Who held what in what is seen, as rows of a table. */
  get table() {
    const [from, to] = this.axis.window;
    const rows = [];
    this.segments.between(from, Math.min(to, this.now), (one) => {
      const nodes = [...new Set([one.first, one.last])].map((node) => this.names[node] ?? node).join(" to ");
      rows.push([this.nameOf(one.job), nodes, one.last - one.first + 1, one.start, one.end, one.reason]);
    });
    return rows.sort((a, b) => a[3] - b[3]);
  }
}

/** What is seen of allotments as the text of a CSV file. */
export function allotmentsCsv(picture) {
  return csvOf(["job", "nodes", "count", "start", "end", "reason"], picture.table);
}

/** Pixels for so many nodes where nobody says how many there are to be. */
function heightFor(nodes) {
  return clamp(nodes * 20 + 26, 140, 420);
}

function range(first, last) {
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
}

function paint(picture, pointed, context, width, floor, theme, x) {
  context.save();
  context.beginPath();
  context.rect(EDGE.left, 0, width - EDGE.left - EDGE.right, floor);
  context.clip();
  const y = picture.scale(floor);
  const isBanded = picture.isBanded(floor);
  if (isBanded) paintBands(picture, pointed, context, width, floor, theme, x, y);
  else paintRows(picture, pointed, context, width, floor, theme, x, y);
  if (!picture.isOver && picture.now < picture.axis.window[1]) {
    context.setLineDash([3, 3]);
    stroke(context, theme.faint, x(picture.now), TOP, x(picture.now), floor);
    context.setLineDash([]);
  }
  context.restore();
  if (isBanded) numbers(context, picture.bands.most, floor, theme, y);
  else names(picture, context, theme, y);
}

function stroke(context, colour, left, top, right, bottom, thick = 1) {
  context.strokeStyle = colour;
  context.lineWidth = thick;
  context.beginPath();
  context.moveTo(left, top);
  context.lineTo(right, bottom);
  context.stroke();
}

/** How a job looks while another is pointed at. */
function fade(context, pointed, job) {
  context.globalAlpha = pointed && pointed !== job ? FADED : 1;
}

function paintRows(picture, pointed, context, width, floor, theme, x, y) {
  const high = y(1) - y(0);
  const gap = high > 6 ? 1 : 0;
  context.fillStyle = theme.idle;
  if (picture.there) {
    picture.blocks(width, floor, x, (left, top, wide, tall) => context.fillRect(left, top, wide, tall), picture.there);
  } else {
    const begin = Math.max(EDGE.left, x(picture.axis.begin));
    for (let row = 0; row < picture.count; row += 1) {
      if (!picture.gone.has(picture.rows ? picture.rows[row] : row)) context.fillRect(begin, y(row), Math.max(0, x(picture.now) - begin), high);
    }
  }
  picture.blocks(width, floor, x, (left, top, wide, tall, one) => {
    const number = picture.numbering.of(one.job);
    const colour = colourOf(number);
    fade(context, pointed, one.job);
    context.fillStyle = colour;
    context.fillRect(left, top + gap / 2, wide, Math.max(0.5, tall - gap));
    if (patternOf(number)) hatch(context, left, top, wide, tall, patternOf(number), inkOn(colour));
    const badly = BADLY[picture.stateOf(one.job)];
    if (badly) endBadly(context, left, top + gap / 2, wide, tall - gap, badly, one.end !== null, theme);
    label(context, picture.nameOf(one.job), left, top, wide, tall, inkOn(colour));
  });
  context.globalAlpha = 1;
  for (const [node, { state }] of picture.marked) {
    const row = picture.before(node);
    if (picture.before(node + 1) === row) continue;
    const colour = theme[SIGNS[state]?.[1] ?? "faint"];
    // how it is now: from now on, or the last bit until now where nothing is seen of what comes
    const right = Math.max(x(picture.now) + 12, width - EDGE.right);
    const left = Math.min(x(picture.now), width - EDGE.right - 12);
    hatch(context, left, y(row), right - left, high, 1, colour, 0.9);
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, y(row) + 0.5, right - left, Math.max(1, high - 1));
  }
}

/** Of a job that did not end well: crossed out lightly, a thick end. */
function endBadly(context, left, top, wide, tall, colour, isOver, theme) {
  hatch(context, left, top, wide, tall, 1, theme.ink, 0.35);
  hatch(context, left, top, wide, tall, 2, theme.ink, 0.35);
  if (!isOver) return;
  const thick = Math.min(4, wide);
  context.fillStyle = theme.paper;
  context.fillRect(left + wide - thick - 1, top, 1, tall);
  context.fillStyle = colour;
  context.fillRect(left + wide - thick, top, thick, tall);
}

function hatch(context, left, top, wide, high, pattern, ink, alpha = 0.25) {
  if (wide < 6 || high < 6) return;
  context.save();
  context.beginPath();
  context.rect(left, top, wide, high);
  context.clip();
  context.strokeStyle = ink;
  context.lineWidth = 1;
  context.globalAlpha *= alpha;
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

/** Bands of jobs, as large as they are seen. */
export function paintBands(picture, pointed, context, width, floor, theme, x, y) {
  const [from, to] = picture.axis.window;
  const until = Math.min(to, picture.now);
  if (until <= from) return;
  const step = ((to - from) / (width - EDGE.left - EDGE.right)) * COLUMN;
  const one = Math.abs(y(1) - y(0));
  const { pieces } = picture;
  const above = []; // what lies on its piece
  picture.bands.sweep(from, until, step, (band, end) => {
    // whole pixels: what meets would shimmer
    const left = Math.round(x(Math.max(from, band.since)));
    const wide = Math.round(x(end)) - left;
    const top = y(band.below + band.drawn);
    const tall = band.drawn * one;
    const { job, number } = band;
    pieces.add(colourOf(number), pointed && pointed !== job, left, top, wide, tall > 2.5 ? tall - 0.5 : tall);
    const badly = band.seen === 0 && BADLY[picture.stateOf(job)];
    const isNamed = tall >= 12 && wide > 40;
    if (!badly && !isNamed) return;
    above.push(() => {
      fade(context, pointed, job);
      if (badly) {
        context.fillStyle = badly;
        context.fillRect(left + wide - 2, top, 2, tall);
      }
      if (isNamed) label(context, picture.nameOf(job), left, top, wide, tall, inkOn(colourOf(number)));
    });
  }, (since, end, held, there) => {
    const left = Math.round(x(Math.max(from, since)));
    pieces.add(theme.idle, false, left, y(there), Math.round(x(end)) - left, Math.max(0, y(held) - y(there)));
  });
  pieces.paint(context);
  for (const paintIt of above) paintIt();
  context.globalAlpha = 1;
}

/** Rectangles, painted colour by colour: every change of a canvas's colour leaves something to be collected, and
 * an hour of a thousand nodes has fifty thousand a second. */
class Pieces {
  constructor() {
    /** By colour, of those that are faded and of those that are not: how many numbers, and the numbers. */
    this.of = { false: new Map(), true: new Map() };
  }

  add(colour, isFaded, left, top, wide, tall) {
    const all = this.of[Boolean(isFaded)];
    let own = all.get(colour);
    if (own === undefined) all.set(colour, (own = { count: 0, numbers: [] }));
    own.numbers[own.count++] = left;
    own.numbers[own.count++] = top;
    own.numbers[own.count++] = wide;
    own.numbers[own.count++] = tall;
  }

  /** All, which are then forgotten; their place is used again. */
  paint(context) {
    for (const isFaded of [true, false]) {
      context.globalAlpha = isFaded ? FADED : 1;
      for (const [colour, own] of this.of[isFaded]) {
        const { count, numbers } = own;
        own.count = 0;
        if (count) context.fillStyle = colour;
        for (let i = 0; i < count; i += 4) context.fillRect(numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]);
      }
    }
  }
}

function numbers(context, most, floor, theme, y) {
  context.fillStyle = theme.faint;
  context.textAlign = "right";
  for (const count of ticks(0, most, clamp(floor / 40, 1, 5))) context.fillText(count ? count.toLocaleString("en") : "0 nodes", EDGE.left - 8, clamp(y(count), 8, floor - 5));
}

function names(picture, context, theme, y) {
  const high = y(1) - y(0);
  const step = Math.max(1, Math.ceil(13 / Math.max(0.01, high)));
  context.textAlign = "right";
  for (let row = 0; row < picture.count; row += 1) {
    const node = picture.rows ? picture.rows[row] : row;
    const sign = SIGNS[picture.marked.get(node)?.state];
    const middle = (y(row) + y(row + 1)) / 2;
    if (sign) {
      context.fillStyle = theme[sign[1]];
      context.fillText(sign[0], EDGE.left - 4, middle);
    }
    if (row % step) continue;
    context.fillStyle = theme.faint;
    const name = picture.names[node] ?? "";
    context.fillText(name.length > 11 ? `…${name.slice(-10)}` : name, EDGE.left - 18, middle);
  }
}

/** What the colours and signs mean, of those that are seen. */
function legend(picture, floor) {
  const isBanded = picture.isBanded(floor);
  const found = [[colourOf(0), isBanded ? "nodes of a job" : "a job's colour"], ["idle", "idle"]];
  for (const [state, [sign, colour, words]] of Object.entries(SIGNS)) if (!isBanded && picture.countOf(state)) found.push([colour, words, sign]);
  for (const [state, colour] of Object.entries(BADLY)) {
    for (const one of picture.jobs.values()) {
      if (stateOf(one) !== state) continue;
      found.push([colour, state]);
      break;
    }
  }
  return found;
}

function render({ model, el }) {
  const axis = axisOf(model);
  const picture = new Picture(axis);
  const isAlone = !model.get("beside");
  const bar = ownToolbar(model);
  const note = h("small", { "aria-live": "off" });
  const plot = h("div", { class: "dh-plot" });
  const line = h("div");
  claim(el, "dh-allotments");
  const heading = h("h3", {}, "Who holds which node", note);
  el.append(...(bar.element ? [bar.element] : []), heading, plot, ...(isAlone ? [line] : []));
  const drawn = new TimePicture(model, plot, {
    name: "Nodes over time",
    height: model.get("height") ?? heightFor(model.get("course")?.nodes?.names.length ?? 16),
    paint: (...where) => paint(picture, model.get("pointed") ?? null, ...where),
    tip(px, py, floor) {
      const place = picture.at(px, py, drawn.canvas.width, floor);
      point(place?.block?.job ?? place?.band?.job ?? null);
      return place && picture.tip(place);
    },
    brushed(from, to) {
      picture.select(from, to, drawn.canvas.width, drawn.floor);
      return true;
    },
    key: (event) => ["ArrowUp", "ArrowDown"].includes(event.key) && picture.page(event.key === "ArrowUp" ? -0.5 : 0.5, drawn.floor),
    left: () => point(null),
    reset: () => picture.reset(),
    isPart: () => picture.rows !== null,
    legend: () => legend(picture, drawn.floor),
    tables: () => [["Allotments", () => allotmentsCsv(picture)]],
  });
  heading.append(drawn.legend);
  const ended = isAlone ? showQueue(model, line) : () => {};
  let told = -Infinity;

  function point(job) {
    if ((model.get("pointed") ?? null) !== job) model.set("pointed", job);
  }

  function say() {
    told = performance.now();
    el.style.setProperty("--dh-rows", `${Math.min(picture.names.length * 34 + 60, 320)}px`); // a few nodes need no more
    note.textContent = picture.summary;
    drawn.canvas.element.setAttribute("aria-label", `Nodes over time: ${picture.summary}. ${picture.isOver ? "" : queueLine(picture.waiting)}`);
  }

  const end = follow(model, (news, isWhole) => {
    if (isWhole) picture.clear();
    picture.add(news);
    picture.forget();
    drawn.follow(isWhole || "nodes" in news || "marked" in news);
    if (isWhole || performance.now() - told > 400) say();
  });
  const again = () => drawn.repaint();
  model.on("change:pointed", again);
  const quiet = axis.listen(say);
  return () => {
    end();
    ended();
    quiet();
    model.off("change:pointed", again);
    drawn.remove();
    bar.end();
  };
}

export default { render };
