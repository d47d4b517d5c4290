// What is shown of a run: a range of steps, and the chosen step, rank and name. It is in the address, so that it can be sent.

import {placeOf} from "./decode.js";
import {byId} from "./dom.js";
import {whenThemed} from "./theme.js";

/** A run on the page: its steps (`axis`), what of them is shown (`view`), and who draws it. `base` begins its addresses. */
export class ShownRun {
  axis = {steps: new Float64Array(), ended: new Float64Array(), seconds: new Float32Array(), first: 0, last: 0, end: 0, resumed: []};
  view = {first: 0, last: 0, step: null, rank: null, role: "", phase: null, name: null, sample: null};
  asked = 0; // how often the reader has chosen what is shown
  #watchers = new Set();
  #closing = new AbortController();
  #scheduled = false;
  #target = null;

  constructor(base = "") {
    this.base = base;
    whenThemed(() => this.announce(), this.signal);
  }

  /** What listens to the window for this run stops with this signal. */
  get signal() {
    return this.#closing.signal;
  }

  close() {
    for (const {gone} of this.#watchers) gone();
    this.#watchers.clear();
    this.#closing.abort();
  }

  /** Call `show` whenever the view changes, at most once a frame, until `owner` has left the page; then call `gone`. */
  watch(owner, show, gone = () => {}) {
    this.#watchers.add({owner, show, gone, wasShown: false});
  }

  announce() {
    if (this.#scheduled || this.signal.aborted) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      for (const watcher of this.#watchers) this.#tell(watcher);
    });
  }

  #tell(watcher) {
    if (watcher.wasShown && !watcher.owner.isConnected) {
      this.#watchers.delete(watcher);
      watcher.gone();
      return;
    }
    watcher.wasShown ||= watcher.owner.isConnected;
    watcher.show(this.view);
  }

  /** Change the view. If `enters`, going back in the browser leads out again. */
  change(part, {enters = false} = {}) {
    const {axis, view} = this;
    const next = {...view, ...part};
    next.first = Math.max(axis.first, Math.min(next.first, axis.last));
    next.last = Math.max(next.first, Math.min(next.last, axis.last));
    if (Object.keys(next).every((key) => next[key] === view[key])) return;
    Object.assign(view, next);
    this.asked++;
    this.#remember(enters);
    this.announce();
  }

  /** Take over the steps of a newer moment. A range that ended at the last step still ends there; others stay. */
  grow(steps) {
    const {axis, view, isWhole} = this;
    const before = axis.last;
    Object.assign(axis, steps, {first: steps.steps[0] ?? 0, last: steps.steps[steps.steps.length - 1] ?? 0});
    const by = view.last === before ? axis.last - before : 0;
    view.last = isWhole ? axis.last : Math.max(axis.first, Math.min(view.last + by, axis.last));
    view.first = isWhole ? axis.first : Math.max(axis.first, Math.min(view.first + by, view.last));
    this.announce();
  }

  get isWhole() {
    return this.view.first === this.axis.first && this.view.last === this.axis.last;
  }

  /** The address of what is shown. */
  get address() {
    const {view} = this;
    const parts = new URLSearchParams(this.base);
    if (view.step !== null) parts.set("step", view.step);
    if (view.rank !== null) parts.set("rank", view.rank);
    if (view.role) parts.set("role", view.role);
    if (view.phase) parts.set("phase", view.phase);
    if (view.name) parts.set("name", view.name);
    if (view.sample) parts.set("sample", view.sample);
    if (!this.isWhole) parts.set("steps", `${view.first}-${view.last}`);
    return `#${parts}`;
  }

  #remember(enters) {
    try {
      if (enters) history.pushState(null, "", this.address);
      else history.replaceState(null, "", this.address);
    } catch {
      // inside a notebook, the page has no address
    }
  }

  /** Go where a link of the page leads; going back in the browser leads back. */
  enter(address) {
    try {
      history.pushState(null, "", address);
    } catch {
      // inside a notebook, the page has no address
    }
    this.follow(address);
  }

  /** Follow the address: `#step=812&rank=3&at=waiting`. What it does not name is shown whole. */
  follow(address) {
    const {axis, view} = this;
    const parts = new URLSearchParams(address.replace(/^#/, ""));
    for (const key of new URLSearchParams(this.base).keys()) parts.delete(key);
    const whole = (name) => (/^\d+$/.test(parts.get(name) ?? "") ? Number(parts.get(name)) : null);
    const keys = [...parts.keys()];
    const at = parts.get("at");
    if (keys.length === 1 && (at || !parts.get(keys[0]))) {
      this.goTo(at || keys[0]); // a part of the page: what is chosen stays
      return;
    }
    const step = whole("step");
    const range = /^(-?\d+)-(\d+)$/.exec(parts.get("steps") ?? "");
    const [first, last] = range ? [Number(range[1]), Number(range[2])] : [axis.first, axis.last];
    const texts = Object.fromEntries(["phase", "name", "sample"].map((name) => [name, parts.get(name)]));
    const chosen = {step, rank: whole("rank"), role: parts.get("role") ?? "", ...texts};
    Object.assign(view, chosen, {first: Math.max(axis.first, Math.min(first, axis.last)), last: Math.min(last, axis.last)});
    if (view.last < view.first) Object.assign(view, {first: axis.first, last: axis.last});
    this.asked++;
    this.announce();
    if (at) this.goTo(at);
  }

  goTo(id) {
    const part = byId(id);
    if (!part || part.tagName !== "SECTION") return;
    this.#target = part;
    part.scrollIntoView({block: "start"});
    part.focus({preventScroll: true});
  }

  /** Parts above the target grow when they are drawn: stay with it until the reader does something. */
  stayAtTarget() {
    const {signal} = this;
    const grown = new ResizeObserver(() => this.#target?.scrollIntoView({block: "start"}));
    grown.observe(document.querySelector("main"));
    signal.addEventListener("abort", () => grown.disconnect());
    for (const act of ["wheel", "pointerdown", "touchstart", "keydown"]) {
      addEventListener(act, () => (this.#target = null), {capture: true, passive: true, signal});
    }
  }

  /** Seconds since the start of the run at which the shown steps begin and end. */
  shownSeconds() {
    const {axis, view} = this;
    if (!axis.steps.length) return [0, axis.end];
    const low = Math.max(0, placeOf(axis.steps, view.first));
    const high = Math.min(axis.steps.length - 1, Math.max(low, placeOf(axis.steps, view.last + 1) - 1));
    const took = axis.seconds[low];
    const begun = axis.ended[low] - (Number.isFinite(took) ? took : low ? axis.ended[low] - axis.ended[low - 1] : 0);
    return this.isWhole ? [0, Math.max(axis.end, axis.ended[high])] : [begun, axis.ended[high]];
  }

  /** The step that was done, or went on, at a time in seconds since the start of the run. */
  stepAt(seconds) {
    const {axis} = this;
    const at = Math.min(axis.steps.length - 1, placeOf(axis.ended, seconds));
    return at < 0 ? null : axis.steps[at];
  }

  /** The step of the run that is nearest to a number. */
  nearestStep(number) {
    const {axis} = this;
    const at = placeOf(axis.steps, number);
    if (at <= 0) return axis.steps[0] ?? null;
    if (at >= axis.steps.length) return axis.steps[axis.steps.length - 1];
    return axis.steps[at] - number < number - axis.steps[at - 1] ? axis.steps[at] : axis.steps[at - 1];
  }
}
