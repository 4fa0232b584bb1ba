// How many nodes each job held when: where there are too many nodes for rows, jobs are bands of them.
//
// Bands lie on each other in an order that stays: a job that starts takes the lowest place that is free. By their
// numbers, all would sink whenever an older one ends, and hundreds of short jobs would be diagonals.

export class Bands {
  constructor(numberOf = () => 0) {
    this.numberOf = numberOf;
    /** What changed, in order of time: when, whose, by how many nodes. */
    this.times = [];
    this.whose = [];
    this.by = [];
    this.jobs = new Map();
    /** Nodes that are there, whoever has them; the most there ever were. */
    this.all = this.record(null);
    /** By place, whether somebody has it. */
    this.places = [];
    this.most = 0;
    // used again each time: bands are swept several times a second for hours
    this.active = [];
  }

  record(job) {
    const number = job === null ? Infinity : this.numberOf(job);
    return { job, number, place: -1, count: 0, changed: -Infinity, seen: 0, since: 0, below: 0, drawn: 0 };
  }

  /** A job gets so many nodes more, or less if negative; of null, so many nodes come or go. */
  add(time, job, by) {
    let one = job === null ? this.all : this.jobs.get(job);
    if (one === undefined) this.jobs.set(job, (one = this.record(job)));
    const last = this.times.length - 1;
    if (last >= 0) time = Math.max(time, this.times[last]);
    const had = one.count;
    one.count += by;
    one.changed = time;
    if (job !== null && (had > 0) !== (one.count > 0)) this.turn(one);
    if (job === null) this.most = Math.max(this.most, one.count);
    if (last >= 0 && this.times[last] === time && this.whose[last] === one) {
      this.by[last] += by;
      return;
    }
    this.times.push(time);
    this.whose.push(one);
    this.by.push(by);
  }

  /** It starts, or is over. */
  turn(one) {
    if (one.count > 0) {
      const free = this.places.indexOf(false);
      one.place = free < 0 ? this.places.length : free;
    }
    this.places[one.place] = one.count > 0;
  }

  /** Forget what happened before. */
  forget(time) {
    let count = 0;
    while (count < this.times.length && this.times[count] < time) count += 1;
    for (const all of count ? [this.times, this.whose, this.by] : []) all.splice(0, count);
    for (const [job, one] of this.jobs) if (!one.count && one.changed < time) this.jobs.delete(job);
  }

  /** As it was at a time: what each had is its ``seen``, those that had any are in ``active``, in order. Answers
   * where what happened later begins. */
  rewind(time) {
    this.all.seen = this.all.count;
    for (const one of this.jobs.values()) one.seen = one.count;
    let i = this.times.length;
    for (; i > 0 && this.times[i - 1] > time; i -= 1) this.whose[i - 1].seen -= this.by[i - 1];
    this.active.length = 0;
    for (const one of this.jobs.values()) if (one.seen > 0) this.active.push(one);
    this.active.sort((a, b) => a.place - b.place);
    return i;
  }

  /** Visit what is held between two times, looked at every so many seconds: visit(one, to), where one has
   * ``drawn`` nodes above ``below`` others, since ``since``; top(from, to, held, there) for all together. */
  sweep(from, to, step, visit, top) {
    const begin = Math.floor(from / step) * step;
    let next = this.rewind(begin);
    let [held, there, since] = [0, this.all.seen, begin];
    for (const one of this.active) {
      one.since = begin;
      one.below = held;
      one.drawn = one.seen;
      held += one.seen;
    }
    for (let count = 1, at = begin + step; at < to && next < this.times.length; count += 1, at = begin + count * step) {
      const before = next;
      for (; next < this.times.length && this.times[next] <= at; next += 1) {
        const one = this.whose[next];
        const had = one.seen;
        one.seen += this.by[next];
        if (one === this.all || (had > 0) === (one.seen > 0)) continue;
        if (one.seen > 0 && !this.active.includes(one)) this.enter(one, at);
      }
      if (next === before) continue;
      let sum = 0;
      let left = 0;
      for (const one of this.active) {
        if (one.below !== sum || one.drawn !== one.seen) {
          if (one.drawn > 0) visit(one, at);
          one.since = at;
          one.below = sum;
          one.drawn = one.seen;
        }
        sum += one.seen;
        if (one.seen > 0) this.active[left++] = one;
      }
      this.active.length = left;
      if (sum === held && this.all.seen === there) continue;
      top(since, at, held, there);
      [held, there, since] = [sum, this.all.seen, at];
    }
    for (const one of this.active) visit(one, to);
    top(since, to, held, there);
  }

  enter(one, at) {
    let place = this.active.length;
    while (place > 0 && this.active[place - 1].place > one.place) place -= 1;
    this.active.splice(place, 0, one);
    one.since = at;
    one.drawn = 0;
  }

  /** Whose band is so many nodes high at a time: {job, count, held, there}; job is null above all bands. */
  at(time, high) {
    this.rewind(time);
    let held = 0;
    let found = null;
    for (const one of this.active) {
      held += one.seen;
      if (found === null && high < held) found = one;
    }
    return { job: found?.job ?? null, count: found?.seen ?? this.all.seen - held, held, there: this.all.seen };
  }
}
