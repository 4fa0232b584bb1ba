// Nodes over time and curves below, on canvases that zoom together. No library, no network.
// data = {nodes, end, jobs: [name, ...], spans: [[job, from, to, [first, last, ...], note], ...],
//         curves: [{name, unit, time: [...], value: [...]}, ...]}; a curve may have a band to stay in
//         [[from, lower, upper or null], ...], a forecast [[from, least, most], ...], times at which it was
//         outside [[from, to, text], ...], and marks [[time, kind, text], ...]
function timeline(root, data) {
  const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442",
                   "#7fb8d8", "#f2cf80", "#80ceb9", "#e5bcd3", "#aad9f4"];
  const LEFT = 70, RIGHT = 14, AXIS = 20;
  let from = 0, to = data.end || 1, drag = null;
  const tip = document.createElement("div");
  tip.className = "tip"; tip.hidden = true;
  const rows = Math.max(80, Math.min(420, data.nodes * 20));

  function canvas(height, label) {
    const c = document.createElement("canvas");
    c.style.height = height + "px"; c.tabIndex = 0;
    c.setAttribute("role", "img");
    c.setAttribute("aria-label", label + ". Wheel or + and - zoom, drag or arrows move, 0 resets.");
    root.append(c);
    c.onwheel = e => { e.preventDefault(); zoom(at(c, e), e.deltaY < 0 ? 0.8 : 1.25); };
    c.onpointerdown = e => { drag = {x: e.clientX, from, to}; c.setPointerCapture(e.pointerId); };
    c.onpointerup = () => { drag = null; };
    c.onpointermove = e => drag ? pan(c, e) : hover(c, e);
    c.onpointerleave = () => { tip.hidden = true; };
    c.ondblclick = reset;
    c.onkeydown = e => {
      const middle = (from + to) / 2, step = (to - from) / 8;
      const acts = {"+": () => zoom(middle, 0.8), "=": () => zoom(middle, 0.8), "-": () => zoom(middle, 1.25),
                    "0": reset, ArrowLeft: () => move(-step), ArrowRight: () => move(step)};
      if (acts[e.key]) { e.preventDefault(); acts[e.key](); }
    };
    return c;
  }
  const isBanded = curve => curve.band.length > 0;
  const width = c => c.clientWidth - LEFT - RIGHT;
  const at = (c, e) => from + (e.offsetX - LEFT) / width(c) * (to - from);
  function clamp(a, b) {
    const span = Math.min(b - a, data.end), start = Math.max(0, Math.min(a, data.end - span));
    from = start; to = start + span; draw();
  }
  const zoom = (t, f) => clamp(t - (t - from) * f, t + (to - t) * f);
  const move = d => clamp(from + d, to + d);
  const reset = () => clamp(0, data.end);
  function pan(c, e) {
    const d = (drag.x - e.clientX) / width(c) * (drag.to - drag.from);
    clamp(drag.from + d, drag.to + d);
  }

  function duration(s) {
    const a = Math.abs(s);
    if (a < 100) return +s.toPrecision(3) + " s";
    if (a < 6000) return (s / 60).toFixed(1) + " min";
    return a < 172800 ? (s / 3600).toFixed(1) + " h" : (s / 86400).toFixed(1) + " d";
  }
  function nice(step) {
    for (const s of [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400])
      if (step <= s) return step > 0.5 ? s : 10 ** Math.floor(Math.log10(step));
    return 86400 * Math.ceil(step / 86400);
  }
  function round(step) {  // the next 1, 2 or 5 times a power of ten
    const ten = 10 ** Math.floor(Math.log10(step));
    return [1, 2, 5, 10].find(n => n * ten >= step) * ten;
  }
  function prepare(c) {
    const ratio = window.devicePixelRatio || 1;
    c.width = c.clientWidth * ratio; c.height = c.clientHeight * ratio;
    const g = c.getContext("2d");
    g.scale(ratio, ratio);
    g.font = "11px system-ui, sans-serif";
    g.fillStyle = g.strokeStyle = getComputedStyle(root).color;
    return g;
  }
  const X = (c, t) => LEFT + (t - from) / (to - from) * width(c);
  function axis(g, c, top, depth, words) {  // lines, and times at that height if there is one
    const step = nice((to - from) / 8);
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      g.globalAlpha = 0.15; g.fillRect(X(c, t), top, 1, depth - top);
      g.globalAlpha = 0.75;
      g.textAlign = "center";
      if (words) g.fillText(duration(t), Math.min(X(c, t), c.clientWidth - 22), words);
    }
    g.globalAlpha = 1;
  }
  function drawNodes() {
    const c = canvases[0], g = prepare(c), row = rows / data.nodes, ink = g.fillStyle;
    axis(g, c, 0, rows, rows + 14);
    g.textAlign = "right";
    const every = Math.ceil(14 / row);
    for (let n = 0; n < data.nodes; n += every) g.fillText("node " + n, LEFT - 6, n * row + Math.min(row / 2, 10) + 4);
    g.save(); g.beginPath(); g.rect(LEFT, 0, width(c), rows); g.clip();
    for (const [job, a, b, ranges] of data.spans) {
      if (b < from || a > to) continue;
      const x = X(c, a), w = Math.max(X(c, b) - x, 0.5), name = data.jobs[job];
      for (let i = 0; i < ranges.length; i += 2) {
        const y = ranges[i] * row, h = (ranges[i + 1] - ranges[i] + 1) * row;
        g.fillStyle = PALETTE[job % PALETTE.length];
        g.fillRect(x, y, w - (w > 3 ? 0.5 : 0), h - (row > 3 ? 1 : 0));
        if (h > 11 && w > name.length * 6.5 + 4) {
          g.fillStyle = job % PALETTE.length ? "#000" : "#fff"; g.textAlign = "center";
          g.fillText(name, x + w / 2, y + h / 2 + 4);
        }
      }
    }
    g.restore(); g.fillStyle = ink;
  }
  function drawCurve(curve, c) {
    const g = prepare(c), depth = c.clientHeight - 8, top = Math.max(...curve.value, curve.top || 0) || 1;
    const Y = v => depth - v / top * (depth - 14);
    axis(g, c, 0, depth);
    g.textAlign = "right";
    g.fillText(+top.toPrecision(3) + (curve.unit ? " " + curve.unit : ""), LEFT - 6, 18);
    g.fillText("0", LEFT - 6, depth);
    g.textAlign = "left"; g.fillText(curve.name, LEFT + 4, 11);
    g.save(); g.beginPath(); g.rect(LEFT, 0, width(c), depth + 1); g.clip();
    g.beginPath(); g.moveTo(X(c, curve.time[0]), Y(0));
    for (let i = 0; i < curve.time.length; i++) {
      g.lineTo(X(c, curve.time[i]), Y(curve.value[i]));
      g.lineTo(X(c, curve.time[i + 1] ?? data.end), Y(curve.value[i]));
    }
    g.lineTo(X(c, data.end), Y(0));
    g.globalAlpha = 0.35; g.fillStyle = "#0072b2"; g.fill(); g.globalAlpha = 1;
    g.strokeStyle = "#0072b2"; g.stroke();
    g.restore();
  }
  const SIGNS = {more: ["#009e73", "grew or started"], less: ["#e69f00", "shrank"], hold: ["#cc79a7", "held"],
                 other: ["#888888", "other"]};
  const BAND = {height: 236, top: 22, foot: 40};  // of the canvas; above and below what is drawn to scale
  const last = (times, t) => times.findLastIndex(x => x <= t);
  function steps(g, c, Y, times, values) {  // a path that changes in steps; a missing value is off the scale
    times.forEach((t, i) => {
      const y = values[i] === null ? -1e5 : Y(values[i]);
      g.lineTo(i ? X(c, t) : -1e5, y);
      g.lineTo(i + 1 < times.length ? X(c, times[i + 1]) : 1e5, y);
    });
  }
  function scale(curve) {  // from where to where the axis reaches
    // the forecast is left out: a vague one is not to squeeze all the rest
    const all = [...curve.value, ...curve.band.flatMap(([, a, b]) => [a, b])].filter(v => v !== null);
    let low = Infinity, high = -Infinity;
    for (const v of all) { low = Math.min(low, v); high = Math.max(high, v); }
    if (low < 0.4 * high) low = 0;
    const room = (high - low || 1) * 0.08;
    return [low ? low - room : 0, high + room];
  }
  function drawBanded(curve, c) {
    const g = prepare(c), ink = g.fillStyle, depth = c.clientHeight - BAND.foot, [low, high] = scale(curve);
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const blue = dark ? "#56b4e9" : "#0072b2", red = dark ? "#ff7f3f" : "#d55e00";
    const Y = v => depth - (v - low) / (high - low) * (depth - BAND.top);
    axis(g, c, BAND.top, depth, depth + 32);
    const step = round((high - low) / 4);
    g.textAlign = "right";
    for (let v = Math.ceil(low / step) * step; v <= high; v += step) {
      g.globalAlpha = 0.15; g.fillRect(LEFT, Y(v), width(c), 1); g.globalAlpha = 0.75;
      g.fillText(+v.toPrecision(4) + " " + curve.unit, LEFT - 6, Y(v) + 4);
    }
    g.globalAlpha = 1;
    legend(g, c, curve, ink, blue, red);
    g.save(); g.beginPath(); g.rect(LEFT, BAND.top, width(c), depth - BAND.top); g.clip();
    const at = curve.band.map(b => b[0]), lower = curve.band.map(b => b[1]), upper = curve.band.map(b => b[2]);
    const area = (times, from, to) => {
      const back = [];
      g.beginPath(); steps(g, c, Y, times, from);
      steps({lineTo: (x, y) => back.push([x, y])}, c, Y, times, to);
      back.reverse().forEach(([x, y]) => g.lineTo(x, y));
      g.closePath();
    };
    if (at.length) {
      area(at, lower, upper.map((b, i) => b === null && !lower[i] ? 0 : b));  // no bounds at all: no band
      g.globalAlpha = dark ? 0.22 : 0.16; g.fillStyle = "#009e73"; g.fill();
      g.globalAlpha = 0.8; g.strokeStyle = "#009e73"; g.lineWidth = 1;
      for (const edge of [lower, upper]) { g.beginPath(); steps(g, c, Y, at, edge); g.stroke(); }
    }
    if (curve.forecast.length) {
      area(curve.forecast.map(f => f[0]), curve.forecast.map(f => f[1]), curve.forecast.map(f => f[2]));
      g.globalAlpha = 0.13; g.fillStyle = blue; g.fill();
    }
    const line = (colour, thick) => {
      g.beginPath(); steps(g, c, Y, curve.time, curve.value);
      g.globalAlpha = 1; g.lineWidth = thick; g.strokeStyle = colour; g.lineJoin = "round"; g.stroke();
    };
    line(blue, 1.6);
    for (const [edge, far] of [[upper, -1e5], [lower, 1e5]]) {  // the same again beyond either edge, in red
      if (!at.length) break;
      g.save(); g.beginPath(); steps(g, c, Y, at, edge);
      g.lineTo(1e5, far); g.lineTo(-1e5, far); g.closePath(); g.clip();
      g.beginPath(); steps(g, c, Y, curve.time, curve.value);
      g.lineTo(1e5, -far); g.lineTo(-1e5, -far); g.closePath();
      g.globalAlpha = 0.35; g.fillStyle = red; g.fill();
      line(red, 2.2);
      g.restore();
    }
    g.restore();
    g.fillStyle = red;
    for (const [a, b] of curve.outside) {
      const x = Math.max(X(c, a), LEFT), end = Math.min(Math.max(X(c, b), X(c, a) + 2), LEFT + width(c));
      if (end > x) g.fillRect(x, BAND.top - 4, end - x, 4);
    }
    for (const [t, kind] of curve.marks)
      if (t >= from && t <= to) sign(g, X(c, t), depth + 9, kind);
    g.fillStyle = ink;
  }
  function sign(g, x, y, kind) {
    g.fillStyle = SIGNS[kind][0]; g.beginPath();
    if (kind === "more") { g.moveTo(x - 4.5, y + 4); g.lineTo(x + 4.5, y + 4); g.lineTo(x, y - 4); }
    else if (kind === "less") { g.moveTo(x - 4.5, y - 4); g.lineTo(x + 4.5, y - 4); g.lineTo(x, y + 4); }
    else if (kind === "hold") g.rect(x - 3.5, y - 4, 7, 8);
    else g.arc(x, y, 3.5, 0, 7);
    g.fill();
  }
  function legend(g, c, curve, ink, blue, red) {
    const entries = [[blue, 1, "line", curve.name]];
    if (curve.band.length) entries.push(["#009e73", 0.35, "block", "corridor"]);
    if (curve.forecast.length) entries.push([blue, 0.15, "block", "forecast"]);
    if (curve.outside.length) entries.push([red, 1, "block", "outside"]);
    for (const kind of Object.keys(SIGNS))
      if (curve.marks.some(mark => mark[1] === kind)) entries.push([null, 1, kind, SIGNS[kind][1]]);
    let x = LEFT + 4;
    g.textAlign = "left";
    for (const [colour, alpha, shape, text] of entries) {
      if (shape in SIGNS) sign(g, x + 5, 8, shape);
      else {
        g.fillStyle = colour; g.globalAlpha = alpha;
        g.fillRect(x, shape === "line" ? 7 : 3, 12, shape === "line" ? 2 : 10);
        g.globalAlpha = 1;
      }
      g.fillStyle = ink; g.fillText(text, x + 17, 12);
      x += 17 + g.measureText(text).width + 16;
    }
    g.fillStyle = ink;
  }
  function pointed(curve, c, e, t) {  // what to say of a banded curve where somebody points
    const near = curve.marks.filter(([when]) => Math.abs(X(c, when) - e.offsetX) < 6);
    const told = near.slice(0, 8).map(([when, , text]) => `${duration(when)}: ${text}`);
    if (near.length > 8) told.push(`and ${near.length - 8} more`);
    if (e.offsetY > c.clientHeight - BAND.foot) return told.join("\n");
    const i = last(curve.time, t), b = curve.band[Math.max(last(curve.band.map(x => x[0]), t), 0)];
    if (i < 0) return told.join("\n");
    const say = v => `${+v.toPrecision(4)} ${curve.unit}`;
    const lines = [`${curve.name} ${say(curve.value[i])} at ${duration(t)}`];
    if (b) {
      const sides = [b[1] ? `at least ${say(b[1])}` : "", b[2] === null ? "" : `at most ${say(b[2])}`].filter(x => x);
      lines.push("corridor: " + (sides.join(", ") || "none"));
    }
    const f = curve.forecast[last(curve.forecast.map(x => x[0]), t)];
    if (f) lines.push(`forecast then: ${say(f[1])} to ${say(f[2])}`);
    const hit = curve.outside.find(([a, z]) => a <= t && t < z);
    if (hit) lines.push(hit[2]);
    return [...lines, ...told].join("\n");
  }
  function hover(c, e) {
    const t = at(c, e), index = canvases.indexOf(c);
    let text = "";
    if (index === 0) {
      const node = Math.floor(e.offsetY / (rows / data.nodes));
      const hit = data.spans.find(([, a, b, r]) => a <= t && t < b &&
        r.some((first, i) => i % 2 === 0 && first <= node && node <= r[i + 1]));
      if (hit) text = `${data.jobs[hit[0]]}: ${duration(hit[1])} to ${duration(hit[2])}${hit[4] ? "\n" + hit[4] : ""}`;
    } else {
      const curve = data.curves[index - 1], {time, value, unit, name} = curve;
      const i = last(time, t);
      if (isBanded(curve)) text = pointed(curve, c, e, t);
      else if (i >= 0) text = `${name} ${+value[i].toPrecision(4)} ${unit} at ${duration(t)}`;
    }
    tip.hidden = !text; tip.textContent = text;
    tip.style.left = Math.min(e.offsetX + 14, c.clientWidth - 260) + "px";
    tip.style.top = c.offsetTop + e.offsetY + 14 + "px";
  }
  function draw() { drawNodes(); data.curves.forEach((curve, i) =>
    (isBanded(curve) ? drawBanded : drawCurve)(curve, canvases[i + 1])); }
  const canvases = [canvas(rows + AXIS, "Who held which node"),
                    ...data.curves.map(c => canvas(isBanded(c) ? BAND.height : 90, `${c.name} over time`))];
  root.append(tip);
  new ResizeObserver(draw).observe(root);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}
