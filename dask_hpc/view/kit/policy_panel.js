// A policy as a form: a control for each parameter, as its declaration asks for it.

import { claim, fill, h, tellOfLooks } from "./shared/page.js";
import { clamp } from "./shared/scale.js";

const STEPS = 200;

/** Where a value is on its slider, from 0 to 1: by its logarithm where bounds are far apart. */
export function position(value, low, high) {
  const [least, most] = [low ?? 0, high];
  if (!(most > least)) return 0;
  if (isWide(least, most)) {
    return Math.log1p(clamp(value, least, most) - least) / Math.log1p(most - least);
  }
  return (clamp(value, least, most) - least) / (most - least);
}

/** The value at a place of the slider, rounded to what people would write. */
export function valueAt(place, low, high, isWhole) {
  const [least, most] = [low ?? 0, high];
  const exact = isWide(least, most)
    ? least + Math.expm1(place * Math.log1p(most - least))
    : least + place * (most - least);
  if (place <= 0) return least;
  if (place >= 1) return most;
  if (isWhole) return Math.round(exact);
  return Number(exact.toPrecision(exact >= 100 ? 3 : 2));
}

function isWide(least, most) {
  return most - least > 1000;
}

/** The bounds of a slider; the declared ones, or a guess where there is none above. */
export function sliderBounds(field) {
  const low = field.low ?? 0;
  if (field.high !== null) return [low, field.high];
  const guess = { s: 3600, W: 10000, B: 2 ** 36, "B/s": 1e11 }[field.unit] ?? 100;
  return [low, Math.max(guess, 4 * (field.number ?? 0))];
}

function render({ model, el }) {
  const form = h("div", { class: "dh-form" });
  const said = h("div", { role: "status", "aria-live": "polite", class: "dh-note" });
  const difference = h("div", { class: "dh-difference" });
  const choice = h("select", { "aria-label": "policy to start from", onchange: (e) => ask("choose", { name: e.target.value }) });
  const apply = button("Apply", "apply", "dh-main");
  const undo = button("Undo", "undo");
  const reset = button("Reset", "reset");
  const file = h("input", { "aria-label": "file to save to", size: "16", placeholder: "my-policy.yaml" });
  const save = h("button", { onclick: () => ask("save", { path: file.value, replace: save.dataset.again === "true" }) }, "Save");
  const copies = [copy("Copy YAML", "yaml"), copy("Copy Python", "python")];
  claim(el, "dh-policy");
  el.append(
    h("h3", {}, "Policy"),
    h("div", { class: "dh-row" }, choice, apply, undo, reset),
    said,
    difference,
    form,
    h("div", { class: "dh-row" }, file, save, ...copies),
  );

  function ask(what, given = {}) {
    model.send({ do: what, ...given });
  }

  function button(text, what, kind = "") {
    return h("button", { class: kind, onclick: () => ask(what) }, text);
  }

  function copy(text, trait) {
    const one = h("button", {
      onclick: async () => {
        await navigator.clipboard.writeText(model.get(trait));
        said.textContent = `${text.replace("Copy ", "")} is in the clipboard`;
      },
    }, text);
    return one;
  }

  /** The control of one parameter, with its help and, if a value was refused, the reason. */
  function control(field) {
    const refused = model.get("refused")[field.path];
    const id = `${model.model_id ?? "dh"}-${field.path}`;
    const value = refused ? refused.value : field.value;
    const common = {
      id,
      "aria-invalid": refused ? "true" : "false",
      "aria-describedby": `${id}-help`,
      title: field.allowed,
    };
    const change = (given) => ask("edit", { path: field.path, value: given });
    let input;
    let slider = null;
    if (field.kind === "choice") {
      input = h("select", { ...common, onchange: (e) => change(e.target.value) },
        field.choices.map((one) => h("option", { value: one, selected: one === value }, one)));
    } else if (field.kind === "switch") {
      input = h("input", { ...common, type: "checkbox", role: "switch", checked: Boolean(value), onchange: (e) => change(e.target.checked) });
    } else {
      const text = field.kind === "schedule" && typeof value !== "string" ? JSON.stringify(value) : String(value);
      const read = (given) => (field.kind === "whole number" || field.kind === "number") && given.trim() !== "" && !Number.isNaN(Number(given)) ? Number(given) : given;
      const take = (e) => change(read(e.target.value));
      input = h("input", { ...common, value: text, size: field.kind === "schedule" ? "34" : "12", onchange: take,
        onkeydown: (e) => (e.key === "Enter" ? take(e) : null) });
      if (["number", "whole number", "quantity"].includes(field.kind)) slider = ruler(field, input, change);
    }
    return h("div", { class: `dh-field${field.is_changed ? " dh-changed" : ""}` },
      h("label", { for: id }, field.path.split(".")[1].replaceAll("_", " ")),
      h("div", { class: "dh-row" }, slider, input),
      h("div", { id: `${id}-help`, class: "dh-note" }, `${field.help}${field.unit && field.kind !== "quantity" ? ` (${field.unit})` : ""}`,
        refused ? h("div", { class: "dh-bad dh-refused" }, refused.why) : null));
  }

  function ruler(field, input, change) {
    const [low, high] = sliderBounds(field);
    const isWhole = field.kind === "whole number";
    const at = field.number === null ? STEPS : Math.round(position(field.number, low, high) * STEPS);
    const written = (place) => {
      const value = valueAt(place / STEPS, low, high, isWhole);
      return field.kind === "quantity" ? `${value} ${field.unit}` : value;
    };
    return h("input", {
      type: "range", min: "0", max: String(STEPS), value: String(at), tabindex: "-1",
      "aria-label": `${field.path}, slider`,
      oninput: (e) => { input.value = String(written(Number(e.target.value))); },
      onchange: (e) => change(written(Number(e.target.value))),
    });
  }

  function concern(name) {
    const strategies = model.get("strategies")[name];
    const chosen = model.get("chosen")[name] ?? "none";
    const fields = model.get("fields").filter((one) => one.path.startsWith(`${name}.`));
    const names = ["queue", "size"].includes(name) ? Object.keys(strategies) : ["none", ...Object.keys(strategies)];
    return h("details", { open: fields.some((one) => one.is_changed) || Boolean(opened.has(name)), "data-concern": name,
        ontoggle: (e) => (e.target.open ? opened.add(name) : opened.delete(name)) },
      h("summary", {}, h("b", {}, name), ` ${chosen}`),
      h("div", { class: "dh-field" },
        h("label", {}, "strategy ", h("select", { onchange: (e) => ask("edit", { path: `${name}.strategy`, value: e.target.value }) },
          names.map((one) => h("option", { value: one, selected: one === chosen }, one)))),
        h("div", { class: "dh-note" }, strategies[chosen] ?? "this concern is left alone")),
      fields.map(control));
  }

  const opened = new Set(["queue"]);

  function show() {
    const name = model.get("name");
    const names = model.get("names");
    fill(choice, [...(names.includes(name) ? [] : [name]), ...names].map((one) => h("option", { value: one, selected: one === name }, one)));
    const changes = model.get("difference");
    fill(difference, changes.length
      ? h("table", { "aria-label": "what would change" },
          changes.map(([path, was, now]) => h("tr", {}, h("td", {}, path), h("td", {}, h("s", {}, was)), h("td", {}, h("b", {}, now)))))
      : h("div", { class: "dh-note" }, "No difference to the policy in force."));
    apply.disabled = !changes.length;
    reset.disabled = !changes.length && !Object.keys(model.get("refused")).length;
    const focused = document.activeElement?.id;
    fill(form, Object.keys(model.get("strategies")).map(concern));
    if (focused) el.querySelector(`[id="${CSS.escape(focused)}"]`)?.focus();
    heard();
  }

  function heard() {
    const problem = model.get("problem");
    said.textContent = problem || model.get("done");
    said.classList.toggle("dh-bad", Boolean(problem));
    save.dataset.again = String(problem.includes("exists"));
    save.textContent = problem.includes("exists") ? "Replace" : "Save";
  }

  let waits = 0;
  const soon = () => {
    cancelAnimationFrame(waits);
    waits = requestAnimationFrame(show);
  };
  const seen = ["name", "chosen", "fields", "difference", "refused"].map((one) => `change:${one}`).join(" ");
  model.on(seen, soon);
  model.on("change:problem change:done", heard);
  show();
  const quiet = tellOfLooks(model, () => null);
  return () => {
    quiet();
    cancelAnimationFrame(waits);
    model.off(seen, soon);
    model.off("change:problem change:done", heard);
  };
}

export default { render };
