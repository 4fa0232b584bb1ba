// A picture as SVG: what our pictures call on a canvas's context, written down.

const svgNumber = (value) => String(Math.round(value * 100) / 100);
const svgText = (text) => String(text).replace(/[&<>"]/g, (one) => `&#${one.charCodeAt(0)};`);

/** Stands where a CanvasRenderingContext2D does. */
export class SvgContext {
  constructor(name = "c") {
    this.name = name;
    this.parts = [];
    this.path = [];
    this.rects = 0;
    this.kept = [];
    this.clips = 0;
    /** Groups that are open because of a clip. */
    this.depth = 0;
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, lineJoin: "miter" });
    Object.assign(this, { font: "12px system-ui, sans-serif", textAlign: "left", textBaseline: "middle", dash: [] });
  }

  save() {
    const { fillStyle, strokeStyle, lineWidth, globalAlpha, lineJoin, font, textAlign, textBaseline, dash, depth } = this;
    this.kept.push({ fillStyle, strokeStyle, lineWidth, globalAlpha, lineJoin, font, textAlign, textBaseline, dash, depth });
  }

  restore() {
    const kept = this.kept.pop();
    if (!kept) return;
    for (; this.depth > kept.depth; this.depth -= 1) this.parts.push("</g>");
    Object.assign(this, kept);
  }

  setTransform() {}

  clearRect() {}

  setLineDash(dash) {
    this.dash = dash;
  }

  /** About as wide as it will be. */
  measureText(text) {
    const letter = /\b(bold|600)\b/.test(this.font) ? 0.68 : 0.6;
    return { width: String(text).length * parseFloat(this.font.match(/[\d.]+px/) ?? "12") * letter };
  }

  beginPath() {
    this.path = [];
  }

  moveTo(x, y) {
    this.path.push(`M${svgNumber(x)} ${svgNumber(y)}`);
  }

  lineTo(x, y) {
    this.path.push(`${this.path.length ? "L" : "M"}${svgNumber(x)} ${svgNumber(y)}`);
  }

  closePath() {
    this.path.push("Z");
  }

  rect(x, y, wide, high) {
    this.path.push(`M${svgNumber(x)} ${svgNumber(y)}h${svgNumber(wide)}v${svgNumber(high)}h${svgNumber(-wide)}Z`);
  }

  /** Whole circles are all that we draw. */
  arc(x, y, radius) {
    const r = svgNumber(radius);
    this.path.push(`M${svgNumber(x - radius)} ${svgNumber(y)}a${r} ${r} 0 1 0 ${svgNumber(2 * radius)} 0a${r} ${r} 0 1 0 ${svgNumber(-2 * radius)} 0Z`);
  }

  fill() {
    this.put("path", { d: this.path.join(""), fill: this.fillStyle });
  }

  stroke() {
    const dash = this.dash.length ? this.dash.join(" ") : null;
    const join = this.lineJoin === "miter" ? null : this.lineJoin;
    this.put("path", { d: this.path.join(""), fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth, "stroke-dasharray": dash, "stroke-linejoin": join });
  }

  clip() {
    const id = `${this.name}-${(this.clips += 1)}`;
    this.parts.push(`<clipPath id="${id}"><path d="${this.path.join("")}"/></clipPath><g clip-path="url(#${id})">`);
    this.depth += 1;
  }

  fillRect(x, y, wide, high) {
    this.put("rect", { x: svgNumber(x), y: svgNumber(y), width: svgNumber(Math.max(0, wide)), height: svgNumber(Math.max(0, high)), fill: this.fillStyle });
  }

  strokeRect(x, y, wide, high) {
    this.put("rect", { x: svgNumber(x), y: svgNumber(y), width: svgNumber(wide), height: svgNumber(high), fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth });
  }

  fillText(text, x, y) {
    const anchor = { center: "middle", right: "end" }[this.textAlign] ?? null;
    const size = this.font.match(/[\d.]+px/)?.[0] ?? null;
    const weight = /\b(bold|600)\b/.test(this.font) ? "600" : null;
    const base = this.textBaseline === "middle" ? "central" : null;
    this.put("text", { x: svgNumber(x), y: svgNumber(y), fill: this.fillStyle, "text-anchor": anchor, "dominant-baseline": base, "font-size": size, "font-weight": weight }, text);
  }

  put(name, attributes, text = "") {
    const given = Object.entries({ ...attributes, opacity: this.globalAlpha === 1 ? null : this.globalAlpha })
      .filter(([, value]) => value !== null)
      .map(([key, value]) => ` ${key}="${svgText(value)}"`);
    this.parts.push(`<${name}${given.join("")}${text === "" ? "/>" : `>${svgText(text)}</${name}>`}`);
  }

  /** What was drawn, as elements of SVG. */
  toString() {
    return this.parts.join("") + "</g>".repeat(this.depth);
  }
}

const [SAVED_HEAD, SAVED_GAP] = [28, 24];

/** Pictures one above the other as the text of an SVG file: each has paint, height, title and legend: of each
 * colour (or the theme's name of one) what it means, and a sign if it has one. */
export function saved(pictures, width, theme, title) {
  const context = new SvgContext("head");
  const parts = [];
  context.font = "600 14px system-ui, sans-serif";
  context.fillStyle = theme.ink;
  context.fillText(title, 8, SAVED_HEAD / 2);
  let top = SAVED_HEAD;
  pictures.forEach((one, i) => {
    context.font = "600 12px system-ui, sans-serif";
    context.fillStyle = theme.ink;
    context.fillText(one.title, 8, top + 10);
    let left = 20 + context.measureText(one.title).width;
    context.font = "11px system-ui, sans-serif";
    for (const [colour, words, glyph] of one.legend) {
      context.fillStyle = theme[colour] ?? colour;
      if (glyph) context.fillText(glyph, left, top + 10);
      else context.fillRect(left, top + 5, 10, 10);
      context.fillStyle = theme.faint;
      context.fillText(words, left + 14, top + 10);
      left += 30 + context.measureText(words).width;
    }
    const drawn = new SvgContext(`p${i}`);
    one.paint(drawn, width, one.height, theme);
    parts.push(`<g transform="translate(0 ${top + SAVED_GAP})">${drawn}</g>`);
    top += SAVED_GAP + one.height + 8;
  });
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${svgNumber(width)}" height="${svgNumber(top)}" viewBox="0 0 ${svgNumber(width)} ${svgNumber(top)}"` +
    ` font-family="system-ui, sans-serif"><title>${svgText(title)}</title><rect width="100%" height="100%" fill="${svgText(theme.paper)}"/>${context}${parts.join("")}</svg>\n`
  );
}
