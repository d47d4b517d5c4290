// Canvases: sharp on every screen, with bars of phases, hatching, an axis of steps, and dragging over them.

import {make, whenResized} from "./dom.js";
import {wholeText} from "./numbers.js";
import {color} from "./theme.js";

export const LABEL = "11px system-ui, sans-serif";

/** A canvas that fills its parent's width, and how to draw it again; `draw(context, width, height)` draws in CSS pixels. */
export function canvasIn(parent, height, label, draw, run) {
  const canvas = make("canvas", {role: "img", "aria-label": label, tabindex: "0"});
  parent.append(canvas);
  const redraw = () => {
    const width = Math.floor(parent.clientWidth);
    if (!width) return;
    const tall = typeof height === "function" ? height() : height;
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(tall * scale);
    canvas.style.height = `${tall}px`;
    // A canvas whose size is set is empty, and has lost its font and its scale.
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.font = LABEL;
    draw(context, width, tall);
  };
  whenResized(parent, redraw);
  run.watch(canvas, redraw);
  return {canvas, redraw};
}

/** A pattern of lines for what waits, so that it is not told by color alone. */
function hatching(context, ink, ground) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const lines = tile.getContext("2d");
  lines.fillStyle = ground;
  lines.fillRect(0, 0, 6, 6);
  lines.strokeStyle = ink;
  lines.lineWidth = 1.2;
  for (const shift of [-6, 0, 6]) {
    lines.beginPath();
    lines.moveTo(shift, 6);
    lines.lineTo(shift + 6, 0);
    lines.stroke();
  }
  return context.createPattern(tile, "repeat");
}

/** What a phase of a category is filled with. */
export function fillOf(context, category) {
  if (category === "waiting") return hatching(context, color("ink-soft"), color("ground"));
  return color(category === "none" ? "ground" : category);
}

/** Round numbers that divide a range into at most `most` parts. */
export function ticks(low, high, most, whole = false) {
  const rough = (high - low) / Math.max(1, most);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  let size = [1, 2, 5, 10].map((step) => step * power).find((step) => step >= rough);
  if (whole) size = Math.max(1, Math.round(size));
  const places = [];
  for (let at = Math.ceil(low / size) * size; at <= high + size * 1e-9; at += size) places.push(Number(at.toPrecision(12)));
  return places;
}

/** The axis of the shown steps below a drawing: `left` to `right` in pixels. */
export function stepAxis(context, left, right, top, {first, last}) {
  context.fillStyle = color("ink-soft");
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const step of ticks(first, last, (right - left) / 70, true)) {
    const x = left + ((step - first + 0.5) / (last - first + 1)) * (right - left);
    context.fillRect(x, top, 1, 3);
    context.fillText(wholeText(step), Math.min(right - 8, Math.max(left + 8, x)), top + 5);
  }
}

/** Lines where the run was resumed, and around the chosen step. */
export function stepMarks(context, xOf, top, bottom, {axis, view}) {
  context.save();
  context.strokeStyle = color("ink-soft");
  context.setLineDash([4, 3]);
  for (const [step] of axis.resumed) {
    const x = xOf(step);
    if (step < view.first || step > view.last) continue;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, bottom);
    context.stroke();
  }
  context.setLineDash([]);
  if (view.step !== null && view.step >= view.first && view.step <= view.last) {
    context.strokeStyle = color("chosen");
    context.lineWidth = 1.5;
    const x = xOf(view.step), width = Math.max(2, xOf(view.step + 1) - x);
    context.strokeRect(x - 1, top, width + 1, bottom - top);
  }
  context.restore();
}

/** Drag over a drawing to choose a range of steps; a click chooses a step. `stepOf` maps a pixel to a step. */
export function chooseSteps(canvas, stepOf, onClick, run) {
  let begun = null;
  const shade = make("div", {class: "shade", hidden: true});
  canvas.parentElement.append(shade);
  const show = (from, to) => {
    shade.hidden = false;
    shade.style.left = `${canvas.offsetLeft + Math.min(from, to)}px`;
    shade.style.width = `${Math.abs(to - from)}px`;
    shade.style.top = `${canvas.offsetTop}px`;
    shade.style.height = `${canvas.offsetHeight}px`;
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    begun = event.offsetX;
    if (event.pointerType !== "touch") canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (begun !== null && event.pointerType !== "touch" && Math.abs(event.offsetX - begun) > 4) show(begun, event.offsetX);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (begun === null) return;
    const [from, to] = [Math.min(begun, event.offsetX), Math.max(begun, event.offsetX)];
    begun = null;
    shade.hidden = true;
    if (to - from > 4) run.change({first: stepOf(from), last: stepOf(to)}, {enters: true});
    else onClick(event);
  });
  canvas.addEventListener("pointercancel", () => {
    begun = null;
    shade.hidden = true;
  });
  canvas.addEventListener("dblclick", () => run.change({first: run.axis.first, last: run.axis.last}));
}
