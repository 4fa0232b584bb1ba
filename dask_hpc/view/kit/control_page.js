// A form that changes the policy, its corridor and the state of control, for people without a notebook.

import { follow } from "./shared/course.js";
import { claim, h, tellWhatCame } from "./shared/page.js";
import { showBounds, showLarge } from "./shared/units.js";

/** The bounds that are filled in, by the path of their parameter. */
export function given(lower, upper) {
  return Object.fromEntries(Object.entries({ "power.lower": lower.trim(), "power.upper": upper.trim() }).filter(([, one]) => one));
}

function render({ model, el }) {
  const state = h("p");
  const said = h("p", { role: "status", "aria-live": "polite" });
  const ask = (asked) => model.send({ do: "set", asked });
  const policy = h("select", {}, (model.get("names") ?? []).map((name) => h("option", { value: name }, name)));
  const lower = h("input", { size: "14", title: "such as 1.5 kW; 0 W is no bound" });
  const upper = h("input", { size: "14", title: "such as 2.5 kW; none is no bound" });
  const pause = h("button", { onclick: () => ask({ action: pause.textContent.toLowerCase() }) }, "Pause");
  const undo = h("button", { onclick: () => ask({ action: "undo" }) }, "Undo");
  const labelled = (text, field) => h("label", {}, h("div", { class: "dh-note" }, text), field);
  claim(el, "dh-control");
  el.append(
    h("h3", {}, "Control"),
    state,
    h("div", { class: "dh-row dh-foot" }, labelled("policy", policy), h("button", { onclick: () => ask({ policy: policy.value }) }, "Apply policy")),
    h("div", { class: "dh-row dh-foot" }, labelled("power not below", lower), labelled("power not above", upper),
      h("button", { onclick: () => ask({ changes: given(lower.value, upper.value) }) }, "Apply bounds")),
    h("div", { class: "dh-row" }, undo, pause),
    said,
  );
  let version = null;
  let steps = [];

  const end = follow(model, ({ head, corridor }) => {
    if (corridor) steps = corridor;
    if (!head) return;
    const [, low, high] = steps.findLast((one) => one[0] <= head.time) ?? steps[0] ?? [];
    const bounds = steps.length ? showBounds(low, high, "W") : "no power strategy";
    // what stays as it is if nothing is filled in
    lower.placeholder = showLarge(low ?? 0, "W");
    upper.placeholder = high === null || high === undefined ? "none" : showLarge(high, "W");
    state.replaceChildren("policy ", h("b", {}, head.policy), ", control ", h("b", {}, head.state), `, power: ${bounds}`);
    pause.textContent = head.state === "paused" ? "Resume" : "Pause";
    undo.disabled = !head.undo;
    // the control follows what others change, once: not while somebody chooses
    if (head.version !== version) {
      version = head.version;
      policy.value = head.policy;
    }
  });
  const quiet = tellWhatCame(model, said);
  return () => {
    end();
    quiet();
  };
}

export default { render };
