// Quantities as people read them; the same words as the Python side.

const DURATIONS = [
  [100, 1, "s"],
  [6000, 60, "min"],
  [172800, 3600, "h"],
  [Infinity, 86400, "d"],
];
const NICE_SECONDS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400,
];

/** "47 s", "3.5 min", "2.1 h"; "-" for nothing. */
export function showDuration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "-";
  if (!Number.isFinite(seconds)) return "unlimited";
  for (const [limit, scale, word] of DURATIONS) {
    if (Math.abs(seconds) < limit) {
      const value = seconds / scale;
      return `${scale === 1 ? trimmed(value) : value.toFixed(1)} ${word}`;
    }
  }
}

/** "3.2 GJ", "950 W". */
export function showLarge(value, unit) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  if (!Number.isFinite(value)) return "unlimited";
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < prefixes.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${trimmed(value)} ${prefixes[step]}${unit}`;
}

/** A time on the cluster's clock: "0:07", "1:02:03". */
export function showClock(seconds) {
  const t = Math.max(0, seconds);
  const two = (x) => String(Math.floor(x)).padStart(2, "0");
  const [h, m, s] = [Math.floor(t / 3600), Math.floor((t % 3600) / 60), t % 60];
  const rest = s % 1 > 0.01 ? (s % 1).toFixed(1).slice(1) : "";
  return `${h ? `${h}:${two(m)}` : m}:${two(s)}${rest}`;
}

export function countOf(number, word, more = `${word}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? word : more}`;
}

/** "1.7 kW to 2 kW", "at most 2 kW", "at least 1 kW", "no bounds"; null is no upper bound, 0 no lower one. */
export function showBounds(lower, upper, unit) {
  const [low, high] = [lower > 0, upper !== null && upper !== undefined];
  if (low && high) return `${showLarge(lower, unit)} to ${showLarge(upper, unit)}`;
  if (high) return `at most ${showLarge(upper, unit)}`;
  return low ? `at least ${showLarge(lower, unit)}` : "no bounds";
}

/** Round values from low to high, about so many. */
export function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= rough * 0.999);
  return multiples(low, high, step);
}

/** Round times from low to high, about so many. */
export function timeTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (rough < 1) return ticks(low, high, count);
  const step =
    NICE_SECONDS.find((x) => x >= rough * 0.999) ?? Math.ceil(rough / 86400) * 86400;
  return multiples(low, high, step);
}

function multiples(low, high, step) {
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) {
    found.push(Number((n * step).toPrecision(12)));
  }
  return found;
}

function trimmed(value) {
  return String(Number(value.toPrecision(3)));
}
