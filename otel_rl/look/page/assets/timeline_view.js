// What part of the run is shown, and the ways to move it. Times are ticks since the start of the run.

const TIMELINE_LEAST_TICKS = 20;
const TIMELINE_MARGIN = 0.02;

/** Return the start and the end of the whole run, with a little room on both sides. */
export function timelineWhole(model) {
  const margin = model.ticks * 0.005;
  return [-margin, model.ticks + margin];
}

/** The visible stretch of time, and those that were left by zooming in. */
export class TimelineRange {
  constructor(model, changed) {
    this.model = model;
    this.changed = changed;
    this.history = [];
    [this.first, this.last] = timelineWhole(model);
  }

  /** Go on in a newer model. The whole run stays whole, and a stretch that ends at its end still ends there. */
  renew(model) {
    const { isWhole, first, last, model: before } = this;
    const moved = (ticks) => (Number(before.origin - model.origin) + ticks * before.tickNs) / model.tickNs;
    this.model = model;
    if (isWhole) [this.first, this.last] = timelineWhole(model);
    else {
      const by = last >= before.ticks ? Math.max(0, timelineWhole(model)[1] - moved(last)) : 0;
      [this.first, this.last] = [moved(first) + by, moved(last) + by];
    }
    this.history = this.history.map((stretch) => stretch.map(moved));
  }

  get isWhole() {
    const [first, last] = timelineWhole(this.model);
    return this.first <= first && this.last >= last;
  }

  set(first, last) {
    const [least, most] = timelineWhole(this.model);
    const length = Math.min(most - least, Math.max(TIMELINE_LEAST_TICKS, last - first));
    const middle = (first + last) / 2;
    this.first = Math.max(least, Math.min(most - length, middle - length / 2));
    this.last = this.first + length;
    this.changed();
  }

  /** Change the length by a factor; the point at `share` of the width stays where it is. */
  zoom(factor, share) {
    const length = this.last - this.first;
    const at = this.first + share * length;
    const [least, most] = timelineWhole(this.model);
    const next = Math.min(most - least, Math.max(TIMELINE_LEAST_TICKS, length * factor));
    this.set(at - share * next, at + (1 - share) * next);
  }

  pan(share) {
    const by = share * (this.last - this.first);
    this.set(this.first + by, this.last + by);
  }

  /** Show a stretch with some room around it; `back` returns. */
  go(first, last) {
    const before = [this.first, this.last];
    const margin = Math.max((last - first) * TIMELINE_MARGIN, 2);
    this.set(first - margin, last + margin);
    if (this.first === before[0] && this.last === before[1]) return;
    this.history.push(before);
    if (this.history.length > 100) this.history.shift();
  }

  /** Show what was there before; return whether there was anything. */
  back() {
    const before = this.history.pop();
    if (before) this.set(...before);
    else if (this.isWhole) return false;
    else this.whole();
    return true;
  }

  whole() {
    this.history = [];
    this.set(...timelineWhole(this.model));
  }

  /** Move as little as possible, so that a span is visible. */
  reveal(first, last) {
    const length = this.last - this.first;
    if (last < this.first + length * 0.02 || first > this.last - length * 0.02) {
      const middle = (first + Math.min(last, first + length)) / 2;
      this.set(middle - length / 2, middle + length / 2);
    }
  }
}
