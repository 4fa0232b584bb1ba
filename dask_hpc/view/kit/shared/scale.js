// From values to pixels and back.

/** A straight line from [low, high] to the pixels [from, to]; invert() goes back. */
export function linear(low, high, from, to) {
  const factor = high > low ? (to - from) / (high - low) : 0;
  const scale = (value) => from + (value - low) * factor;
  scale.invert = (pixel) => (factor ? low + (pixel - from) / factor : low);
  return scale;
}

/** Whether a window of time has moved by half a pixel since it was painted: before that nobody sees it. */
export function hasMoved([from, to], seconds, pixels) {
  return seconds < 0 || seconds * pixels * 2 >= to - from;
}

export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/** The window [from, to] after zooming by a factor around a value, kept within [low, high]. */
export function zoomed([from, to], around, factor, low, high, least) {
  const length = clamp((to - from) * factor, least, Math.max(least, high - low));
  const share = to > from ? (around - from) / (to - from) : 0.5;
  return shifted([around - share * length, around + (1 - share) * length], 0, low, high);
}

/** The window moved by so much, kept within [low, high]. */
export function shifted([from, to], by, low, high) {
  const length = to - from;
  const start = clamp(from + by, Math.min(low, high - length), Math.max(low, high - length));
  return [start, start + length];
}
