// The control room: how the cluster is, who had which node and how much power was drawn on one axis of time, and
// a tab for whatever else one can look at or do. All of it is drawn from one model and one feed.

import { follow } from "./shared/course.js";
import { claim, h, tellWhatCame, views } from "./shared/page.js";
import { clamp } from "./shared/scale.js";

const [LEAST, USUAL, MOST] = [0.15, 0.55, 0.8]; // share of the pictures

/** Where the keys of a row of tabs lead from the tab with that number, of those that are seen. */
export function tabFor(key, number, count) {
  const to = { ArrowRight: number + 1, ArrowLeft: number - 1, Home: 0, End: count - 1 }[key];
  return to === undefined ? null : (to + count) % count;
}

/** Whether a part of the status says that there is nothing of its kind. */
export function isEmpty(part) {
  return !part || part.length === 0;
}

/** A tab for each [title, element, part]. The model keeps which was chosen, for a page that is opened anew. One
 * that has a part of the course to show is there while there is anything in that. Answers its element, and how to
 * end it. */
function tabbed(model, pages, name) {
  const list = h("div", { class: "dh-tabs", role: "tablist", "aria-label": name });
  const body = h("div", { class: "dh-tab-pages" });
  const tabs = pages.map(([title, page], number) => {
    page.id = `dh-${name}-${title}`.replaceAll(" ", "-");
    page.setAttribute("role", "tabpanel");
    page.setAttribute("aria-label", title);
    body.append(page);
    return h("button", { role: "tab", "aria-controls": page.id, onclick: () => turnTo(number), onkeydown: (event) => {
      const seen = tabs.filter((tab) => !tab.hidden);
      const to = tabFor(event.key, seen.indexOf(tabs[number]), seen.length);
      if (to === null) return;
      event.preventDefault();
      turnTo(tabs.indexOf(seen[to]));
      seen[to].focus();
    } }, title);
  });

  function turnTo(number) {
    choose(number);
    model.set("tab", pages[number][0]);
    model.save_changes();
  }

  function choose(chosen) {
    tabs.forEach((tab, number) => {
      tab.setAttribute("aria-selected", String(number === chosen));
      tab.tabIndex = number === chosen ? 0 : -1;
      pages[number][1].hidden = number !== chosen;
    });
  }

  const chosen = () => Math.max(0, pages.findIndex(([title], number) => title === model.get("tab") && !tabs[number].hidden));

  list.append(...tabs);
  pages.forEach(([, , part], number) => { tabs[number].hidden = Boolean(part); });
  choose(chosen());
  const end = follow(model, (news, isWhole) => {
    const before = chosen();
    pages.forEach(([, , part], number) => {
      if (part && (isWhole || part in news)) tabs[number].hidden = isEmpty(news[part]);
    });
    if (chosen() !== before) choose(chosen());
  });
  return [h("div", { class: "dh-tabbed" }, list, body), end];
}

/** The share of the upper part after a key; null for another key. */
export function shareFor(key, share) {
  const to = { ArrowUp: share - 0.05, ArrowDown: share + 0.05, Home: LEAST, End: MOST }[key];
  return to === undefined ? null : clamp(to, LEAST, MOST);
}

/** A bar between the pictures and what is below them, which people move. */
function splitter(el) {
  const bar = h("div", {
    class: "dh-splitter", role: "separator", tabindex: "0", "aria-orientation": "horizontal", "aria-label": "how high the pictures are",
    "aria-valuemin": String(100 * LEAST), "aria-valuemax": String(100 * MOST),
    title: "Drag to make the pictures higher or lower; arrow keys do, too; a double click is as before",
    onpointerdown: (event) => bar.setPointerCapture(event.pointerId),
    onpointermove: (event) => {
      if (!bar.hasPointerCapture(event.pointerId)) return;
      const upper = el.querySelector(".dh-pictures").getBoundingClientRect().top;
      set((event.clientY - upper) / el.clientHeight);
    },
    ondblclick: () => set(USUAL, true),
    onkeydown: (event) => {
      const to = shareFor(event.key, share);
      if (to === null) return;
      event.preventDefault();
      set(to);
    },
  });
  let share = USUAL;
  const set = (to, isUsual = false) => {
    share = clamp(to, LEAST, MOST);
    // of themselves they are no higher than they need
    el.style.setProperty("--dh-upper", isUsual ? `fit-content(${100 * share}%)` : `${100 * share}%`);
    bar.setAttribute("aria-valuenow", String(Math.round(100 * share)));
  };
  set(USUAL, true);
  return bar;
}

function render({ model, el }) {
  const ends = [];
  const drawn = (name, of = model, kind = "") => {
    const place = h("div", { class: kind });
    const end = views[name].render({ model: of, el: place });
    if (end) ends.push(end);
    return place;
  };
  claim(el, "dask-hpc-room");
  el.style.setProperty("--dh-room", model.get("room_height")); // ipywidgets has the height of the element itself
  const said = h("div", { class: "dh-note", role: "status", "aria-live": "polite" });
  ends.push(tellWhatCame(model, said));
  const pictures = h("div", { class: "dh-pictures" },
    h("div", { class: "dh-time-bar" }, drawn("time_toolbar"), said), drawn("allotment_map", model, "dh-fills"), drawn("corridor_chart", model, "dh-fills"), drawn("queue"));
  const pages = model.get("tabs").map(([title, name, trait, part]) => {
    if (!trait) return [title, h("div", {}, drawn(name)), part];
    // some have a model of their own
    const place = h("div");
    const id = model.get(trait).replace("IPY_MODEL_", "");
    model.widget_manager.get_model(id).then((own) => place.append(drawn(name, own)));
    return [title, place, part];
  });
  const [tabs, end] = tabbed(model, pages, "views");
  ends.push(end);
  el.append(drawn("headline"), pictures, splitter(el), tabs);
  return () => ends.forEach((end) => end());
}

export default { render };
