// The steps that a run has recorded since its parts were read: appended to the columns of the steps and of the curves.

import {decoded} from "./decode.js";

const MOST_BAD = 50;

export class RunTail {
  #of = "";
  #steps = [];
  #ended = [];
  #seconds = [];
  #values = new Map();

  /** @param ask Returns the steps from a place on. */
  constructor(ask) {
    this.ask = ask;
  }

  /** Take what there is behind the steps with this digest; true if there is more or less than before. */
  async grow(digest, count) {
    const before = this.#steps.length, wasOf = this.#of;
    if (digest !== this.#of) {
      this.#of = digest;
      for (const column of [this.#steps, this.#ended, this.#seconds]) column.length = 0;
      this.#values.clear();
    }
    if (count > this.#steps.length) this.#take(await this.ask(this.#steps.length));
    return before !== this.#steps.length || (before > 0 && wasOf !== this.#of);
  }

  #take({of, first, steps, ended, seconds, values}) {
    const have = this.#steps.length;
    if (of !== this.#of || first !== have) return; // its parts were read again meanwhile
    this.#steps.push(...steps);
    this.#ended.push(...ended);
    this.#seconds.push(...seconds.map((value) => value ?? NaN));
    for (const [name, column] of Object.entries(values)) {
      const known = this.#values.get(name) ?? [];
      column.forEach((value, at) => value !== null && known.push([steps[at], value]));
      this.#values.set(name, known);
    }
  }

  /** The data of a part with what follows. */
  onto(part, data) {
    if (!this.#steps.length) return data;
    if (part === "steps") return this.#ontoSteps(data);
    return part === "curves" ? this.#ontoCurves(data) : data;
  }

  #ontoSteps(data) {
    const joined = (column, more) => lazily(async () => appended(await decoded(column), more.slice(after(this.#steps, await decoded(data.steps)))));
    const {steps, ended, seconds} = data;
    return {...data, steps: joined(steps, this.#steps), ended: joined(ended, this.#ended), seconds: joined(seconds, this.#seconds)};
  }

  #ontoCurves(data) {
    const axes = [...data.axes];
    const lines = data.lines.map((line) => {
      const more = this.#values.get(line.name);
      if (!more) return line;
      const finite = more.filter(([, value]) => typeof value === "number"), bad = more.filter(([, value]) => typeof value !== "number");
      const joined = (column, place) => lazily(async () => {
        const fresh = after(finite.map(([step]) => step), await decoded(data.axes[line.axis]));
        return appended(await decoded(column), finite.slice(fresh).map((point) => point[place]));
      });
      axes.push(joined(data.axes[line.axis], 0));
      return {...line, axis: axes.length - 1, values: joined(line.values, 1), not_finite: withBad(line.not_finite, bad)};
    });
    return {...data, axes, lines};
  }
}

/** A column that is made when somebody wants it first: most curves are not seen. */
function lazily(make) {
  let made = null;
  return {get made() {
    return (made ??= make());
  }};
}

function withBad(known, bad) {
  const seen = known.last?.[0] ?? -1; // those of a step that the part has too are there already
  const fresh = bad.filter(([step]) => step > seen);
  if (!fresh.length) return known;
  return {count: known.count + fresh.length, first: [...known.first, ...fresh].slice(0, MOST_BAD), last: fresh.at(-1)};
}

/** How many of ascending steps are not behind others. */
function after(steps, others) {
  const last = others.length ? others[others.length - 1] : -Infinity;
  const at = steps.findIndex((step) => step > last);
  return at < 0 ? steps.length : at;
}

function appended(column, more) {
  const joined = new column.constructor(column.length + more.length);
  joined.set(column);
  joined.set(more, column.length);
  return joined;
}
