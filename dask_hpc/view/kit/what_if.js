// Predictions side by side: the policy in force, then those that are tried.

import { claim, fill, h, tellWhatCame } from "./shared/page.js";
import { countOf, showDuration, showLarge } from "./shared/units.js";

export function shownValue(value, unit) {
  if (value === null || value === undefined) return "-";
  if (unit === "s") return showDuration(Math.abs(value) < 0.01 ? 0 : value);
  if (unit === "jobs") return countOf(Number(value.toPrecision(3)), "job");
  return unit ? showLarge(value, unit) : String(Number(value.toPrecision(3)));
}

/** Against the present course: "better", "worse", or "" while the intervals overlap. */
export function verdict([mean, half], [mean0, half0], lessIsBetter) {
  if ([mean, mean0].some((one) => one === null || one === undefined)) return "";
  const sure = Math.abs(mean - mean0) > (half ?? 0) + (half0 ?? 0);
  if (!sure) return "";
  return mean < mean0 === lessIsBetter ? "better" : "worse";
}

/** Change in percent of the present course: "-12 %". */
export function change([mean], [mean0]) {
  if ([mean, mean0].some((one) => one === null || one === undefined) || mean0 === 0) return "";
  const percent = Math.round((mean / mean0 - 1) * 100);
  if (percent > 999) return `\u00d7 ${Number((mean / mean0).toPrecision(1)) > 1e4 ? "many" : Math.round(mean / mean0)}`;
  return `${percent > 0 ? "+" : percent < 0 ? "\u2212" : "\u00b1"}${Math.abs(percent)} %`;
}

/** Whether two policies serve the same jobs: the times of one that leaves jobs out are of the others only. */
export function areAlike(row, present) {
  return row.metrics.unfinished[0] === present.metrics.unfinished[0];
}

/** Whether there is anything to say of a metric: no power without powers, no jobs that never start. */
export function isTold(rows, name) {
  return rows.some((row) => row.metrics[name][0] !== null && !(name === "unfinished" && row.metrics[name][0] === 0));
}

function render({ model, el }) {
  const add = h("select", { "aria-label": "add a policy to try", onchange: () => try_([...model.get("tried"), add.value]) });
  const tried = h("div", { class: "dh-row", role: "list", "aria-label": "policies to try" });
  const edited = h("input", { type: "checkbox", onchange: (e) => {
    model.set("with_edited", e.target.checked);
    model.save_changes();
  } });
  const seeds = h("input", { type: "number", min: "1", max: "200", "aria-label": "draws", onchange: (e) => {
    model.set("seeds", Number(e.target.value));
    model.save_changes();
  } });
  const run = h("button", { class: "dh-main", onclick: () => model.send({ do: "predict" }) }, "Predict");
  const bar = h("progress", { max: "1", value: "0", "aria-label": "simulations done", hidden: true });
  const said = h("div", { role: "status", "aria-live": "polite", class: "dh-note" });
  const about = h("div", { class: "dh-note" });
  const results = h("div", { class: "dh-scroll dh-predictions" });
  claim(el, "dh-what-if");
  el.append(
    h("h3", {}, "What if"),
    tried,
    h("div", { class: "dh-row" }, add, h("label", {}, edited, " the policy as edited"), h("label", {}, seeds, " draws"), run, bar),
    said, results, about,
  );

  function try_(names) {
    model.set("tried", names);
    model.save_changes();
  }

  function show() {
    const chosen = model.get("tried");
    fill(tried, chosen.map((one) => h("span", { class: "dh-card", role: "listitem" }, h("b", {}, one), " ",
      h("button", { class: "dh-plain", "aria-label": `do not try ${one}`, title: "do not try it", onclick: () => try_(chosen.filter((other) => other !== one)) }, "\u00d7"))));
    fill(add, h("option", { value: "" }, "try a policy \u2026"),
      model.get("names").filter((one) => !chosen.includes(one)).map((one) => h("option", { value: one }, one)));
    edited.checked = model.get("with_edited");
    seeds.value = String(model.get("seeds"));
    const rows = model.get("rows");
    const metrics = model.get("shown_metrics");
    const isCompared = rows.every((row) => areAlike(row, rows[0]));
    about.textContent = `${model.get("about")}${isCompared ? "" : "; times are of the jobs that start: not compared where others do"}`;
    if (!rows.length) return fill(results, h("div", { class: "dh-note" }, "Nothing is predicted yet."));
    const present = rows[0];
    fill(results, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}), rows.map((row, number) => h("th", { class: "dh-n", "data-policy": row.policy }, row.policy, row.is_present
        ? h("div", { class: "dh-note" }, "in force")
        : h("div", {}, h("button", { "aria-label": `apply ${row.policy}`, onclick: () => model.send({ do: "apply", row: number }) }, "Apply")))))),
      h("tbody", {}, metrics.filter(([name]) => isTold(rows, name)).map(([name, words, unit, less]) => h("tr", { "data-metric": name },
        h("td", {}, words),
        rows.map((row) => cell(row, present, name, unit, less)))))));
  }

  function cell(row, present, name, unit, less) {
    const [mean, half] = row.metrics[name];
    const isCompared = !row.is_present && (name === "unfinished" || areAlike(row, present));
    const how = isCompared ? verdict(row.metrics[name], present.metrics[name], less) : "";
    const sign = { better: "\u25b2 better", worse: "\u25bc worse", "": "" }[how];
    return h("td", { class: "dh-n", "data-policy": row.policy },
      shownValue(mean, unit),
      h("div", { class: "dh-note" }, half === null ? "" : `\u00b1 ${shownValue(half, unit)}`),
      !isCompared ? null : h("div", { class: how === "better" ? "dh-good" : how === "worse" ? "dh-bad" : "dh-note" }, `${change(row.metrics[name], present.metrics[name])} ${sign}`));
  }

  function going() {
    const [done, of] = model.get("progress");
    bar.hidden = !of || done >= of;
    bar.max = of || 1;
    bar.value = done;
  }

  const seen = ["names", "tried", "with_edited", "seeds", "rows", "about"].map((one) => `change:${one}`).join(" ");
  model.on(seen, show);
  model.on("change:progress", going);
  const quiet = tellWhatCame(model, said);
  show();
  going();
  return () => {
    model.off(seen, show);
    model.off("change:progress", going);
    quiet();
  };
}

export default { render };
