// Whether what is shown is the present. Whoever shows a cluster says when there is no news of it, greys what it
// shows and switches off what cannot be done; all of that ends by itself when news come again.

import { h } from "./page.js";

const ASKS = 1500; // ms between two questions whether the kernel hears
const DEAF = 1500; // ms without an answer: it does not
const STALE = 2000; // ms without news
const LOOKS = 250; // ms between two looks at what is known
const LATE = 1500; // ms after which a look is late: the page itself was busy, and news wait behind it

/** What is known, in ms of any clock. */
export class Contact {
  constructor(now) {
    this.begin(now);
    /** Whether the kernel has ever answered, and how much news was read. */
    this.isKnown = false;
    this.count = -1;
    /** Whether it cannot be asked any more, and will not come back. */
    this.isGone = false;
  }

  /** Nobody looked until now: what was before is no silence. */
  begin(now) {
    this.newsAt = now;
    this.askedAt = null;
    this.lookedAt = now;
  }

  asks(now) {
    this.askedAt ??= now;
  }

  /** A message of the kernel: news, or the answer to a question, with the age of the newest news in seconds. */
  hears(message, now) {
    const head = (message.news ?? message.whole)?.head;
    if (head) this.newsAt = now;
    if (head?.count !== undefined) this.count = head.count;
    if (!message.heard) return;
    this.askedAt = null;
    this.isKnown = true;
    if (typeof message.age === "number") this.newsAt = Math.max(this.newsAt, now - 1000 * message.age);
  }

  isDeaf(now) {
    return this.askedAt !== null && now - this.askedAt >= DEAF;
  }

  /** null, or for how many seconds there was no news and why, as far as that is known. */
  stale(now, told) {
    const isLate = now - this.lookedAt > LATE;
    this.lookedAt = now;
    if (isLate) this.begin(now);
    const silence = now - this.newsAt;
    if (silence < STALE && !told && !this.isGone) return null;
    if (this.isGone) return { seconds: Math.floor(silence / 1000), why: "the kernel was restarted or is gone, and what was here does not come back: run the cell again" };
    const deaf = "the kernel does not answer. It may be busy, or gone; after a restart run the cell again";
    return { seconds: Math.floor(silence / 1000), why: told || (this.isDeaf(now) ? deaf : "the scheduler does not answer") };
  }
}

/** Switch off what asks for something, or on again what was switched off here. */
function switchDeeds(el, isOff) {
  for (const one of el.querySelectorAll(isOff ? "fieldset.dh-deeds:not(:disabled)" : "fieldset[data-stale]")) {
    one.disabled = isOff;
    if (isOff) one.dataset.stale = "true";
    else delete one.dataset.stale;
  }
}

/** Keep an element saying whether it shows the present. Answers how to end it. */
export function showContact(model, el) {
  if (!model.get("is_live")) return () => {};
  const clock = () => performance.now();
  const contact = new Contact(clock());
  const words = h("span");
  const page = h("a", { target: "_blank", rel: "noopener" }, "the control page");
  const elsewhere = h("span", { hidden: true }, " On ", page, ", which the scheduler serves, it happens at once.");
  const note = h("div", { class: "dh-contact", role: "status", hidden: true }, words, elsewhere);
  el.append(note);

  const show = () => {
    const told = model.get("contact");
    const stale = contact.stale(clock(), told);
    const isDeaf = contact.isKnown && contact.isDeaf(clock());
    const isWaiting = !stale && isDeaf;
    note.hidden = !stale && !isWaiting;
    note.classList.toggle("dh-unheard", isWaiting);
    const text = stale ? `No contact for ${stale.seconds} s: ${stale.why}.` : isWaiting ? "The kernel computes and does not listen: what you do here waits until it does." : "";
    if (words.textContent !== text) words.textContent = text;
    elsewhere.hidden = !isDeaf || Boolean(told) || contact.isGone || !page.hasAttribute("href");
    el.classList.toggle("dh-stale", Boolean(stale));
    switchDeeds(el, Boolean(stale));
    if (stale?.seconds !== model.get("stale")?.seconds || stale?.why !== model.get("stale")?.why) model.set("stale", stale);
  };
  const ask = () => {
    if (document.visibilityState !== "visible") return;
    contact.asks(clock());
    try {
      model.send({ do: "looks", count: contact.count });
    } catch {
      contact.isGone = true; // of a kernel that was restarted, this model is no more
    }
  };
  const heard = (message) => {
    contact.hears(message, clock());
    if (message.page) page.href = message.page;
    if (!note.hidden) show();
  };
  const pressed = (event) => {
    if (event.target.closest?.("button, input, select")) ask();
  };
  const seen = () => {
    contact.begin(clock());
    ask();
  };
  model.on("msg:custom", heard);
  model.on("change:contact", show);
  el.addEventListener("pointerup", pressed);
  document.addEventListener("visibilitychange", seen);
  const asking = setInterval(ask, ASKS);
  const looking = setInterval(show, LOOKS);
  ask();
  return () => {
    clearInterval(asking);
    clearInterval(looking);
    model.off("msg:custom", heard);
    model.off("change:contact", show);
    el.removeEventListener("pointerup", pressed);
    document.removeEventListener("visibilitychange", seen);
    note.remove();
  };
}

/** What draws a view, for where it stands alone. */
export function alone(render) {
  return (given) => {
    const end = render(given);
    const quiet = showContact(given.model, given.el);
    return () => {
      quiet();
      end?.();
    };
  };
}
