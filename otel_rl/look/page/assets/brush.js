// One overview of all steps: how long each took, events, and where the run was resumed. The window in it is what all
// other parts show.

import {canvasIn, chooseSteps} from "./canvas.js";
import {placeOf} from "./decode.js";
import {byId, make, renewed} from "./dom.js";
import {secondsText, wholeText} from "./numbers.js";
import {color} from "./theme.js";

export function mountBrush(place, data, run) {
  return renewed(place, data, () => String(run.axis.steps.length > 0), (first) => {
    if (run.axis.steps.length) return brush(place, first, run);
    place.append(make("p", {class: "nothing"}, "No step was recorded."));
    return null;
  });
}

function brush(place, {events}, run) {
  const {axis, view} = run;
  const box = make("div", {class: "drawing"});
  const first = make("input", {type: "number", "aria-label": "First step"});
  const last = make("input", {type: "number", "aria-label": "Last step"});
  const all = make("button", {type: "button", onclick: () => run.change({first: axis.first, last: axis.last})}, "all");
  const given = () => run.change({first: Number(first.value), last: Number(last.value)});
  first.addEventListener("change", given);
  last.addEventListener("change", given);
  place.append(box, make("div", {class: "range"}, make("span", {}, "steps"), first, "–", last, all));
  const span = () => axis.last - axis.first + 1;
  const xOf = (step, width) => ((step - axis.first) / span()) * width;
  const stepOf = (x) => Math.floor(axis.first + (x / box.clientWidth) * span());
  let marks = stepsOfEvents(events, run), tops = {};

  const {canvas, redraw} = canvasIn(box, 44, "Seconds of each step of the whole run, with events", (context, width, height) => {
    context.fillStyle = color("ground");
    context.fillRect(0, 0, width, height);
    const {tops, most} = highest(width);
    context.fillStyle = color("ink-faint");
    for (let x = 0; x < width; x++) {
      const tall = Math.max(3, (tops[x] / most) * (height - 10)); // of a step of unknown length, only that it was
      if (tops[x] > 0) context.fillRect(x, height - tall, 1, tall);
    }
    for (const isBad of [false, true]) { // trouble is drawn over checkpoints and the like
      context.fillStyle = color(isBad ? "chosen" : "ink-soft");
      const places = marks.filter(({bad}) => bad === isBad).map(({step}) => Math.floor(xOf(step, width)));
      for (const x of new Set(places)) context.fillRect(x, 0, marks.length > 100 ? 1 : 2, 6);
    }
    context.strokeStyle = color("ink-soft");
    context.setLineDash([3, 3]);
    for (const [step] of axis.resumed) {
      context.beginPath();
      context.moveTo(xOf(step, width), 0);
      context.lineTo(xOf(step, width), height);
      context.stroke();
    }
    context.setLineDash([]);
    if (view.step !== null) {
      context.fillStyle = color("chosen");
      context.fillRect(xOf(view.step, width), 0, 2, height);
    }
    if (!run.isWhole) {
      const from = xOf(view.first, width), to = xOf(view.last + 1, width);
      context.fillStyle = color("veil");
      context.fillRect(0, 0, from, height);
      context.fillRect(to, 0, width - to, height);
      context.strokeStyle = color("chosen");
      context.lineWidth = 2;
      context.strokeRect(from, 1, Math.max(2, to - from), height - 2);
    }
    for (const [input, value] of [[first, view.first], [last, view.last]]) {
      Object.assign(input, {min: axis.first, max: axis.last});
      if (document.activeElement !== input || input.value === "") input.value = value; // not while somebody types
    }
    canvas.setAttribute("aria-label", `Seconds of each step of the whole run; steps ${view.first} to ${view.last} are shown`);
  }, run);

  /** The longest step in each pixel, and the height of the drawing: long steps that are rare are cut off. */
  function highest(width) {
    if (tops.width === width) return tops;
    const longest = new Float32Array(width);
    for (let i = 0; i < axis.steps.length; i++) {
      const from = Math.floor(xOf(axis.steps[i], width));
      const to = Math.max(from + 1, Math.floor(xOf(axis.steps[i] + 1, width)));
      for (let x = from; x < to && x < width; x++) longest[x] = Math.max(longest[x], axis.seconds[i] || 1e-9);
    }
    const sorted = Float32Array.from(axis.seconds.filter(Number.isFinite)).sort();
    const usual = sorted[Math.floor(sorted.length * 0.99)] || sorted[sorted.length - 1] || 1;
    tops = {width, tops: longest, most: usual * 1.1};
    return tops;
  }

  const inside = (x) => !run.isWhole && x > xOf(view.first, box.clientWidth) + 4 && x < xOf(view.last + 1, box.clientWidth) - 4;
  let moving = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (!inside(event.offsetX)) return;
    event.stopImmediatePropagation();
    moving = {x: event.offsetX, first: view.first, last: view.last};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    canvas.style.cursor = inside(event.offsetX) ? "grab" : "crosshair";
    if (!moving) return;
    event.stopImmediatePropagation();
    const by = stepOf(event.offsetX) - stepOf(moving.x);
    const shift = Math.max(axis.first - moving.first, Math.min(by, axis.last - moving.last));
    run.change({first: moving.first + shift, last: moving.last + shift});
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!moving) return;
    const still = Math.abs(event.offsetX - moving.x) < 4;
    moving = null;
    event.stopImmediatePropagation();
    if (still) run.change({step: run.nearestStep(stepOf(event.offsetX))}, {enters: true});
  });
  chooseSteps(canvas, stepOf, (event) => run.change({step: run.nearestStep(stepOf(event.offsetX))}, {enters: true}), run);
  return (newer) => {
    [marks, tops] = [stepsOfEvents(newer.events, run), {}];
    redraw();
  };
}

/** The steps of events; of those without one, the step that went on at their time. */
function stepsOfEvents(events, run) {
  const marks = events.map(([step, seconds, bad]) => ({step: step >= 0 ? step : run.stepAt(seconds), bad}));
  return marks.filter(({step}) => step !== null);
}

/** In words where the reader is: shown steps, chosen step and rank. */
export function mountWhere(place, run) {
  const {axis, view} = run;
  run.watch(place, () => {
    const parts = [];
    if (!run.isWhole) parts.push(`steps ${wholeText(view.first)} to ${wholeText(view.last)}`);
    if (view.step !== null) parts.push(`step ${wholeText(view.step)}`);
    if (view.rank !== null) parts.push(`${view.role || "rank"} ${view.rank}`);
    if (view.phase) parts.push(view.phase);
    const at = view.step === null ? -1 : placeOf(axis.steps, view.step);
    if (at >= 0 && axis.steps[at] === view.step && axis.seconds[at] > 0) parts.push(secondsText(axis.seconds[at]));
    if (view.step !== null && axis.steps[at] !== view.step) parts.push(view.step > axis.last ? "this step has no end in the recording" : "this step was not recorded");
    const out = make("button", {type: "button", class: "out", title: "Go out (Esc)", onclick: () => goOut(run)}, "× out");
    place.replaceChildren(...(parts.length ? [make("b", {}, "Selected: "), parts.join(" · "), " ", out] : []));
    byId("follow").classList.toggle("narrowed", parts.length > 0);
  });
}

/** One level out: sample, phase, rank, step, then all steps. */
export function goOut(run) {
  const {axis, view} = run;
  if (view.sample) run.change({sample: null});
  else if (view.phase || view.name) run.change({phase: null, name: null});
  else if (view.rank !== null) run.change({rank: null, role: ""});
  else if (view.step !== null) run.change({step: null});
  else run.change({first: axis.first, last: axis.last});
}
