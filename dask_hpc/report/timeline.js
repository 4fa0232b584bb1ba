// Nodes over time and curves below, on canvases that zoom together. No library, no network.
// data = {nodes, end, jobs: [name, ...], spans: [[job, from, to, [first, last, ...], note], ...],
//         curves: [{name, unit, time: [...], value: [...]}, ...]}
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
  function axis(g, c, depth, words) {
    const step = nice((to - from) / 8);
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      g.globalAlpha = 0.15; g.fillRect(X(c, t), 0, 1, depth);
      g.globalAlpha = 0.75;
      g.textAlign = "center";
      if (words) g.fillText(duration(t), Math.min(X(c, t), c.clientWidth - 22), depth + 14);
    }
    g.globalAlpha = 1;
  }
  function drawNodes() {
    const c = canvases[0], g = prepare(c), row = rows / data.nodes, ink = g.fillStyle;
    axis(g, c, rows, true);
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
    axis(g, c, depth, false);
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
  function hover(c, e) {
    const t = at(c, e), index = canvases.indexOf(c);
    let text = "";
    if (index === 0) {
      const node = Math.floor(e.offsetY / (rows / data.nodes));
      const hit = data.spans.find(([, a, b, r]) => a <= t && t < b &&
        r.some((first, i) => i % 2 === 0 && first <= node && node <= r[i + 1]));
      if (hit) text = `${data.jobs[hit[0]]}: ${duration(hit[1])} to ${duration(hit[2])}${hit[4] ? "\n" + hit[4] : ""}`;
    } else {
      const {time, value, unit, name} = data.curves[index - 1];
      let i = time.findLastIndex(x => x <= t);
      if (i >= 0) text = `${name} ${+value[i].toPrecision(4)} ${unit} at ${duration(t)}`;
    }
    tip.hidden = !text; tip.textContent = text;
    tip.style.left = Math.min(e.offsetX + 14, c.clientWidth - 260) + "px";
    tip.style.top = c.offsetTop + e.offsetY + 14 + "px";
  }
  function draw() { drawNodes(); data.curves.forEach((curve, i) => drawCurve(curve, canvases[i + 1])); }
  const canvases = [canvas(rows + AXIS, "Who held which node"),
                    ...data.curves.map(c => canvas(90, `${c.name} over time`))];
  root.append(tip);
  new ResizeObserver(draw).observe(root);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}
