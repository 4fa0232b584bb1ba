// What is said and done once for all pictures along an axis: nearer, further, back to the present, how it is read.

import { axisOf, swatch } from "./axis.js";
import { theme } from "./canvas.js";
import { fill, h, saveAs } from "./page.js";
import { saved } from "./svg_context.js";

const HINTS = [
  ["drag", "see what is between two times (and nodes)"],
  ["Ctrl or Shift + wheel, + and \u2212", "zoom"],
  ["\u2190 \u2192", "earlier, later"],
  ["\u2191 \u2193", "other nodes, where only some are seen"],
  ["Escape, double click", "follow the present, see all nodes"],
  ["point at a block", "its job is picked out everywhere"],
];

/** The row of buttons above all pictures of a model: {element, end}. */
export function toolbar(model) {
  const axis = axisOf(model);
  axis.hasToolbar = true;
  const button = (name, title, press) => h("button", { type: "button", title, "aria-label": title, onclick: press }, name);
  const back = h("button", { type: "button", onclick: () => reset() }, "Follow the present");
  const whole = h("p", { class: "dh-legend-all" });
  const keys = h("dl", { class: "dh-why" }, HINTS.flatMap(([what, does]) => [h("dt", {}, what), h("dd", {}, does)]));
  const help = h("details", { class: "dh-menu" }, h("summary", { title: "How the pictures are used and read", "aria-label": "How the pictures are used and read" }, "?"),
    h("div", {}, h("strong", {}, "Hands"), keys, h("strong", {}, "What it means"), whole));
  const menu = h("div", { class: "dh-choices" });
  const save = h("details", { class: "dh-menu" }, h("summary", {}, "Save picture"), menu);
  const element = h("div", { class: "dh-row dh-toolbar", role: "group", "aria-label": "What is seen of time" },
    button("\u2212", "Zoom out", () => axis.zoom(1.25)), button("+", "Zoom in", () => axis.zoom(0.8)), back, save, help);

  function reset() {
    for (const one of axis.pictures) one.given.reset?.();
    axis.follow();
  }

  const seen = () => axis.pictures.filter((one) => one.isSeen);

  function show() {
    const isAll = axis.isFollowing && axis.pictures.every((one) => !one.given.isPart?.());
    const name = axis.isOver ? "See all" : "Follow the present";
    if (back.textContent !== name) back.textContent = name;
    if (back.disabled !== isAll) back.disabled = isAll;
  }

  function files() {
    const pictures = seen();
    const title = `${axis.policy || "dask-hpc"}, ${axis.show(Math.round(axis.window[0]))} to ${axis.show(Math.round(axis.window[1]))}`;
    const drawn = pictures.map((one) => ({
      title: one.given.name, height: one.canvas.height, legend: one.given.legend?.() ?? [], paint: (...where) => one.paint(...where),
    }));
    const width = Math.max(...pictures.map((one) => one.canvas.width));
    const svg = () => saved(drawn, width, theme(pictures[0].canvas.element), title);
    const found = [
      ["Picture, SVG", () => saveAs("dask-hpc.svg", svg(), "image/svg+xml")],
      ["Picture, PNG", () => png(svg(), (blob) => saveAs("dask-hpc.png", blob))],
    ];
    for (const one of pictures) for (const [name, text] of one.given.tables?.() ?? []) found.push([`${name}, CSV`, () => saveAs(`${name.toLowerCase()}.csv`, text(), "text/csv")]);
    fill(menu, found.map(([name, make]) => h("button", { type: "button", onclick: () => { make(); save.open = false; } }, name)));
  }

  save.addEventListener("toggle", () => save.open && files());
  help.addEventListener("toggle", () => help.open && fill(whole, seen().flatMap((one) => one.given.legend?.() ?? []).map(swatch)));
  const away = (event) => {
    for (const one of [save, help]) if (one.open && !one.contains(event.target)) one.open = false;
  };
  const closes = (event) => {
    if (event.key !== "Escape" || !event.currentTarget.open) return;
    event.currentTarget.open = false;
    event.currentTarget.firstChild.focus();
  };
  for (const one of [save, help]) one.addEventListener("keydown", closes);
  document.addEventListener("pointerdown", away);
  const quiet = axis.listen(show);
  show();
  return {
    element,
    end: () => {
      quiet();
      document.removeEventListener("pointerdown", away);
      axis.hasToolbar = false;
      element.remove();
    },
  };
}

/** The toolbar of pictures that stand alone; nothing where there is one already. */
export function ownToolbar(model) {
  return axisOf(model).hasToolbar ? { element: null, end: () => {} } : toolbar(model);
}

/** An SVG as the pixels of a PNG, twice as many as on a plain screen. */
function png(text, take) {
  const image = new Image();
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  image.onload = () => {
    const canvas = h("canvas");
    [canvas.width, canvas.height] = [image.width * 2, image.height * 2];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(url);
    canvas.toBlob(take);
  };
  image.src = url;
}
