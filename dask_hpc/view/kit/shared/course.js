// The course of a cluster as it comes in: everything at first, then what is new.

const PATIENCE = 5000; // ms that an answer may be on its way

/** Counts answers, so that one that was lost on the way is noticed. */
export class Order {
  constructor() {
    this.count = -1;
    this.asked = -Infinity;
  }

  /** Whether news follow what came before: "next", "old" or "gap". */
  place(news) {
    const count = news.head?.count;
    if (count === undefined) return "next";
    if (count <= this.count) return "old";
    return this.count < 0 || count === this.count + 1 ? "next" : "gap";
  }

  took(news) {
    if (news.head?.count !== undefined) this.count = news.head.count;
  }

  /** Whether to ask for everything now: a page that was frozen meets many gaps at once, and asks once. */
  asks(now) {
    if (now - this.asked < PATIENCE) return false;
    this.asked = now;
    return true;
  }

  answered() {
    this.asked = -Infinity;
  }
}

const GO_ON = new Set(["running", "waiting"]);

/** How a job is, or how it ended: one whose tasks raised has failed, whatever else it has done. */
export function stateOf(job) {
  if (job.state !== "done") return job.state;
  return job.cancelled ? "cancelled" : job.failed ? "failed" : "done";
}

/** Whether a job in that state is over. */
export function isEnd(state) {
  return !GO_ON.has(state);
}

/** Forget the oldest jobs that are over, so that a page that is open for weeks does not grow. */
export function forget(jobs, most = 1000, isDone = (job) => isEnd(stateOf(job))) {
  for (const [id, job] of jobs) {
    if (jobs.size <= most) return;
    if (isDone(job)) jobs.delete(id);
  }
}

/** Models whose course somebody follows: all views of a model hear the same news, in order and once. */
const followed = new WeakMap();

class Followed {
  constructor(model) {
    this.model = model;
    this.order = new Order();
    this.takers = new Set();
    this.hear = (message) => this.heard(message);
    model.on("msg:custom", this.hear);
  }

  ask() {
    if (this.order.asks(performance.now())) this.model.send({ do: "whole" });
  }

  heard(message) {
    if (message.whole) this.order.answered();
    const place = message.whole ? "next" : message.news ? this.order.place(message.news) : "old";
    if (place === "gap") this.ask();
    if (place !== "next") return;
    const news = message.whole ?? message.news;
    this.order.took(news);
    for (const take of [...this.takers]) take(news, Boolean(message.whole));
  }
}

/** Call take(news, isWhole) with all that is remembered, then with all that is new. Answers how to end it. */
export function follow(model, take) {
  if (!followed.has(model)) followed.set(model, new Followed(model));
  const one = followed.get(model);
  one.takers.add(take);
  take(model.get("course") ?? {}, true);
  // what came between the state that this view was opened with and now
  one.ask();
  return () => {
    one.takers.delete(take);
    if (one.takers.size) return;
    model.off("msg:custom", one.hear);
    followed.delete(model);
  };
}
