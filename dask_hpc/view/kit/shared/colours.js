// Colours of jobs: Okabe and Ito's, which the colour-blind can tell apart, then lighter cousins. Where two
// jobs have the same one, a pattern of lines tells them apart.

export const COLOURS = [
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442",
  "#7fb8d8", "#f2cf80", "#80ceb9", "#e5bcd3", "#aad9f4",
];
const WHITE_INK = new Set(["#0072b2"]);

/** Numbers for jobs, as the course gives them: the same in all views. */
export class Numbering {
  constructor() {
    this.numbers = new Map();
  }

  add(news) {
    for (const [job, number] of Object.entries(news.order ?? {})) this.numbers.set(job, number);
    for (const job of this.numbers.keys()) {
      if (this.numbers.size <= 20_000) break;
      this.numbers.delete(job);
    }
  }

  of(job) {
    return this.numbers.get(job) ?? 0;
  }
}

export function colourOf(number) {
  return COLOURS[number % COLOURS.length];
}

/** 0 for plain, 1 and 2 for lines this way and that way. */
export function patternOf(number) {
  return Math.floor(number / COLOURS.length) % 3;
}

export function inkOn(colour) {
  return WHITE_INK.has(colour) ? "#ffffff" : "#111111";
}
