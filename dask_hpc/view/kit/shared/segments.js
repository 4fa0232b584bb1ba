// Who held which nodes when, as blocks: neighbouring nodes that a job got at one time and left at one time.

export class Segments {
  /** count(time, job, by) is told how many nodes a job gets, or gives up, if somebody wants to know. */
  constructor(count = () => {}) {
    this.count = count;
    /** Blocks that are over, in order of their ends, and those that are not. */
    this.over = [];
    this.open = new Set();
    /** By number of a node, the open block that it is in. */
    this.at = [];
    this.first = Infinity;
  }

  /** changes: [time, job or null, [[first, last], ...], reason], in order of time. */
  add(changes) {
    for (const [time, job, runs, reason] of changes) {
      for (const [first, last] of runs) {
        this.leave(first, last, time);
        if (job === null) continue;
        this.take({ job, first, last, start: time, end: null, reason });
        this.count(time, job, last - first + 1);
      }
      this.first = Math.min(this.first, time);
    }
  }

  take(block) {
    this.open.add(block);
    for (let node = block.first; node <= block.last; node += 1) this.at[node] = block;
  }

  leave(first, last, time) {
    for (let node = first; node <= last; ) {
      const block = this.at[node];
      if (block === undefined) {
        node += 1;
        continue;
      }
      const [from, to] = [Math.max(first, block.first), Math.min(last, block.last)];
      this.open.delete(block);
      for (let i = from; i <= to; i += 1) this.at[i] = undefined;
      this.over.push({ ...block, first: from, last: to, end: time });
      this.count(time, block.job, from - to - 1);
      // what is left of it goes on as if nothing had been
      if (block.first < from) this.take({ ...block, last: from - 1 });
      if (to < block.last) this.take({ ...block, first: to + 1 });
      node = to + 1;
    }
  }

  /** Forget what ended before. */
  forget(time) {
    let count = 0;
    while (count < this.over.length && this.over[count].end < time) count += 1;
    if (count) this.over.splice(0, count);
  }

  /** The block at a node and a time, or undefined. */
  find(node, time) {
    const open = this.at[node];
    if (open !== undefined && open.start <= time) return open;
    for (let i = this.over.length - 1; i >= 0; i -= 1) {
      const one = this.over[i];
      if (one.first <= node && node <= one.last && one.start <= time && time < one.end) return one;
    }
    return undefined;
  }

  /** Visit every block that is seen between two times. */
  between(from, to, visit) {
    for (let i = this.over.length - 1; i >= 0; i -= 1) {
      const one = this.over[i];
      // they are in order of their ends
      if (one.end < from) break;
      if (one.start <= to) visit(one);
    }
    for (const one of this.open) if (one.start <= to) visit(one);
  }
}
