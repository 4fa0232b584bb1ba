// A policy as a form: a control for each parameter, as its declaration asks for it.

import { keyStep, rounded, stepped, writeAmount } from "./shared/explore.js";
import { claim, deeds, fill, h } from "./shared/page.js";
import { clamp } from "./shared/scale.js";

const RULER_STEPS = 200;
let forms = 0; // so far on this page: each has ids of its own
const NUMBERS = ["number", "whole number", "quantity"];
const GUESSES = { s: 3600, W: 10000, B: 2 ** 36, "B/s": 1e11 };

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
export function valueAt(place, low, high, isWhole, unit = "") {
  const [least, most] = [low ?? 0, high];
  const exact = isWide(least, most)
    ? least + Math.expm1(place * Math.log1p(most - least))
    : least + place * (most - least);
  if (place <= 0) return least;
  if (place >= 1) return most;
  if (isWhole) return Math.round(exact);
  return clamp(rounded(Number(exact.toPrecision(exact >= 100 ? 3 : 2)), unit), least, most);
}

function isWide(least, most) {
  return most - least > 1000;
}

/** The bounds of a slider: the declared ones, or a guess where there is none above or it is out of all reach. */
export function sliderBounds(field) {
  const low = field.low ?? 0;
  const guess = Math.max(GUESSES[field.unit] ?? 100, 4 * (field.number ?? 0), 2 * low);
  if (field.high === null) return [low, guess];
  return [low, field.high > 1000 * guess ? guess : field.high];
}

/** A value as people say it. */
export function inPlainWords(value) {
  return value === "inf" ? "unlimited" : String(value);
}

/** What would change, a line for parameters that are one in several concerns: [name, concerns, was, is]. */
export function merged(rows) {
  const found = new Map();
  for (const [path, was, now] of rows) {
    const [concern, name = ""] = path.split(".");
    const key = JSON.stringify([name === "strategy" ? path : name, was, now]);
    if (!found.has(key)) found.set(key, [name.replaceAll("_", " ") || concern, [], inPlainWords(was), inPlainWords(now)]);
    if (name) found.get(key)[1].push(concern);
  }
  return [...found.values()];
}

/** What a person typed for a field, as it is sent: a number where it is one. */
export function typedValue(field, text) {
  const isNumber = ["whole number", "number"].includes(field.kind) && text.trim() !== "" && !Number.isNaN(Number(text));
  return isNumber ? Number(text) : text.trim() === "unlimited" ? "inf" : text;
}

/** "queue" and "malleability", of the paths of a parameter they share. */
function concernsOf(field) {
  return field.paths.map((one) => one.split(".")[0]);
}

/** A line about a parameter: what it does, in which unit, and who else has it. */
export function helpOf(field) {
  const others = concernsOf(field).slice(1);
  return `${field.help}${field.unit && field.kind !== "quantity" ? ` (${field.unit})` : ""}${others.length ? `; also of ${others.join(", ")}` : ""}`;
}

function render({ model, el }) {
  const isLocked = Boolean(model.get("readonly"));
  const isLive = model.get("is_live") && !isLocked;
  const ids = `dh-form-${(forms += 1)}`;
  const choice = h("select", { "aria-label": "policy to start from", class: "dh-choice", onchange: choose, onfocus: look, onpointerenter: look });
  const apply = h("button", { class: "dh-main", onclick: () => ask("apply") }, "Apply");
  const anyway = h("button", { class: "dh-main", onclick: () => ask("apply", { version: model.get("version") }) }, "Apply all the same");
  const theirs = button("Take theirs", "theirs");
  const undo = button("Undo", "undo");
  const reset = button("Reset", "reset");
  const said = h("div", { role: "status", "aria-live": "polite", class: "dh-note dh-said" });
  const difference = h("div", { class: "dh-difference", tabindex: "0", role: "region", "aria-label": "difference" });
  const form = h("div", { class: "dh-form" });
  const file = h("input", { "aria-label": "file to save to", size: "18", placeholder: "my-policy.yaml", oninput: heard });
  const save = h("button", { onclick: () => ask("save", { path: file.value }) }, "Save");
  const replace = h("button", { onclick: () => ask("save", { path: file.value, replace: true }) }, "Replace");
  claim(el, "dh-policy");
  el.append(
    deeds({},
      h("div", { class: "dh-top" },
        h("div", { class: "dh-row dh-policy-of" }, h("h3", {}, "Policy"), choice),
        h("div", { class: "dh-row dh-decides" }, isLive ? [apply, anyway, theirs, undo] : null, reset, said),
        difference),
      form),
    h("div", { class: "dh-row dh-files" }, deeds({}, file, save, replace), copy("Copy YAML", "yaml"), isLive ? copy("Copy Python", "python") : null),
  );

  if (isLocked) for (const one of el.querySelectorAll("fieldset")) one.disabled = true;

  function ask(what, given = {}) {
    if (!isLocked) model.send({ do: what, ...given });
  }

  function look() {
    ask("files");
  }

  function button(text, what) {
    return h("button", { onclick: () => ask(what) }, text);
  }

  function choose() {
    const [kind, name] = [choice.selectedOptions[0].dataset.kind, choice.value];
    if (kind === "edited") return;
    ask("choose", kind === "file" ? { file: name } : { name });
  }

  function copy(text, trait) {
    return h("button", {
      onclick: async () => {
        const done = await navigator.clipboard?.writeText(model.get(trait)).then(() => true, () => false);
        said.textContent = done ? `${text.replace("Copy ", "")} is in the clipboard` : "this page may not use the clipboard";
      },
    }, text);
  }

  /** The control of one parameter, with its help or, if a value was refused, the reason. It stays the same while
   * its value changes: what somebody types or drags is not touched. */
  function control(first) {
    let field = first;
    const id = `${ids}-${field.path}`;
    const common = { id, "aria-describedby": `${id}-help` };
    const change = (value) => ask("edit", { path: field.path, value });
    const note = h("div", { id: `${id}-help`, class: "dh-note" });
    let input;
    let ruler = null;
    let isTyped = false;
    let put;
    if (field.kind === "choice") {
      input = h("select", { ...common, onchange: () => change(input.value) }, field.choices.map((one) => h("option", { value: one }, one)));
      put = (value) => { input.value = value; };
    } else if (field.kind === "switch") {
      input = h("input", { ...common, type: "checkbox", role: "switch", onchange: () => change(input.checked) });
      put = (value) => { input.checked = Boolean(value); };
    } else {
      const take = () => {
        isTyped = false;
        change(typedValue(field, input.value));
      };
      input = h("input", { ...common, autocomplete: "off", spellcheck: "false", oninput: () => { isTyped = true; },
        onchange: () => (isTyped ? take() : null),
        onkeydown: (event) => {
          if (event.key === "Enter") take();
          if (event.key !== "Escape") return;
          isTyped = false;
          update(field);
        } });
      put = (value) => {
        if (!isTyped) input.value = field.kind === "schedule" && typeof value !== "string" ? JSON.stringify(value) : inPlainWords(value);
      };
      if (NUMBERS.includes(field.kind)) ruler = rulerOf(() => field, input, change);
    }
    const element = h("div", { class: `dh-field dh-a-${field.kind.replace(" ", "-")}` }, h("label", { for: id }, field.path.split(".")[1].replaceAll("_", " ")), ruler, input, note);

    function update(now) {
      field = now;
      const refused = model.get("refused")[field.path];
      put(refused ? refused.value : field.value);
      ruler?.put(field);
      input.setAttribute("aria-invalid", refused ? "true" : "false");
      input.title = `allowed: ${field.allowed.replaceAll("inf", "unlimited")}; as it comes: ${inPlainWords(field.default)}`;
      element.classList.toggle("dh-changed", field.is_changed);
      note.textContent = refused ? refused.why : helpOf(field);
      note.classList.toggle("dh-bad", Boolean(refused));
      note.classList.toggle("dh-refused", Boolean(refused));
    }

    update(field);
    return { element, update };
  }

  function rulerOf(field, input, change) {
    let isHeld = false;
    const isWhole = field().kind === "whole number";
    const unit = field().kind === "quantity" ? field().unit : "";
    const bounds = () => sliderBounds(field());
    const placeOf = (value) => position(value, ...bounds());
    const valueOf = (place) => valueAt(place, ...bounds(), isWhole, unit);
    const written = (value) => (unit ? writeAmount(value, unit) : value);
    const range = h("input", {
      type: "range", min: "0", max: String(RULER_STEPS), "aria-label": `${field().path}, slider`,
      oninput: () => {
        isHeld = true;
        const text = String(written(valueOf(Number(range.value) / RULER_STEPS)));
        input.value = text;
        range.setAttribute("aria-valuetext", text);
      },
      onchange: () => {
        isHeld = false;
        change(written(valueOf(Number(range.value) / RULER_STEPS)));
      },
      onkeydown: (event) => {
        const by = keyStep(event);
        if (!by) return;
        event.preventDefault();
        const now = field().number ?? bounds()[1];
        const next = stepped(now, by, placeOf, valueOf, RULER_STEPS);
        if (next !== now) change(written(next));
      },
    });
    range.put = (one) => {
      if (isHeld) return;
      range.value = String(one.number === null ? RULER_STEPS : Math.round(placeOf(one.number) * RULER_STEPS));
      range.setAttribute("aria-valuetext", inPlainWords(one.value));
    };
    return range;
  }

  /** One concern: its strategy, the controls that people change, the others behind "more". */
  function section(name) {
    const strategies = model.get("strategies")[name];
    const names = ["queue", "size"].includes(name) ? Object.keys(strategies) : ["none", ...Object.keys(strategies)];
    const title = h("summary", {});
    const strategy = h("select", { "aria-label": `strategy of ${name}`, onchange: () => ask("edit", { path: `${name}.strategy`, value: strategy.value }) },
      names.map((one) => h("option", { value: one, title: strategies[one] ?? "" }, one)));
    const line = h("span", { class: "dh-note" });
    const first = h("div", { class: "dh-fields" });
    const count = h("summary", {});
    const rest = h("div", { class: "dh-fields" });
    const more = h("details", { class: "dh-more" }, count, rest);
    const elsewhere = h("div", { class: "dh-note" });
    const element = h("details", { open: name === "queue", "data-concern": name }, title,
      h("div", { class: "dh-strategy" }, h("label", {}, "strategy ", strategy), line), first, more, elsewhere);
    let controls = new Map();

    function place(parent, fields) {
      const elements = fields.map((one) => controls.get(keyOf(one)).element);
      if (elements.length === parent.children.length && elements.every((one, i) => parent.children[i] === one)) return;
      fill(parent, elements);
    }

    const keyOf = (field) => `${model.get("chosen")[name]} ${field.path} ${field.kind}`;

    function update() {
      const chosen = model.get("chosen")[name] ?? "none";
      const fields = model.get("fields").filter((one) => one.path.startsWith(`${name}.`));
      const lent = model.get("fields").filter((one) => !one.path.startsWith(`${name}.`) && concernsOf(one).includes(name));
      const kept = new Map(fields.map((one) => [keyOf(one), controls.get(keyOf(one)) ?? control(one)]));
      controls = kept;
      for (const one of fields) controls.get(keyOf(one)).update(one);
      const [essential, others] = [fields.filter((one) => one.is_essential), fields.filter((one) => !one.is_essential)];
      place(first, essential);
      place(rest, others);
      more.hidden = !others.length;
      const changed = others.filter((one) => one.is_changed).length;
      count.textContent = `${others.length} more${changed ? `, ${changed} changed` : ""}`;
      if (others.some((one) => model.get("refused")[one.path])) more.open = true;
      strategy.value = chosen;
      line.textContent = strategies[chosen] ?? "this concern is left alone";
      const isChanged = fields.some((one) => one.is_changed) || model.get("difference").some(([path]) => path === `${name}.strategy`);
      fill(title, h("b", {}, name), ` ${chosen}`, isChanged ? h("span", { class: "dh-dot", title: "changed" }, " ●") : null);
      elsewhere.textContent = lent.length ? `The same as in ${concernsOf(lent[0])[0]}, and set there: ${lent.map((one) => one.path.split(".")[1].replaceAll("_", " ")).join(", ")}.` : "";
      elsewhere.hidden = !lent.length;
    }

    return { element, update };
  }

  const sections = Object.keys(model.get("strategies")).map(section);
  form.append(...sections.map((one) => one.element));
  let offered = "";

  /** Ready-made policies and those in files, each with its line; the one that is edited, if it is none of these. */
  function offer() {
    const [name, names, files] = [model.get("name"), model.get("names"), model.get("files")];
    const lines = model.get("summaries");
    const now = JSON.stringify([name, files]);
    if (now === offered) return;
    offered = now;
    const option = (value, kind, line) => h("option", { value, "data-kind": kind }, line ? `${value} \u00b7 ${line}` : value);
    fill(choice,
      names.includes(name) ? null : option(name, "edited", model.get("summary")),
      h("optgroup", { label: "ready-made" }, names.map((one) => option(one, "name", lines[one]))),
      files.length ? h("optgroup", { label: "in this folder" }, files.map(([path, line]) => option(path, "file", line))) : null);
    choice.value = name;
  }

  function rows(changes) {
    return changes.map(([name, concerns, was, now]) => h("tr", {}, h("td", {}, name, h("span", { class: "dh-note" }, ` ${concerns.join(", ")}`)), h("td", {}, h("s", {}, was)), h("td", {}, h("b", {}, now))));
  }

  function differs() {
    const changes = merged(model.get("difference"));
    const others = model.get("meanwhile").toSorted((one, other) => (one[3] === null) - (other[3] === null));
    const base = isLive ? "the policy in force" : "what was loaded";
    fill(difference,
      others.length ? h("table", { class: "dh-meanwhile", "aria-label": "changed meanwhile" },
        h("caption", {}, "Changed by others since you began, was and is now:"),
        others.map(([path, was, now, mine]) => h("tr", { class: mine === null ? "" : "dh-clash" }, h("td", {}, path.replace("settings.", "")),
          h("td", {}, h("s", {}, inPlainWords(was))), h("td", {}, h("b", {}, inPlainWords(now))),
          h("td", {}, mine === null ? "" : h("span", { class: "dh-bad" }, `\u26a0 you: ${inPlainWords(mine)}`))))) : null,
      changes.length
        ? h("table", { "aria-label": "what would change" }, others.length ? h("caption", {}, "What Apply would change:") : null, rows(changes))
        : h("div", { class: "dh-note" }, `No difference to ${base}.`));
  }

  function show() {
    offer();
    differs();
    const [isChanged, isAsked] = [model.get("difference").length > 0, model.get("asks")];
    apply.hidden = isAsked;
    apply.disabled = !isChanged;
    anyway.hidden = theirs.hidden = !isAsked;
    reset.disabled = !isChanged && !Object.keys(model.get("refused")).length && !model.get("meanwhile").length;
    const steps = model.get("undo_steps");
    undo.disabled = !steps;
    undo.title = steps ? `back to what was before the last change; ${steps === 1 ? "one step" : `${steps} steps`} at most` : "nothing was changed";
    for (const one of sections) one.update();
    heard();
  }

  function heard() {
    const problem = model.get("problem");
    said.textContent = said.title = problem || model.get("done");
    said.classList.toggle("dh-bad", Boolean(problem));
    if (problem) choice.value = model.get("name"); // what was chosen may not have been found
    const exists = model.get("exists");
    replace.hidden = !exists || (file.value || `${model.get("name")}.yaml`) !== exists;
    save.hidden = !replace.hidden;
  }

  let waits = 0;
  const soon = () => {
    cancelAnimationFrame(waits);
    waits = requestAnimationFrame(show);
  };
  const seen = ["name", "chosen", "fields", "difference", "refused", "meanwhile", "asks", "version", "files", "undo_steps"].map((one) => `change:${one}`).join(" ");
  model.on(seen, soon);
  model.on("change:problem change:done change:exists", heard);
  show();
  look();
  return () => {
    cancelAnimationFrame(waits);
    model.off(seen, soon);
    model.off("change:problem change:done change:exists", heard);
  };
}

export default { render };
