// The keyboard: everything that the mouse does, and where the keys are told.

import {goOut} from "./brush.js";
import {placeOf} from "./decode.js";
import {byId, make} from "./dom.js";
import {nextTheme} from "./theme.js";

const KEYS = [
  ["?", "show these keys"],
  ["/", "search the names of metrics"],
  ["j  k", "next and previous part of the page"],
  ["← →", "previous and next step"],
  ["+  −", "fewer and more steps around the chosen step"],
  ["0", "all steps"],
  ["Esc", "one level out: sample, phase, rank, step, range"],
  ["t", "theme: system, light, dark"],
];

export function mountKeys(run) {
  const lines = KEYS.map(([key, what]) => make("tr", {}, make("th", {scope: "row"}, make("kbd", {}, key)), make("td", {}, what)));
  const close = make("button", {type: "button", onclick: () => dialog.close()}, "Close");
  const more = make("p", {}, "Drag over a chart to choose steps; click to choose one; double-click to see all. The address keeps what is chosen: send it.");
  const dialog = make("dialog", {"aria-label": "Keys"}, make("h2", {}, "Keys"), make("table", {}, make("tbody", {}, ...lines)), more, close);
  document.body.append(dialog);
  run.signal.addEventListener("abort", () => dialog.remove());
  addEventListener("click", ({target}) => {
    if (target.closest?.("#keys")) dialog.showModal();
  }, {signal: run.signal});
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.target.closest?.("#timeline") && !["?", "t", "j", "k"].includes(event.key)) return; // it has keys of its own
    const act = {
      "?": () => dialog.showModal(), "/": () => search(), t: nextTheme, j: () => part(1, run), k: () => part(-1, run),
      ArrowLeft: () => byStep(-1, run), ArrowRight: () => byStep(1, run), "+": () => zoom(0.5, run), "=": () => zoom(0.5, run), "-": () => zoom(2, run),
      0: () => run.change({first: run.axis.first, last: run.axis.last}), Escape: () => goOut(run),
    }[event.key];
    if (!act || (event.key.startsWith("Arrow") && event.target.closest?.(".scrolled"))) return;
    event.preventDefault();
    act();
  }, {signal: run.signal});
}

function search() {
  byId("search")?.focus();
  byId("search")?.scrollIntoView({block: "center"});
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
