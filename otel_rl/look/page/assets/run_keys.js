// The keys of one run: its parts, its steps, its range.

import {goOut} from "./brush.js";
import {placeOf} from "./decode.js";
import {byId} from "./dom.js";
import {goToSearch} from "./keys.js";

export const HINT = "Drag over a chart to choose steps; click to choose one; double-click to see all. The address keeps what is chosen: send it.";

export function keysOf(run) {
  return [
    ["/", "search the names of metrics", {"/": () => goToSearch("search")}],
    ["j  k", "next and previous part of the page", {j: () => part(1, run), k: () => part(-1, run)}],
    ["← →", "previous and next step", {ArrowLeft: () => byStep(-1, run), ArrowRight: () => byStep(1, run)}],
    ["+  −", "fewer and more steps around the chosen step", {"+": () => zoom(0.5, run), "=": () => zoom(0.5, run), "-": () => zoom(2, run)}],
    ["0", "all steps", {0: () => run.change({first: run.axis.first, last: run.axis.last})}],
    ["Esc", "one level out: sample, phase, rank, step, range", {Escape: () => goOut(run)}],
  ];
}

function part(by, run) {
  const parts = [...document.querySelectorAll("main section:not([hidden])")];
  const covered = byId("follow").offsetHeight + 8;
  const now = parts.findLastIndex((part) => part.getBoundingClientRect().top <= covered + 8);
  run.goTo(parts[Math.max(0, Math.min(parts.length - 1, now + by))].id);
}

function byStep(by, run) {
  const {axis, view} = run;
  if (!axis.steps.length) return;
  const at = view.step === null ? placeOf(axis.steps, by > 0 ? view.first : view.last) : placeOf(axis.steps, view.step) + by;
  const step = axis.steps[Math.max(0, Math.min(axis.steps.length - 1, at))];
  const span = view.last - view.first;
  if (step < view.first) run.change({step, first: step, last: step + span});
  else if (step > view.last) run.change({step, first: step - span, last: step});
  else run.change({step});
}

function zoom(factor, run) {
  const {view} = run;
  const middle = view.step ?? (view.first + view.last) / 2;
  const half = Math.max(1, ((view.last - view.first + 1) * factor) / 2);
  run.change({first: Math.round(middle - half), last: Math.round(middle + half)});
}
