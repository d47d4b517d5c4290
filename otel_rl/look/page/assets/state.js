// What is shown: a range of steps, and the chosen step, rank and name. It is in the address, so that it can be sent.

import {placeOf} from "./decode.js";
import {byId} from "./dom.js";

export const view = {first: 0, last: 0, step: null, rank: null, role: "", phase: null, name: null, sample: null};
export const axis = {steps: new Float64Array(), ended: new Float64Array(), seconds: new Float32Array(), first: 0, last: 0, resumed: []};
const watchers = [];
let scheduled = false;

/** Call `show` whenever the view changes, at most once a frame. */
export function watch(show) {
  watchers.push(show);
}

/** Change the view. If `enters`, going back in the browser leads out again. */
export function change(part, {enters = false} = {}) {
  const next = {...view, ...part};
  next.first = Math.max(axis.first, Math.min(next.first, axis.last));
  next.last = Math.max(next.first, Math.min(next.last, axis.last));
  if (Object.keys(next).every((key) => next[key] === view[key])) return;
  Object.assign(view, next);
  remember(enters);
  announce();
}

export function announce() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    for (const show of watchers) show(view);
  });
}

export function isWhole() {
  return view.first === axis.first && view.last === axis.last;
}

function addressOf() {
  const parts = new URLSearchParams();
  if (view.step !== null) parts.set("step", view.step);
  if (view.rank !== null) parts.set("rank", view.rank);
  if (view.role) parts.set("role", view.role);
  if (view.phase) parts.set("phase", view.phase);
  if (view.name) parts.set("name", view.name);
  if (view.sample) parts.set("sample", view.sample);
  if (!isWhole()) parts.set("steps", `${view.first}-${view.last}`);
  return `#${parts}`;
}

function remember(enters) {
  try {
    if (enters) history.pushState(null, "", addressOf());
    else history.replaceState(null, "", addressOf());
  } catch {
    // inside a notebook, the page has no address
  }
}

/** Go where a link of the page leads; going back in the browser leads back. */
export function enter(address) {
  try {
    history.pushState(null, "", address);
  } catch {
    // inside a notebook, the page has no address
  }
  follow(address);
}

/** Follow the address: `#step=812&rank=3&at=waiting`. What it does not name is shown whole. */
export function follow(address) {
  const parts = new URLSearchParams(address.replace(/^#/, ""));
  const whole = (name) => (/^\d+$/.test(parts.get(name) ?? "") ? Number(parts.get(name)) : null);
  const keys = [...parts.keys()];
  const at = parts.get("at");
  if (keys.length === 1 && (at || !parts.get(keys[0]))) {
    goTo(at || keys[0]); // a part of the page: what is chosen stays
    return;
  }
  const step = whole("step");
  const range = /^(-?\d+)-(\d+)$/.exec(parts.get("steps") ?? "");
  const [first, last] = range ? [Number(range[1]), Number(range[2])] : [axis.first, axis.last];
  const texts = Object.fromEntries(["phase", "name", "sample"].map((name) => [name, parts.get(name)]));
  const chosen = {step, rank: whole("rank"), role: parts.get("role") ?? "", ...texts};
  Object.assign(view, chosen, {first: Math.max(axis.first, Math.min(first, axis.last)), last: Math.min(last, axis.last)});
  if (view.last < view.first) Object.assign(view, {first: axis.first, last: axis.last});
  announce();
  if (at) goTo(at);
}

let target = null;

export function goTo(id) {
  const part = byId(id);
  if (!part || part.tagName !== "SECTION") return;
  target = part;
  part.scrollIntoView({block: "start"});
  part.focus({preventScroll: true});
}

/** Parts above the target grow when they are drawn: stay with it until the reader does something. */
export function stayAtTarget() {
  new ResizeObserver(() => target?.scrollIntoView({block: "start"})).observe(document.querySelector("main"));
  for (const act of ["wheel", "pointerdown", "touchstart", "keydown"]) {
    addEventListener(act, () => (target = null), {capture: true, passive: true});
  }
}

/** Seconds since the start of the run at which the shown steps begin and end. */
export function shownSeconds() {
  if (!axis.steps.length) return [0, axis.end];
  const low = Math.max(0, placeOf(axis.steps, view.first));
  const high = Math.min(axis.steps.length - 1, Math.max(low, placeOf(axis.steps, view.last + 1) - 1));
  const took = axis.seconds[low];
  const begun = axis.ended[low] - (Number.isFinite(took) ? took : low ? axis.ended[low] - axis.ended[low - 1] : 0);
  return isWhole() ? [0, Math.max(axis.end, axis.ended[high])] : [begun, axis.ended[high]];
}

/** The step that was done, or went on, at a time in seconds since the start of the run. */
export function stepAt(seconds) {
  const at = Math.min(axis.steps.length - 1, placeOf(axis.ended, seconds));
  return at < 0 ? null : axis.steps[at];
}

/** The step of the run that is nearest to a number. */
export function nearestStep(number) {
  const at = placeOf(axis.steps, number);
  if (at <= 0) return axis.steps[0] ?? null;
  if (at >= axis.steps.length) return axis.steps[axis.steps.length - 1];
  return axis.steps[at] - number < number - axis.steps[at - 1] ? axis.steps[at] : axis.steps[at - 1];
}
