// Predictions side by side: the policy that was in force, then those that are tried.

import { Model } from "./shared/document.js";
import { claim, deeds, fill, h, tellWhatCame, views } from "./shared/page.js";
import { countOf, showDuration, showLarge } from "./shared/units.js";

const VERDICTS = {
  better: ["dh-good", "\u25b2 better"],
  worse: ["dh-bad", "\u25bc worse"],
  undecided: ["dh-note", "undecided"],
  same: ["dh-note", "the same"],
  "other jobs": ["dh-note", "serves other jobs"],
};

export function shownValue(value, unit) {
  if (value === null || value === undefined) return "-";
  if (unit === "s") return showDuration(Math.abs(value) < 0.01 ? 0 : value);
  if (unit === "jobs") return countOf(Number(value.toPrecision(3)), "job");
  return unit ? showLarge(value, unit) : String(Number(value.toPrecision(3)));
}

/** What is more or less, with half the width of its interval: "\u221212 s \u00b1 3 s". */
export function shownDifference(more, half, unit) {
  if (more === null || more === undefined) return "";
  const sign = more > 0 ? "+" : more < 0 ? "\u2212" : "\u00b1";
  const how = half === null || half === undefined || half === 0 ? "" : ` \u00b1 ${shownValue(half, unit)}`;
  return `${sign}${shownValue(Math.abs(more), unit)}${how}`;
}

/** What people know from their bill: "2.4 kWh". */
export function inKilowattHours(joules) {
  return showLarge(joules / 3600, "Wh");
}

/** How a column is called: the one in force now, the one that was, or none of both. */
export function standing(number, present) {
  if (number === present.row) return present.is_changed ? "in force now" : "in force";
  return number === 0 ? "was in force then" : "";
}

/** Which policy is in force now, where another one was when it was predicted; "" where nothing has changed. */
export function changed(rows, present) {
  if (!rows.length || !present.is_changed) return "";
  const now = present.row === null ? `another policy is in force now (${present.name})` : `${rows[present.row].policy} is in force now`;
  return `Predicted while ${rows[0].policy} was in force: ${now}.`;
}

function render({ model, el }) {
  const isFixed = Boolean(model.get("readonly"));
  const add = h("select", { "aria-label": "add a policy to try", onchange: () => try_([...model.get("tried"), add.value]) });
  const tried = h("div", { class: "dh-row", role: "list", "aria-label": "policies to try" });
  const edited = h("input", { type: "checkbox", onchange: (e) => save("with_edited", e.target.checked) });
  const seeds = h("input", { type: "number", min: "1", max: "200", "aria-label": "draws", onchange: (e) => save("seeds", Number(e.target.value)) });
  const predict = () => model.send({ do: "predict" });
  const run = h("button", { class: "dh-main", onclick: predict }, "Predict");
  const stop = h("button", { onclick: () => model.send({ do: "stop" }), hidden: true }, "Stop");
  const bar = h("progress", { max: "1", value: "0", "aria-label": "simulations done", hidden: true });
  const said = h("div", { role: "status", "aria-live": "polite", class: "dh-note" });
  const about = h("div", { class: "dh-note" });
  const words = h("span");
  const again = h("button", { onclick: predict }, "Predict again");
  const notice = h("div", { class: "dh-notice dh-row", role: "status", hidden: true }, words, again);
  const course = h("div", { class: "dh-shown" });
  const results = h("div", { class: "dh-scroll dh-predictions", tabindex: "0", role: "region", "aria-label": "predictions" });
  claim(el, "dh-what-if");
  el.append(
    h("h3", {}, "What if"),
    deeds({},
      tried,
      h("div", { class: "dh-row" }, add, h("label", {}, edited, " the policy as edited"), h("label", {}, seeds, " draws"), run, stop, bar),
      said, notice, results),
    about, course,
  );
  let away = () => {};

  /** The course that one of them predicts, after what was. */
  function draw(given) {
    away();
    const place = h("div", { class: "dh-view" });
    const close = h("button", { onclick: () => {
      away();
      fill(course);
    } }, "Close");
    fill(course, h("div", { class: "dh-row" }, close, h("span", { class: "dh-note" }, "As long as each job is expected to take; what was is as of when this was asked for.")), place);
    away = views.compare.render({ model: new Model({ ...given, has_pictures: true }), el: place });
    course.scrollIntoView({ block: "nearest" });
  }

  const heard = (message) => message.predicted && draw(message.predicted);

  function save(name, value) {
    model.set(name, value);
    model.save_changes();
  }

  function try_(names) {
    save("tried", names);
  }

  function choose() {
    const chosen = model.get("tried");
    fill(tried, chosen.map((one) => h("span", { class: "dh-card", role: "listitem" }, h("b", {}, one), " ",
      h("button", { class: "dh-plain", "aria-label": `do not try ${one}`, title: "do not try it", onclick: () => try_(chosen.filter((other) => other !== one)) }, "\u00d7"))));
    fill(add, h("option", { value: "" }, "try a policy \u2026"),
      model.get("names").filter((one) => !chosen.includes(one)).map((one) => h("option", { value: one }, one)));
    edited.checked = model.get("with_edited");
    seeds.value = String(model.get("seeds"));
  }

  function show() {
    const [rows, present] = [model.get("rows"), model.get("present")];
    about.textContent = model.get("about");
    words.textContent = changed(rows, present);
    notice.hidden = !words.textContent;
    if (!rows.length) return fill(results, h("div", { class: "dh-note" }, "Nothing is predicted yet."));
    // what is pressed is made anew, and keeps the keys
    const held = results.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    fill(results, h("table", {},
      h("thead", {}, h("tr", {}, h("td", {}), rows.map((row, number) => head(row, number, present)))),
      h("tbody", {}, model.get("shown_metrics").map(([name, title, unit]) => h("tr", { "data-metric": name },
        h("th", { scope: "row" }, title),
        rows.map((row) => cell(row, name, unit)))))));
    if (held) (results.querySelector(`[aria-label="${CSS.escape(held)}"]`) ?? results).focus();
  }

  function head(row, number, present) {
    const how = standing(number, present);
    const apply = () => model.send({ do: "apply", row: number, version: present.version });
    return h("th", { class: "dh-n", scope: "col", "data-policy": row.policy }, row.policy,
      how ? h("div", { class: "dh-note" }, how) : null,
      h("div", { class: "dh-row" },
        views.compare ? h("button", { "aria-label": `show the course that ${row.policy} predicts`, onclick: () => model.send({ do: "show", row: number }) }, "Show") : null,
        isFixed || number === present.row ? null : h("button", { "aria-label": `apply ${row.policy}`, onclick: apply }, "Apply")));
  }

  function cell(row, name, unit) {
    const { mean, half, more, more_half, verdict, is_best } = row.figures[name];
    const [kind, what] = VERDICTS[verdict] ?? ["dh-note", ""];
    return h("td", { class: `dh-n${is_best ? " dh-best" : ""}`, "data-policy": row.policy, title: unit === "J" && mean !== null ? inKilowattHours(mean) : null },
      shownValue(mean, unit),
      !half ? null : h("span", { class: "dh-note" }, ` \u00b1 ${shownValue(half, unit)}`),
      row.is_base || verdict === "same" ? null : h("div", { class: "dh-note" }, shownDifference(more, more_half, unit)),
      what ? h("div", { class: kind }, is_best ? `${what}, best` : what) : null);
  }

  function going() {
    const [done, of] = model.get("progress");
    run.disabled = again.disabled = of > 0;
    bar.hidden = stop.hidden = !of;
    bar.max = of || 1;
    bar.value = done;
  }

  const choices = "change:names change:tried change:with_edited change:seeds";
  const seen = "change:rows change:shown_metrics change:about change:present";
  model.on(choices, choose);
  model.on(seen, show);
  model.on("change:progress", going);
  model.on("msg:custom", heard);
  const quiet = tellWhatCame(model, said);
  choose();
  show();
  going();
  return () => {
    model.off(choices, choose);
    model.off(seen, show);
    model.off("change:progress", going);
    model.off("msg:custom", heard);
    away();
    quiet();
  };
}

export default { render };
