// Quantities of a run that is over, which change in steps: busy nodes, waiting jobs.

import { EDGE, TimePicture, axisOf } from "./shared/axis.js";
import { follow } from "./shared/course.js";
import { claim, csvOf, h } from "./shared/page.js";
import { linear } from "./shared/scale.js";
import { ownToolbar } from "./shared/toolbar.js";

const [TOP, HEIGHT] = [14, 96];

/** The value of {time, value} at a time; undefined before the first. */
export function valueAt(curve, time) {
  const i = curve.time.findLastIndex((one) => one <= time);
  return i < 0 ? undefined : curve.value[i];
}

function rounded(value) {
  return `${Number(value.toPrecision(4))}`;
}

function paint(curve, end, context, width, floor, theme, x) {
  const top = Math.max(curve.top ?? 0, ...curve.value) || 1;
  const y = linear(0, top, floor, TOP);
  context.fillStyle = theme.faint;
  context.textAlign = "right";
  context.fillText(`${rounded(top)} ${curve.unit}`.trim(), EDGE.left - 8, TOP);
  context.fillText("0", EDGE.left - 8, floor - 4);
  context.save();
  context.beginPath();
  context.rect(EDGE.left, 0, width - EDGE.left - EDGE.right, floor + 1);
  context.clip();
  context.beginPath();
  context.moveTo(x(curve.time[0] ?? 0), floor);
  curve.time.forEach((time, i) => {
    context.lineTo(x(time), y(curve.value[i]));
    context.lineTo(x(curve.time[i + 1] ?? end), y(curve.value[i]));
  });
  context.lineTo(x(end), floor);
  context.fillStyle = context.strokeStyle = theme.accent;
  context.lineWidth = 1;
  context.globalAlpha = 0.3;
  context.fill();
  context.globalAlpha = 1;
  context.stroke();
  context.restore();
}

function render({ model, el }) {
  const axis = axisOf(model);
  const bar = ownToolbar(model);
  let drawn = [];
  claim(el, "dh-curves");

  function add(curve) {
    const plot = h("div", { class: "dh-plot" });
    el.append(h("h3", {}, curve.name), plot);
    const picture = new TimePicture(model, plot, {
      name: `${curve.name} over time`,
      height: HEIGHT,
      paint: (...where) => paint(curve, axis.now, ...where),
      tip(px) {
        const time = picture.timeAt(px);
        const value = valueAt(curve, time);
        if (value === undefined || time > axis.now) return null;
        return [`${rounded(value)} ${curve.unit}`.trim(), axis.show(time)];
      },
      legend: () => [],
      tables: () => [[curve.name, () => csvOf(["time", curve.name], curve.time.map((time, i) => [time, curve.value[i]]))]],
    });
    return picture;
  }

  const end = follow(model, (news) => {
    axis.add(news);
    if (!news.curves) return;
    for (const one of drawn) one.remove();
    el.replaceChildren(...(bar.element ? [bar.element] : []));
    drawn = news.curves.map(add);
  });
  return () => {
    end();
    for (const one of drawn) one.remove();
    bar.end();
  };
}

export default { render };
