// Draws lanes into a buffer of pixels. Where a phase is wider than a pixel, the pixel has its color. Where several share
// a pixel, its column shows their shares of the time, stacked: so a lane looks the same at every zoom. What was recorded
// is never invisible: each category has at least one pixel of the column. Time in no phase stays empty.

import {timelineAfter, timelineFrom} from "./timeline_index.js";

export const TIMELINE_LABEL_PX = 40;

/** The pixels of all visible lanes; made once for each size. */
export class TimelinePixels {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.canvas = document.createElement("canvas");
    this.canvas.width = width;
    this.canvas.height = height;
    this.context = this.canvas.getContext("2d");
  }

  clear() {
    this.pixels.fill(0);
  }

  /** Return a canvas with the pixels. */
  drawn() {
    this.context.putImageData(this.image, 0, 0);
    return this.canvas;
  }

  /** Draw a lane; `wide` gets the spans that have room for a label, as span and first and last pixel. */
  lane(model, sums, colors, lane, { first, perPixel, top, height, labelPixels, wide }) {
    const { width } = this;
    const { start, end, name } = model;
    const shares = new Float64Array(sums.classes);
    const from = Math.max(0, top);
    const to = Math.min(this.height, top + height);
    if (to <= from) return;
    let i = timelineAfter(end, lane, first, lane.first);
    let x = 0;
    while (x < width && i < lane.end) {
      const begins = first + x * perPixel;
      const ends = begins + perPixel;
      if (start[i] >= ends) {
        x = Math.max(x + 1, Math.floor((start[i] - first) / perPixel));
        continue;
      }
      if (start[i] <= begins && end[i] >= ends) {
        const stop = Math.min(width, Math.max(x + 1, Math.floor((end[i] - first) / perPixel)));
        const color = colors.classes[sums.classOf[name[i]]];
        this.fill(x, stop, from, to, color);
        if (stop - x > 5 && start[i] > first) this.column(x, from, to, color.edge);
        if (stop - x >= labelPixels) wide.push(i, x, stop);
        x = stop;
        if (end[i] <= first + x * perPixel) i++;
        continue;
      }
      const next = timelineFrom(start, lane, ends, i);
      sums.between(shares, lane, i, next, begins, ends);
      this.stack(x, top, height, from, to, shares, perPixel, colors);
      i = end[next - 1] > ends ? next - 1 : next;
      x++;
    }
  }

  fill(x, stop, from, to, color) {
    const { width, pixels } = this;
    for (let y = from; y < to; y++) pixels.fill(color.pixel, y * width + x, y * width + stop);
    if (!color.hatch) return;
    for (let y = from; y < to; y++) {
      for (let at = x + ((8 - ((x + y) & 7)) & 7); at < stop; at += 8) {
        pixels[y * width + at] = color.hatch;
        if (at + 1 < stop) pixels[y * width + at + 1] = color.hatch;
      }
    }
  }

  column(x, from, to, pixel) {
    for (let y = from, at = from * this.width + x; y < to; y++, at += this.width) this.pixels[at] = pixel;
  }

  /** Draw the shares of a pixel from the bottom up, in the order of the categories. */
  stack(x, top, height, from, to, shares, perPixel, colors) {
    const scale = height / perPixel;
    let y = top + height;
    let sum = 0;
    for (let c = 0; c < shares.length; c++) {
      if (!shares[c]) continue;
      sum += shares[c] * scale;
      const upper = Math.max(top, Math.min(y - 1, top + height - Math.round(sum)));
      const { pixel, hatch } = colors.classes[c];
      for (let at = Math.max(from, upper); at < Math.min(to, y); at++) {
        this.pixels[at * this.width + x] = hatch && ((x + at) & 7) < 2 ? hatch : pixel;
      }
      y = upper;
    }
  }
}
