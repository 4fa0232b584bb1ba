// Pictures that are kept: what is drawn as SVG, what is shown as CSV.

import assert from "node:assert/strict";
import { test } from "node:test";

import { SvgContext, saved } from "../../dask_hpc/view/kit/shared/svg_context.js";

const THEME = { ink: "#111", faint: "#555", paper: "#fff", accent: "#00f" };

test("what is drawn is written down", () => {
  const context = new SvgContext();
  context.fillStyle = "#123";
  context.fillRect(1, 2.005, 3, 4);
  context.globalAlpha = 0.5;
  context.strokeStyle = "#456";
  context.setLineDash([3, 2]);
  context.beginPath();
  context.moveTo(0, 0);
  context.lineTo(5, 5.5);
  context.stroke();
  context.globalAlpha = 1;
  context.textAlign = "right";
  context.fillText("<a & \"b\">", 9, 9);
  const text = String(context);
  assert.ok(text.startsWith('<rect x="1" y="2.01" width="3" height="4" fill="#123"/>'));
  assert.ok(text.includes('<path d="M0 0L5 5.5" fill="none" stroke="#456" stroke-width="1" stroke-dasharray="3 2" opacity="0.5"/>'));
  assert.ok(text.includes('text-anchor="end"') && text.includes("&#60;a &#38; &#34;b&#34;&#62;</text>"));
});

test("what is clipped and kept is as before afterwards", () => {
  const context = new SvgContext("p");
  context.save();
  context.rect(0, 0, 5, 5);
  context.clip();
  context.save();
  context.fillStyle = "#f00";
  context.clip();
  context.restore();
  context.fillRect(0, 0, 1, 1);
  context.restore();
  context.fillRect(1, 1, 1, 1);
  const text = String(context);
  assert.equal(text.match(/<g /g).length, text.match(/<\/g>/g).length);
  assert.deepEqual(text.match(/clipPath id="([^"]+)"/g), ['clipPath id="p-1"', 'clipPath id="p-2"']);
  assert.ok(!text.includes("#f00"));
  assert.ok(text.endsWith('</g><rect x="1" y="1" width="1" height="1" fill="#000"/>'));
});

test("an unended clip is ended", () => {
  const context = new SvgContext();
  context.rect(0, 0, 5, 5);
  context.clip();
  assert.ok(String(context).endsWith("</g>"));
});

test("circles and rectangles are paths", () => {
  const context = new SvgContext();
  context.beginPath();
  context.arc(5, 5, 2, 0, 7);
  context.rect(1, 1, 2, 3);
  context.fill();
  assert.equal(String(context), '<path d="M3 5a2 2 0 1 0 4 0a2 2 0 1 0 -4 0ZM1 1h2v3h-2Z" fill="#000"/>');
});

test("pictures stand one above the other, with a title and what colours mean", () => {
  const sizes = [];
  const one = (title, height) => ({ title, height, legend: [["accent", `of ${title}`]], paint: (context, ...size) => {
    sizes.push(size.slice(0, 2));
    context.fillRect(0, 0, 1, 1);
  } });
  const text = saved([one("map", 100), one("power", 50)], 400, THEME, "a < b");
  assert.deepEqual(sizes, [[400, 100], [400, 50]]);
  assert.ok(text.includes('width="400" height="242"') && text.includes("<title>a &#60; b</title>"));
  assert.deepEqual(text.match(/translate\(0 \d+\)/g), ["translate(0 52)", "translate(0 184)"]);
  assert.ok(text.includes("of map") && text.includes('fill="#00f"'));
  assert.equal(text.match(/<g /g).length, text.match(/<\/g>/g).length);
});
