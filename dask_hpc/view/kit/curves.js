// Quantities of a run that is over, which change in steps: busy nodes, waiting jobs.

import { Canvas } from "./shared/canvas.js";
import { follow } from "./shared/course.js";
import { Tip, claim, h } from "./shared/page.js";
import { clamp, linear } from "./shared/scale.js";
import { showClock, timeTicks } from "./shared/units.js";

const LEFT = 92;
const [TOP, BOTTOM, HEIGHT] = [16, 20, 104];

/** The value of {time, value} at a time; undefined before the first. */
export function valueAt(curve, time) {
  const i = curve.time.findLastIndex((one) => one <= time);
  return i < 0 ? undefined : curve.value[i];
}

function rounded(value) {
  return `${Number(value.toPrecision(4))}`;
}

function paint(curve, [from, to], end, context, width, height, theme) {
  const floor = height - BOTTOM;
  const top = Math.max(curve.top ?? 0, ...curve.value) || 1;
  const [x, y] = [linear(from, to, LEFT, width - 8), linear(0, top, floor, TOP)];
  context.fillStyle = theme.faint;
  context.textAlign = "right";
  context.fillText(`${rounded(top)} ${curve.unit}`.trim(), LEFT - 8, TOP);
  context.fillText("0", LEFT - 8, floor);
  context.textAlign = "center";
  for (const time of timeTicks(Math.max(0, from), to, (width - LEFT) / 100)) {
    context.fillText(showClock(time), clamp(x(time), LEFT + 12, width - 20), floor + 12);
  }
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, width - LEFT, floor + 1);
  context.clip();
  context.beginPath();
  context.moveTo(x(curve.time[0] ?? 0), floor);
  curve.time.forEach((time, i) => {
    context.lineTo(x(time), y(curve.value[i]));
    context.lineTo(x(curve.time[i + 1] ?? end), y(curve.value[i]));
  });
  context.lineTo(x(end), floor);
  context.fillStyle = context.strokeStyle = theme.accent;
  context.globalAlpha = 0.3;
  context.fill();
  context.globalAlpha = 1;
  context.stroke();
  context.restore();
}

function render({ model, el }) {
  let [begin, end] = [0, 1];
  let canvases = [];
  claim(el, "dh-curves");
  const seen = () => model.get("window") ?? [begin, end];

  function add(curve) {
    const plot = h("div", { class: "dh-plot" });
    el.append(h("h3", {}, curve.name), plot);
    const canvas = new Canvas(plot, (...where) => paint(curve, seen(), end, ...where), { height: HEIGHT, label: `${curve.name} over time` });
    const tip = new Tip(plot);
    canvas.element.addEventListener("pointermove", (event) => {
      const [px, py] = Canvas.place(event);
      const time = linear(...seen(), LEFT, canvas.width - 8).invert(px);
      const value = valueAt(curve, time);
      if (value === undefined || time > end || px < LEFT) return tip.hide();
      tip.show(px, py, [`${rounded(value)} ${curve.unit}`.trim(), showClock(time)]);
    });
    canvas.element.addEventListener("pointerleave", () => tip.hide());
    return canvas;
  }

  const moved = () => canvases.forEach((one) => one.repaint());
  model.on("change:window", moved);
  const quiet = follow(model, (news) => {
    if (!news.curves) return;
    [begin, end] = [news.head.begin ?? 0, news.head.time];
    for (const one of canvases) one.remove();
    el.replaceChildren();
    canvases = news.curves.map(add);
  });
  return () => {
    quiet();
    model.off("change:window", moved);
    for (const one of canvases) one.remove();
  };
}

export default { render };
