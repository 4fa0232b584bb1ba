// What somebody should know without looking for it: a badge that counts, a list behind it, and the browser's
// notification for those who want it.

import { follow } from "./course.js";
import { onTheWall } from "./moment.js";
import { fill, h } from "./page.js";
import { arrange } from "./table.js";
import { countOf, showClock } from "./units.js";

const MOST_ALERTS = 100;
const ALERT_KINDS = { "job-failed": "job failed", corridor: "corridor", lost: "results lost", walltime: "walltime" };

/** The alerts there were, rows [number, time, kind, words, job or null], which of them were seen, and which
 * came while the page was open. */
export class AlertBook {
  constructor() {
    this.rows = [];
    this.seen = -1;
    this.last = -1;
    /** When the page was opened, on the cluster's clock. */
    this.opened = null;
  }

  /** Take news in; answers those that nobody was told of and that have come since the page was opened. */
  add(news, isWhole) {
    if (news.head) this.opened ??= news.head.time;
    const found = news.alerts ?? [];
    if (isWhole) {
      const last = found.at(-1)?.[0] ?? -1;
      // another cluster counts from its beginning
      if (last < this.last) this.seen = this.last = -1;
      this.rows = [];
    }
    const fresh = found.filter(([number, time]) => number > this.last && this.opened !== null && time > this.opened);
    this.rows = [...this.rows, ...found].slice(-MOST_ALERTS);
    this.last = Math.max(this.last, ...found.map(([number]) => number));
    return fresh;
  }

  get unseen() {
    return this.rows.filter(([number]) => number > this.seen).length;
  }

  look() {
    this.seen = this.last;
  }
}

/** What a browser is to show of an alert: [title, options]. The same one twice, of two views, is one. */
export function notificationOf([number, , kind, words]) {
  return [`dask-hpc: ${ALERT_KINDS[kind] ?? kind}`, { body: words, tag: `dask-hpc-alert-${number}` }];
}

/** A badge for a headline: {element, end}. */
export function alertsBadge(model) {
  const book = new AlertBook();
  const names = new Map();
  const known = new Map();
  let epoch = null;
  const count = h("b", { class: "dh-badge", hidden: true });
  const bell = h("button", { class: "dh-bell", "aria-expanded": "false", "aria-haspopup": "true", onclick: () => toggle(panel.hidden) }, "Alerts ", count);
  const told = h("span", { class: "dh-heard", role: "status", "aria-live": "polite" });
  const list = h("div", { role: "log", "aria-live": "off", "aria-label": "Alerts, newest first", class: "dh-scroll", tabindex: "0" });
  const none = h("div", { class: "dh-note" }, "Nothing so far. A job that fails, a corridor that cannot be kept, results that are lost and a walltime that nears its end are told here.");
  const wants = h("input", { type: "checkbox", onchange: () => choose() });
  const refused = h("span", { class: "dh-note" });
  const choice = h("label", { class: "dh-notify", hidden: !("Notification" in globalThis) }, wants, " notify me, also when this page is not in front ", refused);
  const panel = h("div", { class: "dh-alert-list", role: "group", "aria-label": "Alerts", hidden: true }, none, list, choice);
  const element = h("span", { class: "dh-alerts", onkeydown: (event) => {
    if (event.key !== "Escape" || panel.hidden) return;
    toggle(false);
    bell.focus();
  } }, bell, panel, told);

  /** The browser asks for leave; only when somebody has pressed for it. */
  async function choose() {
    refused.textContent = "";
    if (!wants.checked) return;
    const leave = Notification.permission === "default" ? await Notification.requestPermission() : Notification.permission;
    if (leave === "granted") return;
    wants.checked = false;
    refused.textContent = "this browser does not allow it for this page";
  }

  function toggle(isOpen) {
    panel.hidden = !isOpen;
    bell.setAttribute("aria-expanded", String(isOpen));
    panel.classList.toggle("dh-right", bell.getBoundingClientRect().left > window.innerWidth / 2);
    show();
  }

  function line([number, time, kind, words, job]) {
    const when = h("span", { class: "dh-note dh-n" });
    const point = job && h("button", { onclick: () => model.set("pointed", job) });
    const one = h("div", { class: "dh-line", "data-alert": String(number) }, when, " ", h("b", { class: "dh-bad" }, ALERT_KINDS[kind] ?? kind), h("div", {}, words), point || null);
    const update = () => {
      when.textContent = [showClock(Math.floor(time)), onTheWall(epoch, time)].filter(Boolean).join(", at ");
      if (!job) return;
      point.textContent = `Show ${names.get(job) ?? job}`;
      point.title = "point at it in the map and in the table";
    };
    return { element: one, update };
  }

  function show() {
    if (!panel.hidden) book.look();
    const { unseen, rows } = book;
    count.hidden = !unseen;
    count.textContent = String(unseen);
    bell.setAttribute("aria-label", unseen ? countOf(unseen, "new alert") : `Alerts: ${rows.length ? `none is new, ${rows.length} in all` : "none"}`);
    none.hidden = rows.length > 0;
    list.hidden = !rows.length;
    if (!panel.hidden) arrange(list, known, rows.toReversed(), ([number]) => number, line);
  }

  const outside = (event) => {
    if (!panel.hidden && !element.contains(event.target)) toggle(false);
  };
  document.addEventListener("pointerdown", outside);
  const end = follow(model, (news, isWhole) => {
    if (isWhole) {
      known.clear();
      fill(list);
    }
    epoch = news.head ? (news.head.epoch ?? null) : epoch;
    for (const job of news.jobs ?? []) names.set(job.id, job.name);
    const fresh = book.add(news, isWhole);
    if (!isWhole && !news.alerts) return;
    if (fresh.length) told.textContent = fresh.at(-1)[3];
    if (wants.checked) for (const row of fresh) new Notification(...notificationOf(row));
    show();
  });
  return {
    element,
    end: () => {
      end();
      document.removeEventListener("pointerdown", outside);
    },
  };
}
