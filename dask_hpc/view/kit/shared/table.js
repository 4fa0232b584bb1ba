// A table of what changes all the time: filtered, ordered, with what can be done about each row. A row stays
// the same element for as long as it is there, and no row moves while somebody is at them: who is about to
// press something presses that.

import { deeds, fill, h } from "./page.js";

const MOST_ROWS = 200;
const GAP = 10; // pixels between columns
const ARROWS = { ascending: " \u25b4", descending: " \u25be", none: "" };

/** Rows that have all words that are searched for. */
export function matching(rows, search, wordsOf) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [...rows];
  return [...rows].filter((row) => {
    const text = wordsOf(row).toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

/** Rows by the value of a column, as they were where that is the same; those that have none come last. */
export function orderedBy(rows, valueOf, isDown) {
  const has = (value) => value !== null && value !== undefined && value !== "" && !Number.isNaN(value);
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  const known = rows.map((row) => [valueOf(row), row]);
  const found = known.filter(([value]) => has(value)).sort(([a], [b]) => (isDown ? compare(b, a) : compare(a, b)));
  return [...found, ...known.filter(([value]) => !has(value))].map(([, row]) => row);
}

/** Rows where they were before; those that were not there come last. */
export function settled(rows, before, idOf) {
  const places = new Map(before.map((id, place) => [id, place]));
  const place = (row) => places.get(idOf(row)) ?? before.length;
  return [...rows].sort((a, b) => place(a) - place(b));
}

/** What is asked of the order when a column's head is pressed: its first way, the other way, and as it was. */
export function reordered(order, name, isNumber) {
  if (order?.name !== name) return { name, isDown: isNumber };
  return order.isDown === isNumber ? { name, isDown: !isNumber } : null;
}

/** Columns that say something of any row; the first always does. */
export function telling(columns, rows) {
  const says = (value) => value !== null && value !== undefined && value !== "";
  return columns.filter((column, i) => i === 0 || rows.some((row) => says(column.value(row))));
}

/** Columns that find place in so many pixels: those of the highest rank go first, those without one stay. */
export function fitting(columns, pixels) {
  const least = (found) => found.reduce((sum, { width: [needed] }) => sum + needed + GAP, GAP);
  const dropped = columns.filter(({ rank }) => rank).sort((a, b) => b.rank - a.rank);
  let found = columns;
  while (least(found) > pixels && dropped.length) {
    const one = dropped.shift();
    found = found.filter((column) => column !== one);
  }
  return found;
}

/** Put an element for each item into a parent, in this order; those that are there are kept and brought up to
 * date. make(item) answers {element, update(item)}; known remembers them. */
export function arrange(parent, known, items, keyOf, make) {
  const keys = new Set(items.map(keyOf));
  const focused = document.activeElement;
  for (const [key, one] of known) {
    if (keys.has(key)) continue;
    one.element.remove();
    known.delete(key);
  }
  let next = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    if (!known.has(key)) known.set(key, make(item));
    const { element } = known.get(key);
    known.get(key).update(item);
    if (element === next) next = next.nextSibling;
    else parent.insertBefore(element, next);
  }
  if (document.activeElement !== focused && parent.contains(focused)) focused.focus({ preventScroll: true });
}

/** Call show() when something is new: at most so often, and only while the element is seen. */
export function whileSeen(el, every, show) {
  let timer = 0;
  let last = -Infinity;
  const now = () => {
    clearTimeout(timer);
    timer = 0;
    last = performance.now();
    show();
  };
  const soon = () => {
    if (!timer && el.offsetParent) timer = setTimeout(now, Math.max(0, every - (performance.now() - last)));
  };
  const sizes = new ResizeObserver(soon);
  sizes.observe(el);
  const end = () => {
    clearTimeout(timer);
    timer = 1;
    sizes.disconnect();
  };
  return { soon, now, end };
}

/** Say on the model that a job is pointed at while the pointer or the focus is on an element. jobOf() answers
 * null where there is none; who points is told through by(), so that a view knows its own pointing. */
export function pointing(model, element, jobOf, by = (point) => point()) {
  const point = () => {
    if (jobOf() && model.get("pointed") !== jobOf()) by(() => model.set("pointed", jobOf()));
  };
  const leave = () => {
    if (jobOf() && model.get("pointed") === jobOf()) by(() => model.set("pointed", null));
  };
  for (const [one, take] of [["mouseenter", point], ["focusin", point], ["mouseleave", leave], ["focusout", leave]]) element.addEventListener(one, take);
}

/** Bring an element into sight within the box that scrolls it; the page stays where it is. */
export function reveal(box, element, above = 0) {
  const [outer, inner] = [box.getBoundingClientRect(), element.getBoundingClientRect()];
  if (inner.top < outer.top + above) box.scrollTop -= outer.top + above - inner.top;
  else if (inner.bottom > outer.bottom) box.scrollTop += Math.min(inner.bottom - outer.bottom, inner.top - outer.top - above);
}

/**
 * Rows of the given columns, each {name, value(row), show(row), width: [pixels, share], isNumber, rank}. value()
 * is what rows are ordered by, null for nothing; show() a text or {text, note, title, isBad, part}. Of a row, the
 * view says: id(row), job(row) that is pointed at with it, words(row) that are searched, colour(row) or null,
 * line(row): [[text, isBad], ...] below it, more(row): [[head, text], ...] when it is opened, and
 * offers(row): [{key, text, hint, ask, question}, ...].
 */
export class Table {
  constructor(model, { label, hint, columns, arranged = (rows) => rows, ...given }) {
    Object.assign(this, { model, label, columns, arranged, given });
    this.rows = [];
    this.shown = [];
    this.known = new Map();
    this.opened = new Set();
    /** The row about which somebody is asked whether he means it: {id, key}. */
    this.asked = null;
    this.order = null;
    this.columnsShown = "";
    this.isOurs = false;
    this.ours = null;
    this.search = h("input", { type: "search", class: "dh-search", placeholder: hint, "aria-label": `search ${label.toLowerCase()}: ${hint}`, oninput: () => this.draw(true) });
    this.head = h("div", { role: "row", class: "dh-heads" });
    this.body = h("div", { role: "rowgroup", class: "dh-rows", onkeydown: (event) => this.step(event) });
    this.more = h("div", { class: "dh-note dh-rest", hidden: true });
    this.none = h("div", { class: "dh-note dh-none", hidden: true });
    this.grid = h("div", { role: "table", "aria-label": label, class: "dh-grid" },
      h("div", { role: "rowgroup", class: "dh-head" }, this.head), deeds({ role: "none" }, this.body));
    this.element = h("div", { class: "dh-scroll dh-list" }, this.grid, this.none, this.more);
    if (given.height) this.element.style.setProperty("--dh-height", `${given.height}px`);
    this.pointed = () => this.highlight(!this.isOurs);
    model.on("change:pointed", this.pointed);
  }

  end() {
    this.model.off("change:pointed", this.pointed);
  }

  get isBusy() {
    return this.body.matches(":hover") || this.body.contains(document.activeElement);
  }

  /** All that match, in the order that was asked for. */
  get wanted() {
    const found = this.arranged(matching(this.rows, this.search.value, this.given.words));
    const column = this.order && this.columns.find(({ name }) => name === this.order.name);
    return column ? orderedBy(found, column.value, this.order.isDown) : found;
  }

  /** These are the rows now; words are said where there is none. */
  set(rows, words) {
    this.rows = rows;
    this.words = words;
    this.draw();
  }

  draw(isAsked = false) {
    const { id } = this.given;
    const wanted = this.wanted;
    const stay = !isAsked && this.isBusy;
    this.shown = (stay ? settled(wanted, this.shown.map(id), id) : wanted).slice(0, MOST_ROWS);
    this.drawHeads();
    arrange(this.body, this.known, this.shown, id, (row) => new Row(this, row));
    // who pointed at a row that is gone points at nothing
    const isGone = this.ours !== null && !this.shown.some((row) => this.given.job(row) === this.ours);
    if (isGone && this.model.get("pointed") === this.ours) this.point(() => this.model.set("pointed", null));
    this.highlight(false);
    this.grid.hidden = !this.shown.length;
    this.none.hidden = this.shown.length > 0;
    this.none.textContent = this.rows.length ? `None of ${this.rows.length} has these words.` : this.words;
    this.more.hidden = wanted.length <= this.shown.length;
    this.more.textContent = `and ${(wanted.length - this.shown.length).toLocaleString("en")} more: search, or put others first`;
  }

  /** Columns change seldom: when one more says something, or there is less place. */
  drawHeads() {
    const columns = fitting(telling(this.columns, this.rows), this.element.clientWidth || Infinity);
    const shown = columns.map(({ name }) => name).join();
    if (shown !== this.columnsShown) {
      const focused = document.activeElement?.dataset?.column;
      this.columnsShown = shown;
      this.seen = columns;
      this.grid.style.setProperty("--dh-columns", columns.map(({ width: [pixels, share] }) => `minmax(${pixels}px, ${share}fr)`).join(" "));
      fill(this.head, columns.map(({ name, isNumber, hint }) => h("div", { role: "columnheader", class: isNumber ? "dh-n" : "" },
        h("button", { class: "dh-plain", title: hint ?? `order by ${name}`, "data-column": name, onclick: () => this.press(name, Boolean(isNumber)) }, name, h("span", { "aria-hidden": "true" })))));
      if (focused) this.head.querySelector(`[data-column="${focused}"]`)?.focus();
    }
    columns.forEach(({ name }, i) => {
      const way = this.order?.name !== name ? "none" : this.order.isDown ? "descending" : "ascending";
      this.head.children[i].setAttribute("aria-sort", way);
      this.head.children[i].querySelector("span").textContent = ARROWS[way];
    });
  }

  press(name, isNumber) {
    this.order = reordered(this.order, name, isNumber);
    this.draw(true);
    this.element.scrollTop = 0;
  }

  /** We say ourselves that a job is pointed at, or no more. */
  point(say) {
    this.isOurs = true;
    say();
    this.ours = this.model.get("pointed");
    this.isOurs = false;
  }

  highlight(isNews) {
    const job = this.model.get("pointed") ?? null;
    for (const row of this.known.values()) row.element.classList.toggle("dh-pointed", job !== null && row.job === job);
    if (!isNews || job === null || this.isBusy || !this.element.offsetParent) return;
    const first = this.shown.find((row) => this.given.job(row) === job);
    if (first) reveal(this.element, this.known.get(this.given.id(first)).element, this.head.offsetHeight);
  }

  /** Up and down from row to row. */
  step(event) {
    const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = way && event.target.closest?.(".dh-item");
    if (!row) return;
    event.preventDefault();
    const next = way > 0 ? row.nextElementSibling : row.previousElementSibling;
    next?.querySelector(".dh-open").focus();
  }

  ask(id, key) {
    this.asked = key ? { id, key } : null;
    for (const row of this.known.values()) row.update(row.row);
  }

  open(id) {
    if (!this.opened.delete(id)) this.opened.add(id);
    this.known.get(id).update(this.known.get(id).row);
  }
}

/** What is seen of a row; whatever has not changed is not touched. */
class Row {
  constructor(table, row) {
    const id = table.given.id(row);
    this.table = table;
    this.drawn = {};
    this.chip = h("i", { class: "dh-chip" });
    this.name = h("b");
    // a button would be off with the deeds, and to look is no deed
    this.opener = h("span", { role: "button", tabindex: "0", class: "dh-open", onclick: () => table.open(id), onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      table.open(id);
    } }, this.chip, this.name);
    this.line = h("span", { class: "dh-note dh-cut" });
    this.offered = h("span", { class: "dh-row" });
    this.detail = h("div", { class: "dh-detail", hidden: true });
    this.first = h("div", { class: "dh-cells", role: "none" });
    this.element = h("div", { role: "row", class: "dh-item", "data-row": id }, this.first,
      h("div", { role: "cell", class: "dh-second" }, this.line, this.offered, this.detail));
    pointing(table.model, this.element, () => this.job, (point) => table.point(point));
    this.update(row);
  }

  /** Whether something is to be drawn differently from before. */
  isNew(part, ...what) {
    const said = JSON.stringify(what);
    if (this.drawn[part] === said) return false;
    this.drawn[part] = said;
    return true;
  }

  update(row) {
    const { given, columnsShown, seen, opened } = this.table;
    this.row = row;
    this.job = given.job(row);
    if (given.state) this.element.dataset.state = given.state(row);
    this.drawName(given);
    if (this.isNew("columns", columnsShown)) {
      this.cells = seen.map(({ isNumber }) => h("div", { role: "cell", class: isNumber ? "dh-n" : "" }));
      this.cells[0].append(this.opener);
      fill(this.first, this.cells);
      for (const part of Object.keys(this.drawn)) if (part.startsWith("cell")) delete this.drawn[part];
    }
    seen.slice(1).forEach((column, i) => this.drawCell(this.cells[i + 1], i, column.show(row)));
    const line = given.line(row);
    if (this.isNew("line", line)) {
      fill(this.line, line.map(([text, isBad], i) => h("span", { class: isBad ? "dh-bad" : "" }, i ? ` \u00b7 ${text}` : text)));
      this.line.title = line.map(([text]) => text).join("\n");
    }
    this.drawOffers(given.offers(row));
    const isOpen = opened.has(given.id(row));
    const more = isOpen ? given.more(row) : [];
    if (this.isNew("more", isOpen, more)) {
      this.opener.setAttribute("aria-expanded", String(isOpen));
      this.element.classList.toggle("dh-opened", isOpen);
      this.detail.hidden = !isOpen;
      fill(this.detail, h("dl", { class: "dh-why" }, more.flatMap(([head, text]) => [h("dt", {}, head), h("dd", {}, text)])));
    }
  }

  drawName(given) {
    const [name, colour] = [this.table.columns[0].show(this.row), given.colour(this.row)];
    if (!this.isNew("name", name, colour)) return;
    this.name.textContent = name;
    this.opener.title = `${name}: more about it`;
    this.chip.hidden = !colour;
    this.chip.style.background = colour ?? "";
  }

  drawCell(cell, number, said) {
    if (!this.isNew(`cell ${number}`, said)) return;
    const { text, note, title, isBad, part } = typeof said === "object" && said !== null ? said : { text: said };
    const percent = `${Math.round((part ?? 0) * 100)} %`;
    cell.classList.toggle("dh-bad", Boolean(isBad));
    cell.title = title ?? "";
    // what is there already stays: hundreds of new elements a second would make the page's memory grow
    const [bar, beside] = [cell.querySelector("progress"), cell.querySelector(".dh-note")];
    const [hasBar, wasText] = [part !== null && part !== undefined, cell.firstChild instanceof Text];
    const first = hasBar ? bar ?? h("progress", { max: "1" }) : wasText ? cell.firstChild : document.createTextNode("");
    if (hasBar) {
      first.value = part;
      first.title = percent;
      first.setAttribute("aria-label", `${this.name.textContent}: ${percent}`);
    } else first.data = text ?? "";
    const second = note ? beside ?? h("span", { class: "dh-note" }, "") : null;
    if (second) second.firstChild.data = ` ${note}`;
    if (cell.firstChild !== first || (cell.childNodes[1] ?? null) !== second) fill(cell, first, second);
  }

  drawOffers(offers) {
    const { asked } = this.table;
    const id = this.table.given.id(this.row);
    const doubted = asked?.id === id ? offers.find(({ key }) => key === asked.key) : undefined;
    if (!this.isNew("offers", doubted?.question, offers.map(({ key, text, hint }) => [key, text, hint]))) return;
    const focused = this.offered.contains(document.activeElement) ? document.activeElement.dataset.deed : undefined;
    this.line.hidden = Boolean(doubted);
    fill(this.offered, doubted ? this.question(doubted) : offers.map((offer) => this.button(offer)));
    if (focused === undefined) return;
    const [same, no, any] = [`[data-deed="${CSS.escape(focused)}"]`, '[data-deed="no"]', "button"].map((one) => this.offered.querySelector(one));
    const back = doubted ? null : this.offered.querySelector(`[data-deed="${CSS.escape(this.before ?? "")}"]`);
    if (!doubted) this.before = null;
    (back || no || same || any || this.opener).focus({ preventScroll: true });
  }

  button({ key, text, hint, ask, question }) {
    const id = this.table.given.id(this.row);
    const name = this.table.columns[0].show(this.row);
    return h("button", { title: hint, "aria-label": `${name}: ${hint}`, "data-deed": key, onclick: () => {
      if (!question) return ask();
      this.before = key;
      this.table.ask(id, key);
    } }, text);
  }

  /** Asked in place of all buttons; the second click of a double one is no answer. */
  question({ question, ask }) {
    const answer = (isYes) => (event) => {
      if (event.detail > 1) return;
      this.table.ask(null, null);
      if (isYes) ask();
    };
    return h("span", { class: "dh-row", role: "group", "aria-label": question, onkeydown: (event) => {
      if (event.key === "Escape") this.table.ask(null, null);
    } },
    h("b", { class: "dh-bad" }, question),
    h("button", { "data-deed": "yes", "aria-label": `${question} Yes`, onclick: answer(true) }, "Yes"),
    h("button", { "data-deed": "no", "aria-label": `${question} No`, onclick: answer(false) }, "No"));
  }
}
