// Sliders that ask, values that are typed beside them, and the scale under them.

import { h } from "./page.js";
import { clamp } from "./scale.js";

const STEPS = 300;
const LEAST_RAIL = 145; // pixels of a slider, where there is little room
/** Words of each unit, the largest first: those that are written, then others that are read. */
const WORDS = {
  s: [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]],
  W: [["MW", 1e6], ["kW", 1e3], ["W", 1]],
  B: [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]],
  "B/s": [["TB/s", 1e12], ["GB/s", 1e9], ["MB/s", 1e6], ["kB/s", 1e3], ["B/s", 1]],
};
const ALSO = {
  s: { sec: 1, second: 1, seconds: 1, m: 60, mins: 60, minute: 60, minutes: 60, hr: 3600, hour: 3600, hours: 3600, day: 86400, days: 86400, week: 604800, weeks: 604800, y: 31557600, year: 31557600, years: 31557600, ms: 1e-3 },
  W: {},
  B: { kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 },
  "B/s": {},
};
/** Where people look on a scale of time, as powers of ten are nothing there. */
const MOMENTS = [0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000, 86400000, 864000000];
const BETWEEN = [2, 5, 20, 30, 120, 300, 1200, 1800, 7200, 18000, 72000, 172800, 432000, 1728000];

/** "2 min", "1.5 kW", "16": a value with the unit that people would give it, to three digits. */
export function writeAmount(value, unit = "") {
  if (!Number.isFinite(value)) return "unlimited";
  const words = WORDS[unit];
  if (!words) return `${Number(value.toPrecision(3))}${unit ? ` ${unit}` : ""}`;
  const [word, scale] = words.find(([, one]) => Math.abs(value) >= one * 0.9995) ?? words.at(-1);
  return `${Number((value / scale).toPrecision(3))} ${word}`;
}

/** The value of what somebody wrote, a bare number being in the unit itself; null if it is none. */
export function readAmount(text, unit = "") {
  const clock = unit === "s" && /^\d+(:\d+){1,2}$/.test(text.trim());
  if (clock) return text.trim().split(":").reduce((sum, part) => sum * 60 + Number(part), 0);
  const found = /^([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)\s*([a-z]*(?:\/s)?)$/i.exec(text.trim().replaceAll(",", ""));
  if (!found) return null;
  const [number, word] = [Number(found[1]), found[2]];
  if (!word || word === unit) return number;
  const exact = (WORDS[unit] ?? []).find(([one]) => one === word);
  if (exact) return number * exact[1];
  const small = word.toLowerCase();
  if (small === "mw") return unit === "W" && word === "mW" ? number / 1000 : null;
  const scale = (WORDS[unit] ?? []).find(([one]) => one.toLowerCase() === small)?.[1] ?? ALSO[unit]?.[small];
  return scale === undefined ? null : number * scale;
}

/** A value as it is written: what a slider gives is what is read beside it. */
export function rounded(value, unit, isWhole) {
  return isWhole ? Math.round(value) : readAmount(writeAmount(value, unit), unit);
}

/** The next value that differs, one way or the other, of those that places from 0 to 1 stand for. */
export function stepped(value, by, placeOf, valueOf, steps = STEPS) {
  const way = Math.sign(by);
  let left = Math.abs(by);
  let now = value;
  for (let at = Math.round(placeOf(value) * steps) + way; at >= 0 && at <= steps; at += way) {
    const next = valueOf(at / steps);
    if ((next - now) * way <= 0) continue;
    now = next;
    left -= 1;
    if (!left) break;
  }
  return now;
}

const BY_KEY = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };

/** How far a key moves a slider; 0 if it does not. A key with another held down is not for it. */
export function keyStep(event) {
  return event.ctrlKey || event.metaKey || event.altKey ? 0 : BY_KEY[event.key] ?? 0;
}

/** Round values on a scale by logarithms of so many pixels: [value, place from 0 to 1, words], with room
 * between words. */
export function scaleMarks(low, high, unit = "", pixels = LEAST_RAIL) {
  const place = (value) => Math.log(value / low) / Math.log(high / low);
  const decades = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) decades.push(10 ** power);
  const [coarse, fine] = unit === "s" ? [MOMENTS, BETWEEN] : [decades, decades.flatMap((one) => [2 * one, 5 * one])];
  const within = (values) => values.filter((one) => one >= low * 0.999 && one <= high * 1.001);
  const round = within(coarse).length < 4 ? within([...coarse, ...fine]) : within(coarse);
  const marks = round.sort((a, b) => a - b).map((value) => [value, clamp(place(value), 0, 1), unit ? writeAmount(value, unit) : value.toLocaleString("en")]);
  const fits = (one, next) => (next[1] - one[1]) * pixels >= ((one[2].length + next[2].length) / 2) * 6.2 + 8;
  if (unit !== "s") {
    // as far from each other: every one, or every second, third ...
    for (let each = 1; each <= marks.length; each += 1) {
      const some = marks.filter((_, i) => i % each === 0);
      if (some.every((one, i) => !i || fits(some[i - 1], one))) return some;
    }
  }
  const kept = [];
  for (const mark of marks) if (!kept.length || fits(kept.at(-1), mark)) kept.push(mark);
  return kept;
}

/** A slider by the logarithm of its value, as factors are what matters, with a scale and its value to type;
 * change(value) is called as it moves. ``none`` is what its lowest place stands for, as 0. Answers the element;
 * its put(value) shows a value that comes from elsewhere. */
export function slider({ label, low, high, value, unit = "", isWhole = false, none = "", change }) {
  const placeOf = (one) => Math.log(clamp(one, low, high) / low) / Math.log(high / low);
  const valueOf = (place) => (none && place <= 0 ? 0 : clamp(rounded(low * (high / low) ** place, unit, isWhole), low, high));
  const show = (one) => (none && one === 0 ? none : isWhole ? one.toLocaleString("en") : writeAmount(one, unit));
  let now = value;
  const range = h("input", { type: "range", min: "0", max: String(STEPS), "aria-label": label,
    oninput: () => move(valueOf(Number(range.value) / STEPS)),
    onkeydown: (event) => {
      const by = keyStep(event);
      if (!by) return;
      event.preventDefault();
      const next = stepped(now, by, placeOf, valueOf);
      if (next !== now) move(next);
    } });
  const typed = h("input", { class: "dh-typed", "aria-label": `${label}: value`, size: "8", autocomplete: "off", spellcheck: "false",
    onchange: () => read(), onkeydown: (event) => (event.key === "Enter" ? read() : null) });
  const scale = h("div", { class: "dh-scale", "aria-hidden": "true" }, scaleMarks(low, high, unit).map(([, at, words]) => {
    const mark = h("span", {}, words);
    mark.style.setProperty("--at", at.toFixed(4));
    return mark;
  }));
  const wrong = h("div", { class: "dh-bad dh-wrong", role: "alert", hidden: true });
  const element = h("div", { class: "dh-slider" }, h("span", { class: "dh-name", title: label }, label), h("div", { class: "dh-rail" }, range, scale), typed, wrong);

  function read() {
    const given = none && typed.value.trim().toLowerCase() === none ? 0 : readAmount(typed.value, unit);
    const isFine = given !== null && (isWhole ? Number.isInteger(given) : true) && ((given >= low && given <= high) || (none && given === 0));
    complain(isFine ? "" : `${typed.value.trim() || "nothing"}: allowed is ${none ? `${none}, or at most` : `${isWhole ? "a whole number, " : ""}${show(low)} to`} ${show(high)}`);
    if (isFine) move(given);
  }

  function complain(words) {
    wrong.textContent = words;
    wrong.hidden = !words;
    scale.hidden = Boolean(words);
    typed.setAttribute("aria-invalid", String(Boolean(words)));
  }

  function move(next) {
    const isNew = next !== now;
    now = next;
    tell();
    if (isNew) change(now);
  }

  function tell() {
    range.value = String(Math.round(placeOf(now) * STEPS));
    range.setAttribute("aria-valuetext", show(now));
    typed.value = show(now);
    complain("");
  }

  element.put = (other) => {
    if (other === now) return;
    now = other;
    tell();
  };
  tell();
  return element;
}

/** Set a trait a moment later, so that a slider that is dragged asks a few times a second only. */
export function asker(model, after = 120) {
  const timers = new Map();
  return (name, value) => {
    clearTimeout(timers.get(name));
    timers.set(name, setTimeout(() => {
      model.set(name, value);
      model.save_changes();
    }, after));
  };
}
