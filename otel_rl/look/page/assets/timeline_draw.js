// Draws a frame: the axis of time, steps, attempts, lanes with labels, errors, the selection.

import {secondsText, wholeText} from "./numbers.js";
import {timelineAfter, timelineFrom, timelineGallop, timelineLane} from "./timeline_index.js";
import {TIMELINE_LABEL_PX, TimelinePixels} from "./timeline_pixels.js";
import {timelineMoment, timelineProcess, timelineTickStep, timelineTrackName} from "./timeline_words.js";

const TIMELINE_AXIS = 22;
const TIMELINE_STEPS_PX = 18;
const TIMELINE_ROUND = [0, 1, 2, 3, 4, 5, 6, 7, 8].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
export const TIMELINE_TOP = TIMELINE_AXIS + TIMELINE_STEPS_PX;

/** Draw everything that `view` shows. */
export function timelineDraw(context, model, view) {
  const { width, height, gutter, colors, ratio } = view;
  const plot = width - gutter;
  const perPixel = (view.last - view.first) / plot;
  const xOf = (time) => gutter + (time - view.first) / perPixel;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colors.back;
  context.fillRect(0, 0, width, height);
  context.textBaseline = "middle";
  const visible = view.rows.filter((row) => row.y + row.height > view.top && row.y < view.top + height - TIMELINE_TOP);
  const yOf = (row) => TIMELINE_TOP + row.y - view.top;
  timelineBackground(context, view, visible, yOf);
  const wide = timelineLanes(context, model, view, visible, yOf, plot);
  timelineLabels(context, model, view, wide);
  timelineErrors(context, model, view, visible, yOf, perPixel, xOf);
  timelineOpen(context, model, view, visible, yOf, xOf);
  timelineOutline(context, model, view, visible, yOf, xOf, view.hovered, 1);
  timelineOutline(context, model, view, visible, yOf, xOf, view.selected, 2);
  timelineGutter(context, view, visible, yOf);
  timelineHeader(context, model, view, perPixel, xOf);
  timelineMore(context, view);
  timelineAttempts(context, model, view, xOf);
}

function timelineBackground(context, view, visible, yOf) {
  const { width, gutter, colors } = view;
  for (const row of visible) {
    if (row.kind !== "lane") continue;
    context.fillStyle = colors.lane;
    context.fillRect(gutter, yOf(row), width - gutter, row.height);
  }
}

function timelineLanes(context, model, view, visible, yOf, plot) {
  const { ratio, gutter, height } = view;
  const scale = plot * ratio <= 2000 ? ratio : 1;
  const columns = Math.max(1, Math.round(plot * scale));
  const lines = Math.max(1, Math.round((height - TIMELINE_TOP) * scale));
  if (view.pixels?.width !== columns || view.pixels?.height !== lines) view.pixels = new TimelinePixels(columns, lines);
  view.pixels.clear();
  const wide = [];
  for (const row of visible) {
    if (row.kind !== "lane") continue;
    const top = Math.round((yOf(row) - TIMELINE_TOP) * scale);
    const bars = [];
    view.pixels.lane(model, view.sums.at((view.last - view.first) / columns), view.colors, row.lane, {
      first: view.first,
      perPixel: (view.last - view.first) / columns,
      top,
      height: Math.round((yOf(row) + row.height - TIMELINE_TOP) * scale) - top,
      labelPixels: row.height < 10 ? Infinity : TIMELINE_LABEL_PX * scale,
      wide: bars,
    });
    for (let n = 0; n < bars.length; n += 3) {
      wide.push({ span: bars[n], x: gutter + bars[n + 1] / scale, end: gutter + bars[n + 2] / scale, row, y: yOf(row) });
    }
  }
  context.imageSmoothingEnabled = false;
  context.drawImage(view.pixels.drawn(), gutter, TIMELINE_TOP, plot, height - TIMELINE_TOP);
  return wide;
}

function timelineLabels(context, model, view, wide) {
  context.font = `12px ${view.colors.font}`;
  context.textAlign = "left";
  for (const { span, x, end, row, y } of wide) {
    const room = end - x - 8;
    const { label } = model.names[model.name[span]];
    const long = secondsText(((model.end[span] - model.start[span]) * model.tickNs) / 1e9);
    const took = model.open[span] ? `open for ${long}` : long;
    const text = [`${label} ${took}`, label].find((fitting) => timelineWidth(context, view, fitting) <= room) ?? timelineShort(context, view, label, room);
    if (!text) continue;
    const { ground, text: ink } = view.colors.classes[view.sums.classOf[model.name[span]]];
    if (ground) {
      context.fillStyle = ground;
      context.fillRect(x + 2, y + 1, timelineWidth(context, view, text) + 4, row.height - 2);
    }
    context.fillStyle = ink;
    context.fillText(text, x + 4, y + row.height / 2 + 0.5);
  }
}

function timelineWidth(context, view, text) {
  let width = view.widths.get(text);
  if (width === undefined) {
    if (view.widths.size > 5000) view.widths.clear();
    width = context.measureText(text).width;
    view.widths.set(text, width);
  }
  return width;
}

function timelineShort(context, view, text, room) {
  const share = room / timelineWidth(context, view, text);
  const length = Math.floor(text.length * share) - 1;
  return length < 2 ? "" : `${text.slice(0, length)}…`;
}

/** Mark spans that failed, one for each pixel. */
function timelineErrors(context, model, view, visible, yOf, perPixel, xOf) {
  if (!view.failures.length) return;
  context.fillStyle = view.colors.error;
  context.strokeStyle = view.colors.back;
  context.lineWidth = 2;
  for (const row of visible) {
    if (row.kind !== "lane") continue;
    const { lane } = row;
    let n = timelineGallop(view.failures, 0, view.failures.length, timelineAfter(model.end, lane, view.first, lane.first), false);
    let x = -Infinity;
    for (; n < view.failures.length && view.failures[n] < lane.end && model.start[view.failures[n]] < view.last; n++) {
      const span = view.failures[n];
      const at = Math.max(view.gutter, xOf(model.start[span]));
      if (at < x + 1) continue;
      x = at;
      const wide = Math.min(view.width, xOf(model.end[span])) - at;
      if (wide > 4) context.fillRect(at, yOf(row) + row.height - 3, wide, 3);
      context.beginPath();
      context.moveTo(at - 4, yOf(row) - 2);
      context.lineTo(at + 5, yOf(row) - 2);
      context.lineTo(at + 0.5, yOf(row) + 7);
      context.closePath();
      context.stroke();
      context.fill();
    }
  }
}

/** Draw an arrow at the end of phases that are open. */
function timelineOpen(context, model, view, visible, yOf, xOf) {
  context.fillStyle = view.colors.select;
  context.strokeStyle = view.colors.back;
  context.lineWidth = 2;
  for (const row of visible) {
    if (row.kind !== "lane" || row.lane.end === row.lane.first || !model.open[row.lane.end - 1]) continue;
    const x = xOf(model.end[row.lane.end - 1]);
    if (x < view.gutter || x > view.width) continue;
    const middle = yOf(row) + row.height / 2;
    const half = Math.min(6, row.height / 2);
    context.beginPath();
    context.moveTo(x - half, middle - half);
    context.lineTo(x + half, middle);
    context.lineTo(x - half, middle + half);
    context.closePath();
    context.stroke();
    context.fill();
  }
}

function timelineOutline(context, model, view, visible, yOf, xOf, span, thick) {
  if (span < 0) return;
  const lane = timelineLane(model, span);
  const row = visible.find((each) => each.lane === lane);
  if (!row || model.end[span] < view.first || model.start[span] > view.last) return;
  const x = Math.max(view.gutter - 4, xOf(model.start[span]));
  const end = Math.min(view.width + 4, Math.max(x + 3, xOf(model.end[span])));
  context.lineWidth = thick + 2;
  context.strokeStyle = view.colors.back;
  context.strokeRect(x, yOf(row), end - x, row.height);
  context.lineWidth = thick;
  context.strokeStyle = view.colors.select;
  context.strokeRect(x, yOf(row), end - x, row.height);
}

function timelineGutter(context, view, visible, yOf) {
  const { colors, gutter, height, width } = view;
  context.fillStyle = colors.back;
  context.fillRect(0, 0, gutter - 4, height);
  context.textAlign = "left";
  let free = 0;
  for (const row of visible) {
    const y = yOf(row);
    if (row.kind === "machine") {
      context.fillStyle = colors.back;
      context.fillRect(gutter, y, width, row.height);
      context.font = `600 12px ${colors.font}`;
      context.fillStyle = colors.text;
      context.fillText(row.machine, 4, y + row.height / 2 + 1, width - 8);
      free = y + row.height;
    }
    if (row.kind !== "track" || y + 6 < free || y + row.height < TIMELINE_TOP + 12) continue;
    context.font = `12px ${colors.font}`;
    context.fillStyle = colors.faint;
    const middle = Math.max(TIMELINE_TOP + 7, y + Math.min(row.height, 22) / 2);
    const room = gutter - 14;
    const fits = (text) => (timelineWidth(context, view, text) <= room ? text : timelineShort(context, view, text, room));
    const hidden = row.track.hidden ? `${wholeText(row.track.hidden)} not shown` : "";
    const whole = timelineTrackName(row.track);
    const isLong = row.track.kind === "trajectories" && timelineWidth(context, view, whole) > room;
    const lines = isLong ? [timelineProcess(row.track), "trajectories", hidden] : [whole, hidden];
    lines.filter(Boolean).forEach((text, n) => {
      if (!n || row.height >= 22 + 13 * n) context.fillText(fits(text), 8, middle + 0.5 + 13 * n);
    });
    free = middle + 12;
  }
}

function timelineHeader(context, model, view, perPixel, xOf) {
  const { colors, width, gutter } = view;
  const second = 1e9 / model.tickNs;
  context.fillStyle = colors.back;
  context.fillRect(0, 0, width, TIMELINE_TOP);
  context.font = `12px ${colors.font}`;
  const from = view.first / second;
  const to = view.last / second;
  const step = timelineTickStep((Math.min(130, Math.max(80, (width - gutter) / 4)) * perPixel) / second);
  const small = step < 1;
  const base = small ? Math.max(0, Math.floor(from)) : 0;
  context.textAlign = "left";
  context.fillStyle = colors.faint;
  if (base) context.fillText(timelineMoment(base, 1), 4, TIMELINE_AXIS / 2, gutter - 8);
  let free = -Infinity;
  for (let n = Math.ceil(from / step); n * step <= to; n++) {
    const x = xOf(n * step * second);
    const offset = n * step - base;
    context.fillStyle = colors.line;
    context.fillRect(Math.round(x), TIMELINE_AXIS - 5, 1, 5);
    context.fillStyle = colors.faint;
    const text = small ? `${base ? "+" : ""}${secondsText(Math.round(offset * 1e6) / 1e6)}` : timelineMoment(n * step, step);
    const wide = timelineWidth(context, view, text);
    const left = Math.min(width - wide, Math.max(gutter, x - wide / 2));
    if (left < free) continue;
    context.fillText(text, left, TIMELINE_AXIS / 2);
    free = left + wide + 10;
  }
  timelineRuler(context, model, view, xOf);
}

/** Draw the steps: blocks with numbers where there is room, and numbers of some of them elsewhere. */
function timelineRuler(context, model, view, xOf) {
  const { colors, gutter, width } = view;
  const { steps } = model;
  context.fillStyle = colors.faint;
  context.textAlign = "left";
  context.fillText("step", gutter >= 90 ? 8 : 4, TIMELINE_AXIS + TIMELINE_STEPS_PX / 2);
  const y = TIMELINE_AXIS + 1;
  const height = TIMELINE_STEPS_PX - 3;
  context.save();
  context.beginPath();
  context.rect(gutter, 0, width - gutter, view.height);
  context.clip();
  const whole = { first: 0, end: steps.count };
  const last = timelineFrom(steps.start, whole, view.last, 0);
  const perPixel = (view.last - view.first) / (width - gutter);
  let i = Math.max(0, timelineFrom(steps.start, whole, view.first, 0) - 1);
  const dense = ((last - i) * 64) / (width - gutter);
  const every = dense > 1 ? TIMELINE_ROUND.find((count) => count >= dense) : 1;
  const labels = [];
  while (i < last) {
    const x = xOf(steps.start[i]);
    const end = xOf(Math.min(steps.end[i], i + 1 < steps.count ? steps.start[i + 1] : Infinity));
    const following = view.first + (Math.floor(x) + 1 - gutter) * perPixel;
    const next = steps.start[i] < following ? Math.max(i + 1, timelineFrom(steps.start, whole, following, i)) : i + 1;
    if (end >= gutter) {
      context.fillStyle = colors.band;
      context.fillRect(x, y, Math.max(0.5, end - x - 1), height);
      const number = Math.ceil(steps.number[i] / every) * every;
      const place = i + number - steps.number[i];
      if (place < next && steps.number[place] === number) labels.push([number, x, end]);
    }
    i = next;
  }
  let free = -Infinity;
  for (const [number, x, end] of labels) {
    const text = wholeText(number);
    const wide = timelineWidth(context, view, text);
    const at = Math.max(Math.max(gutter, x) + 4, end - free > wide + 8 ? free : 0);
    if (at < free || (x < gutter && end - at < wide)) continue;
    context.fillStyle = colors.text;
    context.fillText(text, at, y + height / 2 + 0.5);
    if (end - x < wide + 8) context.fillRect(x, y, 1, height);
    free = at + wide + 8;
  }
  context.restore();
}

/** Say how many rows are below the visible ones. */
function timelineMore(context, view) {
  const bottom = view.top + view.height - TIMELINE_TOP;
  const below = view.rows.filter((row) => row.kind === "track" && row.y + 6 > bottom).length;
  if (!below) return;
  const text = `▾ ${wholeText(below)} more below`;
  context.font = `600 12px ${view.colors.font}`;
  const wide = context.measureText(text).width + 16;
  context.fillStyle = view.colors.text;
  context.fillRect(view.width - wide, view.height - 20, wide, 20);
  context.fillStyle = view.colors.back;
  context.textAlign = "left";
  context.fillText(text, view.width - wide + 8, view.height - 10);
}

/** Mark where the run was started again. */
function timelineAttempts(context, model, view, xOf) {
  context.font = `600 11px ${view.colors.font}`;
  for (const [attempt, at] of model.attempts.slice(1)) {
    const x = xOf(at);
    if (x < view.gutter || x > view.width) continue;
    context.strokeStyle = view.colors.error;
    context.lineWidth = 1.5;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(x, TIMELINE_AXIS);
    context.lineTo(x, view.height);
    context.stroke();
    context.setLineDash([]);
    const text = `resumed, attempt ${attempt}`;
    const wide = timelineWidth(context, view, text) + 8;
    const left = x + wide > view.width ? x - wide : x;
    context.fillStyle = view.colors.back;
    context.fillRect(left, TIMELINE_TOP, wide, 15);
    context.fillStyle = view.colors.error;
    context.textAlign = "left";
    context.fillText(text, left + 4, TIMELINE_TOP + 8);
  }
}
