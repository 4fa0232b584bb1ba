// Views on a page of ours: a report of what is over, or the dashboard's page, which follows a feed.

import { showContact } from "./contact.js";
import { h, views } from "./page.js";

const EVERY = 500; // ms between two looks at a feed

/** What views see of the world: as anywidget's model, which a widget's are given. All views of a page share it. */
export class Model {
  constructor(traits, answer = () => {}) {
    this.traits = { problem: "", done: "", ...traits };
    this.answer = answer;
    this.listeners = new Map();
  }

  get(name) {
    return this.traits[name];
  }

  set(name, value) {
    this.traits[name] = value;
    this.tell(`change:${name}`);
  }

  save_changes() {}

  send(message) {
    this.answer(message, this);
  }

  on(names, take) {
    for (const name of names.split(" ")) this.listeners.set(name, [...(this.listeners.get(name) ?? []), take]);
  }

  off(names, take) {
    for (const name of names.split(" ")) {
      this.listeners.set(name, (this.listeners.get(name) ?? []).filter((one) => one !== take));
    }
  }

  tell(name, ...what) {
    for (const take of this.listeners.get(name) ?? []) take(...what);
  }
}

/** A reader of a feed: from the count it has seen on, news come in order; for whoever asks, everything. */
export class Reader {
  constructor(url, get) {
    this.url = url;
    this.get = get;
    this.count = -1;
    this.isLost = false;
  }

  /** Answer what a view asks for: as a widget's Python side does. */
  async hear(message, model) {
    if (message.do === "whole") this.count = -1;
    else if (message.do === "looks") model.tell("msg:custom", { heard: true });
    else if (message.do === "why") {
      const row = await this.get(`${this.url}?why=${message.number}`).catch(() => null);
      model.tell("msg:custom", { why: message.number, row });
    } else if (message.do === "set") {
      const asked = { token: model.get("token"), asked: message.asked };
      const found = await this.get(model.get("control"), asked).catch((error) => ({ problem: error.message }));
      model.set("done", found.done ?? "");
      model.set("problem", found.problem ?? "");
    }
  }

  async look(model) {
    try {
      const found = await this.get(`${this.url}?count=${this.count}`);
      if (this.isLost) model.set("contact", "");
      this.isLost = false;
      if (found.whole) model.tell("msg:custom", { whole: found.whole });
      for (const news of found.news ?? []) model.tell("msg:custom", { news });
      this.count = found.count;
    } catch (error) {
      this.count = -1;
      this.isLost = true;
      model.set("contact", error.message);
    }
  }
}

async function getJson(url, sent) {
  let answer;
  try {
    answer = await fetch(url, sent ? { method: "POST", body: JSON.stringify(sent) } : { cache: "no-store" });
  } catch {
    throw new Error("closed: the scheduler does not answer");
  }
  if (answer.status === 404) throw new Error("closed: this cluster is not managed any more");
  if (!answer.ok) throw new Error(`the scheduler answers ${answer.status} ${answer.statusText}`);
  return answer.json();
}

/** One after the other, those views are put into an element; given.course is drawn, or given.feed followed. */
export function show(root, given) {
  const reader = given.feed ? new Reader(given.feed, getJson) : null;
  const traits = { ...given, course: given.course ?? {}, is_live: Boolean(reader), readonly: true, beside: given.views.length > 1, tiles: given.views.length > 1 };
  const model = new Model(traits, (...asked) => reader?.hear(...asked));
  for (const name of given.views) {
    const el = h("div", { class: "dh-view" });
    root.append(el);
    views[name].render({ model, el });
  }
  if (!reader) return;
  showContact(model, root);
  const look = async () => {
    if (document.visibilityState === "visible") await reader.look(model);
    setTimeout(look, EVERY);
  };
  look();
}
