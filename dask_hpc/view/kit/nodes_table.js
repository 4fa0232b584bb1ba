// A row for each node: who is on it, how it is, and what can be done about it. A node's state costs the
// scheduler something, so it is asked for only while somebody looks.

import { Numbering, colourOf } from "./shared/colours.js";
import { follow } from "./shared/course.js";
import { claim, h, tellWhatCame } from "./shared/page.js";
import { Table, whileSeen } from "./shared/table.js";
import { countOf, showLarge } from "./shared/units.js";

const EVERY = 1000;
const LOST = 5; // looks after which an answer will not come any more
const NO_NODES = "No node has been heard of yet.";
const GOOD = new Set(["", "ok", "good", "healthy"]);

/** How a node is, in a word: one that is to be drained and still does something drains. */
export function conditionOf(node) {
  return node.state === "hold" && /\bdrain\b/.test(node.why ?? "") ? "draining" : (node.state ?? "");
}

/** Whether something is wrong with it. */
export function isIll(node) {
  return !GOOD.has(node.health ?? "");
}

/** What is said below a node: [text, is it bad]. */
export function saidOfNode(node) {
  const workers = node.workers?.length ?? 0;
  return [
    node.why ? [node.why, false] : null,
    [`${countOf(workers, "worker")}, ${countOf(node.threads ?? 0, "thread")}`, false],
  ].filter(Boolean);
}

/** What can be done about it now: [deed, text, hint, more]. */
export function offersForNode(node, isFixed) {
  if (isFixed || !node.workers?.length || node.state === "leaving") return [];
  if (node.state === "hold" || node.state === "drained") return [["release_nodes", "Release", "it may start tasks again: all its holds are lifted", {}]];
  return [
    ["hold_nodes", "Hold", "it starts nothing new until it is released", { drain: false }],
    ["hold_nodes", "Drain", "it is to have nothing to do any more, for example before it is repaired: it starts nothing new, what it runs ends, its data stays", { drain: true }],
  ];
}

/** How much of its memory is used, from 0 to 1; null as long as nobody knows. */
export function memoryOf(node) {
  return node.memory_limit > 0 && typeof node.memory === "number" ? Math.min(1, node.memory / node.memory_limit) : null;
}

/** "8 nodes: 6 running, 2 hold". */
export function conditionsOf(nodes) {
  const counts = new Map();
  for (const node of nodes) counts.set(conditionOf(node), (counts.get(conditionOf(node)) ?? 0) + 1);
  const found = [...counts].sort(([, a], [, b]) => b - a).map(([state, count]) => `${count.toLocaleString("en")} ${state}`);
  return nodes.length ? `${countOf(nodes.length, "node")}: ${found.join(", ")}` : "";
}

/** The columns of a table of nodes; nameOf() says how a job is called. */
export function nodeColumns(nameOf) {
  return [
    { name: "node", width: [100, 2], value: (node) => node.name, show: (node) => node.name },
    { name: "state", width: [72, 1], value: conditionOf, show: (node) => ({ text: conditionOf(node), isBad: isIll(node) }) },
    { name: "job", width: [90, 2], value: (node) => (node.job ? nameOf(node.job) : null), show: (node) => (node.job ? nameOf(node.job) : "-") },
    {
      name: "memory", width: [130, 2], isNumber: true, value: memoryOf,
      show: (node) => ({
        text: "-", part: memoryOf(node), note: memoryOf(node) === null ? "" : `${Math.round(memoryOf(node) * 100)} %`,
        isBad: memoryOf(node) > 0.9, title: `${showLarge(node.memory, "B")} of ${showLarge(node.memory_limit, "B")}`,
      }),
    },
    { name: "power", width: [60, 1], isNumber: true, rank: 1, value: (node) => node.watts, show: (node) => showLarge(node.watts, "W") },
    { name: "health", width: [80, 2], value: (node) => (isIll(node) ? node.health : null), show: (node) => ({ text: isIll(node) ? node.health : "good", isBad: isIll(node), title: node.health }) },
  ];
}

function render({ model, el }) {
  const names = new Map();
  const numbering = new Numbering();
  const nameOf = (job) => names.get(job) ?? job;
  const said = h("span", { role: "status", "aria-live": "polite", class: "dh-note" });
  const counts = h("small");
  let machines = [];
  let isFixed = Boolean(model.get("readonly"));
  let waits = 0;
  const table = new Table(model, {
    label: "Nodes", hint: "node, job, state", columns: nodeColumns(nameOf), height: model.get("height") ?? 360,
    id: (node) => node.name, job: (node) => node.job, line: saidOfNode, state: conditionOf,
    words: (node) => [node.name, conditionOf(node), node.job ? nameOf(node.job) : "nobody", node.why, isIll(node) ? `ill ${node.health}` : ""].join(" "),
    colour: (node) => (node.job ? colourOf(numbering.of(node.job)) : null),
    more: (node) => [["job", node.job ? nameOf(node.job) : "nobody's"], ["why", node.why], ["health", node.health], ["workers", (node.workers ?? []).join("\n")]].filter(([, text]) => text),
    offers: (node) => offersForNode(node, isFixed).map(([what, text, hint, more]) => ({
      key: text, text, hint, question: "", ask: () => model.send({ do: what, name: node.name, workers: node.workers, ...more }),
    })),
  });
  const tools = h("div", { class: "dh-row dh-tools", hidden: true }, table.search, said);
  claim(el, "dh-nodes");
  el.append(h("h3", {}, "Nodes", counts), tools, table.element);
  const drawn = whileSeen(el, EVERY / 2, () => {
    counts.textContent = conditionsOf(machines);
    tools.hidden = !machines.length;
    table.set(machines, NO_NODES);
  });

  const ask = () => {
    if (document.visibilityState !== "visible" || !el.offsetParent) return;
    waits = (waits + 1) % LOST;
    if (waits === 1) model.send({ do: "machines" });
  };
  const heard = (message) => {
    if (!message.machines) return;
    waits = 0;
    machines = message.machines;
    drawn.soon();
  };
  model.on("msg:custom", heard);
  const timer = setInterval(ask, EVERY);
  const shown = new ResizeObserver(ask);
  shown.observe(el);
  const end = follow(model, (news) => {
    numbering.add(news);
    for (const job of news.jobs ?? []) names.set(job.id, job.name);
    if (news.head?.state === "simulated") isFixed = true;
  });
  const quiet = model.get("readonly") || model.get("beside") ? () => {} : tellWhatCame(model, said);
  return () => {
    end();
    clearInterval(timer);
    shown.disconnect();
    drawn.end();
    table.end();
    model.off("msg:custom", heard);
    quiet();
  };
}

export default { render };
