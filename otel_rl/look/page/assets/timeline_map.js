// The small map of the whole run above the timeline: what all processes did, and which part is shown.

import {timelineAfter, timelineFrom} from "./timeline_index.js";
import {TimelinePixels} from "./timeline_pixels.js";
import {timelineWhole} from "./timeline_view.js";

export const TIMELINE_MAP_PX = 34;
const TIMELINE_MAP_LANES = 48;

/** Draw the map. The picture of the run is made once for each width; `view.map` keeps it. */
export function timelineMap(context, model, view) {
  const { ratio, colors } = view;
  const width = view.width - view.gutter;
  const height = TIMELINE_MAP_PX;
  const [first, last] = timelineWhole(model);
  if (view.map?.width !== width || view.map.sums !== view.sums || view.map.colors !== colors) {
    view.map = { width, sums: view.sums, colors, pixels: timelineMapPixels(model, view, width, height, first, last) };
  }
  const xOf = (time) => ((time - first) / (last - first)) * width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colors.lane;
  context.fillRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  context.drawImage(view.map.pixels, 0, 0, width, height);
  context.fillStyle = colors.error;
  for (const [, at] of model.attempts.slice(1)) context.fillRect(xOf(at), 0, 2, height);
  if (view.first <= first && view.last >= last) return;
  const left = xOf(view.first);
  const right = Math.max(left + 3, xOf(view.last));
  context.fillStyle = colors.back;
  context.globalAlpha = 0.6;
  context.fillRect(0, 0, left, height);
  context.fillRect(right, 0, width - right, height);
  context.globalAlpha = 1;
  context.strokeStyle = colors.select;
  context.lineWidth = 2;
  context.strokeRect(left + 1, 1, Math.max(1, right - left - 2), height - 2);
}

function timelineMapPixels(model, view, width, height, first, last) {
  const pixels = new TimelinePixels(width, height);
  const every = model.lanes.filter((lane) => lane.level === 0 && lane.slot === 0);
  const processes = every.filter((lane) => lane.track.kind === "process");
  const lanes = processes.length ? processes : every;
  const chosen = lanes.filter((_, n) => n % Math.ceil(lanes.length / TIMELINE_MAP_LANES) === 0);
  const perPixel = (last - first) / width;
  const sums = view.sums.at(perPixel);
  const total = new Float64Array(width * view.sums.classes);
  const shares = new Float64Array(view.sums.classes);
  for (const lane of chosen) {
    let i = lane.first;
    for (let x = 0; x < width; x++) {
      const from = first + x * perPixel;
      const to = from + perPixel;
      i = timelineAfter(model.end, lane, from, i);
      const next = timelineFrom(model.start, lane, to, i);
      if (next === i) continue;
      sums.between(shares, lane, i, next, from, to);
      for (let c = 0; c < shares.length; c++) total[x * shares.length + c] += shares[c] / chosen.length;
    }
  }
  for (let x = 0; x < width; x++) {
    pixels.stack(x, 0, height, 0, height, total.subarray(x * shares.length, (x + 1) * shares.length), perPixel, view.colors);
  }
  return pixels.drawn();
}

/** Let a pointer move the part that is shown. */
export function timelineMapPointer(canvas, range) {
  let isDown = false;
  const go = (event) => {
    const box = canvas.getBoundingClientRect();
    const [first, last] = timelineWhole(range.model);
    const at = first + ((event.clientX - box.left) / box.width) * (last - first);
    const half = (range.last - range.first) / 2;
    range.set(at - half, at + half);
  };
  canvas.addEventListener("pointerdown", (event) => {
    isDown = true;
    canvas.setPointerCapture(event.pointerId);
    go(event);
  });
  canvas.addEventListener("pointermove", (event) => isDown && go(event));
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (isDown = false));
}
