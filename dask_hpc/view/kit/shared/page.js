// Elements of a page, made from text that is never read as markup.

/** Views that others show, by their names: see the kit. */
export const views = {};

/** h("button", {class: "plain", onclick: f}, "Apply"): an element with attributes, listeners, children. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Make an element ours: keys that are pressed in it, also after a click on what takes no keys, are not for the
 * front end around it. */
export function claim(element, kind) {
  element.classList.add("dask-hpc", kind);
  element.dataset.lmSuppressShortcuts = "true";
  element.tabIndex = -1;
  for (const one of ["keydown", "keypress", "keyup"]) element.addEventListener(one, (event) => event.stopPropagation());
}

/** A place for whatever asks somebody else to do something: it is switched off while nobody hears. */
export function deeds(attributes = {}, ...children) {
  return h("fieldset", { ...attributes, class: `dh-deeds ${attributes.class ?? ""}`.trim() }, ...children);
}

/** Replace what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

/** Have the browser save something: a text, a Blob, or with no type what is at an address. */
export function saveAs(name, what, type) {
  const blob = what instanceof Blob || type === undefined ? what : new Blob([what], { type: `${type};charset=utf-8` });
  const link = h("a", { href: blob instanceof Blob ? URL.createObjectURL(blob) : blob, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  if (blob instanceof Blob) setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Comma-separated values as RFC 4180 has them. */
export function csvOf(heads, rows) {
  const quoted = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [heads, ...rows].map((row) => `${row.map(quoted).join(",")}\r\n`).join("");
}

/** Text that belongs to a place under the pointer. */
export class Tip {
  constructor(parent) {
    this.element = h("div", { class: "dh-tip", role: "tooltip", hidden: true });
    parent.append(this.element);
  }

  show(x, y, lines) {
    fill(this.element, lines.map((line, i) => h(i ? "div" : "strong", {}, line)));
    this.element.hidden = false;
    const width = this.element.parentElement.clientWidth;
    const left = x + 14 + this.element.offsetWidth > width ? x - 14 - this.element.offsetWidth : x + 14;
    this.element.style.transform = `translate(${Math.max(0, left)}px, ${y + 14}px)`;
  }

  hide() {
    this.element.hidden = true;
  }
}

/** Keep an element saying what came of what was asked for last, or what is wrong. Answers how to end it. */
export function tellWhatCame(model, element) {
  element.classList.add("dh-said");
  const tell = () => {
    element.textContent = element.title = model.get("problem") || model.get("done");
    element.classList.toggle("dh-bad", Boolean(model.get("problem")));
  };
  model.on("change:problem change:done", tell);
  tell();
  return () => model.off("change:problem change:done", tell);
}
