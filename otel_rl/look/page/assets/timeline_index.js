// Finds spans by time, and says which share of a stretch of time each category has.

const TIMELINE_BLOCK = 16;

/** Return the first span of a lane from `from` on that ends after a time; `lane.end` if none does. */
export function timelineAfter(ends, lane, time, from) {
  return timelineGallop(ends, from, lane.end, time, true);
}

/** Return the first span of a lane from `from` on that starts at a time or later. */
export function timelineFrom(starts, lane, time, from) {
  return timelineGallop(starts, from, lane.end, time, false);
}

/** Return the first place in ascending values whose value is larger (or at least as large); near ones are found first. */
export function timelineGallop(values, from, to, value, isAfter) {
  let low = from;
  let stride = 1;
  while (low + stride < to && (isAfter ? values[low + stride] <= value : values[low + stride] < value)) {
    low += stride;
    stride *= 2;
  }
  let high = Math.min(to, low + stride);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isAfter ? values[middle] <= value : values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The time of each class of spans in a lane up to every 16th span, so that no frame has to look at all spans. */
export class TimelineSums {
  /** @param classOf The class of each name. */
  constructor(model, classOf, classes, weighs = false) {
    this.model = model;
    this.more = weighs ? model.more : null;
    this.classes = classes;
    this.classOf = classOf;
    this.firstBlocks = [];
    let blocks = 0;
    for (const lane of model.lanes) {
      this.firstBlocks.push(blocks);
      blocks += Math.ceil((lane.end - lane.first) / TIMELINE_BLOCK) + 1;
    }
    this.sums = new Float64Array(blocks * classes);
    const running = new Float64Array(classes);
    for (const lane of model.lanes) {
      running.fill(0);
      let place = this.firstBlocks[lane.number] * classes;
      for (let i = lane.first; i < lane.end; i++) {
        if ((i - lane.first) % TIMELINE_BLOCK === 0) {
          this.sums.set(running, place);
          place += classes;
        }
        running[classOf[model.name[i]]] += Math.max(1, model.end[i] - model.start[i]) + (weighs ? model.more[i] : 0);
      }
      this.sums.set(running, place);
    }
    this.weighed = !weighs && model.more ? new TimelineSums(model, classOf, classes, true) : null;
  }

  /** Return what to draw with: of a thinned run, all spans count where a pixel is longer than what one stands for. */
  at(perPixel) {
    return this.weighed && perPixel >= this.model.thinned.bin_ticks ? this.weighed : this;
  }

  /** Write the time of each class from `from` to `to` into `times`; the spans there are `first` up to, without, `end`. */
  between(times, lane, first, end, from, to) {
    const { classes, sums } = this;
    times.fill(0);
    const block = Math.ceil((first + 1 - lane.first) / TIMELINE_BLOCK);
    const last = Math.floor((end - 1 - lane.first) / TIMELINE_BLOCK);
    if (last <= block) return this.add(times, first, end, from, to);
    this.add(times, first, lane.first + block * TIMELINE_BLOCK, from, to);
    const a = (this.firstBlocks[lane.number] + block) * classes;
    const b = (this.firstBlocks[lane.number] + last) * classes;
    for (let c = 0; c < classes; c++) times[c] += sums[b + c] - sums[a + c];
    this.add(times, lane.first + last * TIMELINE_BLOCK, end, from, to);
  }

  /** Add the time of spans one by one. */
  add(times, first, end, from, to) {
    const { classOf, more } = this;
    const { start, end: ends, name } = this.model;
    for (let i = first; i < end; i++) {
      const took = Math.max(1, Math.min(ends[i], to) - Math.max(start[i], from));
      times[classOf[name[i]]] += more !== null && start[i] >= from ? took + more[i] : took;
    }
  }
}

/** Return the span of a lane at a time, or the nearest one within `slack`; -1 if there is none. */
export function timelineAt(model, lane, time, slack) {
  const i = timelineAfter(model.end, lane, time, lane.first);
  let best = -1;
  let distance = slack;
  for (const candidate of [i - 1, i]) {
    if (candidate < lane.first || candidate >= lane.end) continue;
    const away = Math.max(0, model.start[candidate] - time, time - model.end[candidate]);
    if (away <= distance) {
      best = candidate;
      distance = away;
    }
  }
  return best;
}

/** Return the lane of a span. */
export function timelineLane(model, span) {
  let low = 0;
  let high = model.lanes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (model.lanes[middle].end <= span) low = middle + 1;
    else high = middle;
  }
  return model.lanes[low];
}

/** Return the span that a span is inside of; -1 if there is none. */
export function timelineParent(model, span) {
  const lane = timelineLane(model, span);
  for (const outer of lane.track.lanes) {
    if (outer.slot !== lane.slot || outer.level !== lane.level - 1) continue;
    const around = timelineAt(model, outer, model.start[span], 0);
    if (around >= 0 && model.end[around] >= model.end[span]) return around;
  }
  return -1;
}

/** Return the longest spans between two times that match, the longest first. */
export function timelineLongest(model, from, to, most, isMatch) {
  const longest = [];
  let least = 0;
  for (const lane of model.lanes) {
    let i = timelineAfter(model.end, lane, from, lane.first);
    for (; i < lane.end && model.start[i] < to; i++) {
      const took = model.end[i] - model.start[i];
      if ((longest.length >= most && took <= least) || !isMatch(i)) continue;
      longest.push(i);
      if (longest.length > 8 * most) least = timelineCut(model, longest, most);
    }
  }
  timelineCut(model, longest, most);
  return longest;
}

function timelineCut(model, longest, most) {
  longest.sort((a, b) => model.end[b] - model.start[b] - (model.end[a] - model.start[a]) || a - b);
  longest.length = Math.min(longest.length, most);
  const last = longest[longest.length - 1];
  return longest.length < most ? 0 : model.end[last] - model.start[last];
}
