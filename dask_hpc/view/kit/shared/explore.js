// Sliders that ask, and the answer they get.

import { h } from "./page.js";
import { clamp } from "./scale.js";

const STEPS = 300;

/** A slider by the logarithm of its value, as factors are what matters: from low to high. */
export function logPlace(value, low, high) {
  return Math.round((Math.log(clamp(value, low, high) / low) / Math.log(high / low)) * STEPS);
}

export function logValue(place, low, high) {
  return Number((low * (high / low) ** (place / STEPS)).toPrecision(3));
}

/** A labelled slider; change(value) is called as it moves. */
export function slider({ label, low, high, value, show, change }) {
  const out = h("output", { class: "dh-n" }, show(value));
  const input = h("input", {
    type: "range", min: "0", max: String(STEPS), value: String(logPlace(value, low, high)),
    "aria-label": label, "aria-valuetext": show(value),
    oninput: () => {
      const now = logValue(Number(input.value), low, high);
      out.textContent = show(now);
      input.setAttribute("aria-valuetext", show(now));
      change(now);
    },
  });
  return h("label", { class: "dh-slider" }, h("span", {}, label), input, out);
}

/** Set a trait a moment later, so that a slider that is dragged asks a few times a second only. */
export function asker(model, after = 120) {
  let timer = 0;
  return (name, value) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      model.set(name, value);
      model.save_changes();
    }, after);
  };
}
