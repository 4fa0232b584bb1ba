// A canvas that is as large as its place, sharp on every screen, and painted at most once a frame.

export class Canvas {
  /** paint(context, width, height, theme) is called in pixels of the page. */
  constructor(parent, paint, { height, label }) {
    this.element = document.createElement("canvas");
    this.element.className = "dh-canvas";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "img");
    this.element.setAttribute("aria-label", label);
    this.element.style.height = `${height}px`;
    this.paint = paint;
    this.waits = 0;
    this.frames = 0;
    parent.append(this.element);
    this.sizes = new ResizeObserver(() => this.repaint());
    this.sizes.observe(this.element);
    this.light = matchMedia("(prefers-color-scheme: dark)");
    this.turned = () => this.repaint();
    this.light.addEventListener("change", this.turned);
  }

  get width() {
    return this.element.clientWidth;
  }

  get height() {
    return this.element.clientHeight;
  }

  /** Soon. */
  repaint() {
    if (!this.waits) this.waits = requestAnimationFrame(() => this.now());
  }

  now() {
    this.waits = 0;
    const { element } = this;
    const [width, height] = [element.clientWidth, element.clientHeight];
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    if (element.width !== Math.round(width * ratio) || element.height !== Math.round(height * ratio)) {
      element.width = Math.round(width * ratio);
      element.height = Math.round(height * ratio);
    }
    const context = element.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.paint(context, width, height, theme(element));
    this.frames += 1;
  }

  /** Where an event of the pointer is, in pixels of the canvas. */
  static place(event) {
    return [event.offsetX, event.offsetY];
  }

  remove() {
    cancelAnimationFrame(this.waits);
    this.sizes.disconnect();
    this.light.removeEventListener("change", this.turned);
    this.element.remove();
  }
}

/** Colours of the page that the canvas is on: of a light or a dark theme. */
export function theme(element) {
  const style = getComputedStyle(element);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    ink: read("--dh-ink"),
    faint: read("--dh-faint"),
    line: read("--dh-line"),
    idle: read("--dh-idle"),
    gone: read("--dh-gone"),
    paper: read("--dh-paper"),
    bad: read("--dh-bad"),
    accent: read("--dh-accent"),
    good: read("--dh-good"),
  };
}
