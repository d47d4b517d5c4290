// The timeline of a run inside an element: machines × ranks × phases × trajectories, from the whole run to a millisecond.

import {secondsText, wholeText} from "./numbers.js";
import {timelineColors} from "./timeline_colors.js";
import {TIMELINE_TOP, timelineDraw} from "./timeline_draw.js";
import {timelineElement, timelineFacts, timelineTable} from "./timeline_facts.js";
import {TimelineSums, timelineAfter, timelineAt, timelineFrom, timelineLane} from "./timeline_index.js";
import {timelineKeys, timelinePointer} from "./timeline_input.js";
import {TIMELINE_MAP_PX, timelineMap, timelineMapPointer} from "./timeline_map.js";
import {readTimeline} from "./timeline_read.js";
import {timelineRows, timelineStartsNested} from "./timeline_rows.js";
import {timelineFailures, timelineIdentity, timelineSameSpan} from "./timeline_same.js";
import {TimelineRange} from "./timeline_view.js";
import {timelineSpanWords} from "./timeline_words.js";

const TIMELINE_MOST_PX = 560;
const TIMELINE_CATEGORIES = {
  rollout: "rollout",
  reward: "reward, environment",
  training: "training",
  sync: "weight sync",
  evaluation: "evaluation",
  checkpoint: "checkpoint",
  waiting: "waiting",
  other: "other",
};
const TIMELINE_TOUCH = "Drag to pan, pinch to zoom, tap a phase to select it.";
const TIMELINE_HELP =
  "Drag to pan. Wheel (after a click), pinch or W and S zoom. A and D pan. Arrows move the selection. " +
  "Enter zooms to it, Esc back, 0 to the whole run. / searches, N goes to the next match.";

/**
 * Draw a timeline into an element, and return how to move it: `{show, select, theme, update, ready}`. It is drawn when its
 * spans have been read; what is asked of it before is done then, and `ready` is fulfilled. `update(data)` takes over newer
 * data; a view that ended at the end of the run still does.
 *
 * @param data What `timeline_of` returned.
 * @param hooks `onSelect({step, rank, role, phase, span})` when the reader selects a span; all are null when none is.
 *   `onRange({first_ns, last_ns})` when another part of the run is shown.
 */
export function mountTimeline(element, data, hooks = {}) {
  element.classList.add("timeline");
  let opening = null;
  const panel = new Promise((resolve) => (opening = resolve));
  const update = async (newer) => {
    if (!newer.count) return element.replaceChildren(timelineElement("p", { className: "nothing", text: "No phase was recorded." }));
    const isFirst = opening !== null;
    if (isFirst) element.replaceChildren(timelineElement("p", { className: "note", text: `Reading ${wholeText(newer.count)} spans …` }));
    const model = await readTimeline(newer);
    if (!isFirst) return (await panel).renew(model);
    opening(new TimelinePanel(element, model, hooks));
    opening = null;
  };
  return {
    show: (part) => panel.then((opened) => opened.show(part)),
    select: (place) => panel.then((opened) => opened.selectPlace(place)),
    theme: () => panel.then((opened) => opened.theme()),
    update,
    ready: update(data),
  };
}

class TimelinePanel {
  constructor(element, model, hooks) {
    this.element = element;
    this.model = model;
    this.hooks = hooks;
    this.range = new TimelineRange(model, () => this.moved());
    this.view = { top: 0, selected: -1, hovered: -1, widths: new Map(), failures: timelineFailures(model), nested: timelineStartsNested(model) };
    this.query = "";
    this.only = "";
    this.matches = [];
    this.build();
    this.theme();
    this.classify();
    this.listen();
    this.resize();
  }

  build() {
    const make = timelineElement;
    this.search = make("input", { type: "search", placeholder: "Search a phase", "aria-label": "Search a phase", className: "timeline-search" });
    this.found = make("span", { className: "timeline-found", "aria-live": "polite" });
    this.legend = make("span", { className: "timeline-legend", role: "group", "aria-label": "Categories" });
    this.nested = make("button", { type: "button", text: "Inner phases", "aria-pressed": String(this.view.nested) });
    this.left = make("div", { className: "timeline-left" });
    this.whole = make("button", { type: "button", text: "Whole run", title: "0" });
    this.out = make("button", { type: "button", text: "−", "aria-label": "Zoom out", title: "S" });
    this.in = make("button", { type: "button", text: "+", "aria-label": "Zoom in", title: "W" });
    this.extent = make("span", { className: "timeline-extent" });
    const tools = make("span", { className: "timeline-tools" }, this.extent, this.nested, this.out, this.in, this.whole);
    this.map = make("canvas", { className: "timeline-map", "aria-hidden": "true" });
    this.canvas = make("canvas", { className: "timeline-canvas" });
    this.spacer = make("div", { className: "timeline-spacer" }, this.canvas);
    this.tip = make("div", { className: "timeline-tip" });
    this.tip.hidden = true;
    this.stage = make("div", { className: "timeline-stage", tabindex: "0", role: "application", "aria-label": `Timeline. ${TIMELINE_HELP}` }, this.spacer);
    this.selection = make("p", { className: "timeline-selection", "aria-live": "polite" });
    this.facts = make("dl", { className: "timeline-facts" });
    this.body = make("tbody");
    const heads = ["phase", "machine", "process", "step", "duration", "starts after", ""].map((text) => make("th", { scope: "col", text }));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), this.body);
    const summary = make("summary", { text: "The longest spans in view, as a table" });
    this.table = make("details", { className: "timeline-table" }, summary, make("div", { className: "timeline-scroll" }, table));
    const parts = [
      make("div", { className: "timeline-bar" }, this.search, this.found, this.legend, tools),
      this.left,
      this.map,
      make("div", { className: "timeline-frame" }, this.stage, this.tip),
      make("div", { className: "timeline-selected" }, this.selection, this.facts),
      this.table,
      make("p", { className: "timeline-note timeline-help", text: TIMELINE_HELP }),
      make("p", { className: "timeline-note timeline-touch", text: TIMELINE_TOUCH }),
    ];
    this.element.replaceChildren(...parts);
    this.context = this.canvas.getContext("2d", { alpha: false });
    this.mapContext = this.map.getContext("2d", { alpha: false });
    this.tell();
  }

  /** Show which categories there are, and what is not shown. */
  tell() {
    const make = timelineElement;
    const used = new Set(this.model.names.map((name) => name.category));
    for (const category of this.model.categories) {
      if (!used.has(category) || this.legend.querySelector(`[data-category="${category}"]`)) continue;
      const swatch = make("i", { className: `timeline-swatch timeline-swatch-${category}` });
      const button = make("button", { type: "button", "aria-pressed": "false", "data-category": category }, swatch, TIMELINE_CATEGORIES[category] ?? category);
      button.addEventListener("click", () => this.highlight(category));
      this.legend.append(button);
    }
    this.nested.hidden = !this.model.lanes.some((lane) => lane.level > 0);
    this.left.replaceChildren(...this.notes().map((text) => make("p", { className: "timeline-note", text })));
  }

  /** Take over a newer model: what is shown, selected, searched and highlighted stays. */
  renew(model) {
    const before = this.model;
    const chosen = this.view.selected < 0 ? null : timelineIdentity(before, this.view.selected);
    this.model = model;
    this.range.renew(model);
    Object.assign(this.view, { failures: timelineFailures(model), hovered: -1, selected: chosen ? timelineSameSpan(model, chosen) : -1 });
    this.tell();
    this.classify();
    if (this.query) this.find(this.query);
    this.choose(this.view.selected, false);
    this.resize();
  }

  /** Return what is not shown, in words. */
  notes() {
    const { thinned, tracks, tickNs } = this.model;
    const notes = [];
    if (thinned) {
      const share = `${wholeText(thinned.kept)} of ${wholeText(thinned.recorded)} spans are shown`;
      const bin = secondsText((thinned.bin_ticks * tickNs) / 1e9);
      notes.push(`${share}: those that failed or took ${bin} or longer, and the longest of the others of each phase of a process in every ${bin}. Zoomed out, all of them count; zoomed in, a gap shorter than ${bin} may not be one.`);
    }
    const hidden = tracks.reduce((sum, track) => sum + track.hidden, 0);
    const are = hidden === 1 ? "span is" : "spans are";
    if (hidden) notes.push(`${wholeText(hidden)} ${are} not shown: at most 32 of a process at the same time, and 8 inside each other.`);
    return notes;
  }

  listen() {
    const share = (x) => (x - this.view.gutter) / (this.view.width - this.view.gutter);
    timelinePointer(this.stage, this.canvas, {
      range: this.range,
      share,
      span: (x, y) => this.spanAt(x, y),
      scroll: (by) => (this.stage.scrollTop += by),
      hover: (span, x, y) => this.hover(span, x, y),
      select: (span) => this.select(span),
      enter: (span) => this.enter(span),
      hint: () => this.hint(),
    });
    timelineKeys(this.stage, {
      range: this.range,
      share: () => this.selectedShare(),
      move: (way) => this.move(way),
      enter: () => this.enter(this.view.selected),
      out: () => this.leave(),
      search: () => this.search.focus(),
      next: (by) => this.nextMatch(by),
    });
    timelineMapPointer(this.map, this.range);
    this.search.addEventListener("input", () => this.find(this.search.value));
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        this.search.value = "";
        this.find("");
        this.stage.focus();
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
    this.nested.addEventListener("click", () => {
      this.view.nested = !this.view.nested;
      this.nested.setAttribute("aria-pressed", String(this.view.nested));
      this.resize();
    });
    this.whole.addEventListener("click", () => this.range.whole());
    this.in.addEventListener("click", () => this.range.zoom(1 / 2, this.selectedShare()));
    this.out.addEventListener("click", () => this.range.zoom(2, this.selectedShare()));
    this.stage.addEventListener("scroll", () => {
      this.view.top = this.stage.scrollTop;
      this.redraw();
    });
    this.stage.addEventListener("focus", () => this.redraw());
    this.table.addEventListener("toggle", () => this.fill());
    new ResizeObserver(() => this.resize()).observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.theme());
  }

  resize() {
    const { view } = this;
    view.width = this.stage.clientWidth;
    if (!view.width) return;
    view.gutter = view.width < 700 ? 84 : 148;
    view.ratio = Math.min(3, devicePixelRatio || 1);
    const room = Math.max(240, Math.min(TIMELINE_MOST_PX, innerHeight * 0.7)) - TIMELINE_TOP;
    const { rows, height } = timelineRows(this.model, { room, nested: view.nested });
    view.rows = rows;
    view.height = Math.min(height, room) + TIMELINE_TOP;
    this.stage.style.height = `${view.height}px`;
    this.spacer.style.height = `${height + TIMELINE_TOP}px`;
    view.width = this.stage.clientWidth; // a scroll bar may have come
    for (const [canvas, wide, high] of [[this.canvas, view.width, view.height], [this.map, view.width - view.gutter, TIMELINE_MAP_PX]]) {
      canvas.width = Math.round(wide * view.ratio);
      canvas.height = Math.round(high * view.ratio);
    }
    this.map.style.marginLeft = `${view.gutter}px`;
    this.map.style.width = `${view.width - view.gutter}px`;
    this.canvas.style.width = `${view.width}px`;
    this.canvas.style.height = `${view.height}px`;
    view.top = this.stage.scrollTop;
    this.moved();
  }

  theme() {
    this.view.colors = timelineColors(this.element, this.model.categories);
    this.redraw();
  }

  /** Give each name its class: its category, or the one of what is not highlighted. */
  classify() {
    const { model } = this;
    const dim = model.categories.length;
    const words = this.query.trim().toLowerCase();
    const classOf = Uint8Array.from(model.names, ({ label, category }) => {
      const matches = (!words || label.toLowerCase().includes(words)) && (!this.only || category === this.only);
      return matches ? model.categories.indexOf(category) : dim;
    });
    this.isMatch = (span) => classOf[model.name[span]] !== dim;
    this.view.sums = new TimelineSums(model, classOf, dim + 1);
    this.fill();
    this.redraw();
  }

  find(text) {
    this.query = text;
    this.classify();
    const words = text.trim().toLowerCase();
    let matches = 0;
    if (words) for (let i = 0; i < this.model.count; i++) if (this.isMatch(i)) matches++;
    const names = words ? this.model.names.filter((name) => name.label.toLowerCase().includes(words)).map((name) => name.label) : [];
    const more = names.length > 2 ? ` and ${names.length - 2} more` : "";
    const what = `${names.slice(0, 2).join(", ")}${more}: ${wholeText(matches)} spans`;
    this.found.textContent = !words ? "" : names.length ? what : "no such phase";
  }

  highlight(category) {
    this.only = this.only === category ? "" : category;
    for (const button of this.legend.children) button.setAttribute("aria-pressed", String(button.dataset.category === this.only));
    this.classify();
  }

  /** Select the next span in time that matches the search, of the row of the selection or of all. */
  nextMatch(by) {
    const { model, view } = this;
    const from = view.selected >= 0 ? model.start[view.selected] : this.range.first;
    const key = (span) => model.start[span] + span / model.count / 2;
    const after = view.selected >= 0 ? key(view.selected) : from;
    let best = -1;
    for (const lane of model.lanes) {
      let i = timelineFrom(model.start, lane, from, lane.first);
      if (by < 0) i = Math.min(i, lane.end - 1);
      for (; i >= lane.first && i < lane.end; i += by) {
        if (!this.isMatch(i) || (key(i) - after) * by <= 0) continue;
        if (best < 0 || (key(i) - key(best)) * by < 0) best = i;
        break;
      }
    }
    if (best >= 0) this.select(best, true);
  }

  spanAt(x, y) {
    const { view, model } = this;
    const at = y - TIMELINE_TOP + view.top;
    if (y < TIMELINE_TOP || x < view.gutter) return -1;
    const row = view.rows.find((each) => each.kind === "lane" && at >= each.y && at <= each.y + each.height);
    if (!row) return -1;
    const perPixel = (view.last - view.first) / (view.width - view.gutter);
    return timelineAt(model, row.lane, view.first + (x - view.gutter) * perPixel, 3 * perPixel);
  }

  hover(span, x = 0, y = 0) {
    this.tip.hidden = span < 0;
    if (span >= 0) {
      this.tip.textContent = timelineSpanWords(this.model, span) + (this.model.failed[span] ? " · failed" : "");
      const left = Math.min(x + 14, this.view.width - this.tip.offsetWidth - 4);
      this.tip.style.transform = `translate(${Math.max(0, left)}px, ${y + 18}px)`;
    }
    if (span === this.view.hovered) return;
    this.view.hovered = span;
    this.redraw();
  }

  hint() {
    this.tip.hidden = false;
    this.tip.textContent = "Click, then the wheel zooms; or hold Ctrl.";
    this.tip.style.transform = `translate(${this.view.gutter}px, 4px)`;
    clearTimeout(this.hinting);
    this.hinting = setTimeout(() => this.hover(-1), 1500);
  }

  /** Select a span as the reader did. */
  select(span, reveals = false) {
    this.choose(span, reveals);
    this.hooks.onSelect?.(this.described(span));
  }

  choose(span, reveals) {
    const { model, view } = this;
    view.selected = span;
    this.selection.textContent = span < 0 ? "" : `selected: ${timelineSpanWords(model, span)}`;
    const facts = span < 0 ? [] : timelineFacts(model, span);
    this.facts.replaceChildren(...facts.map(([name, text]) => timelineElement("div", {}, timelineElement("dt", { text: name }), timelineElement("dd", { text }))));
    if (span >= 0 && reveals) {
      this.range.reveal(model.start[span], model.end[span]);
      this.scrollTo(timelineLane(model, span));
    }
    this.redraw();
  }

  described(span) {
    if (span < 0) return { step: null, rank: null, role: null, phase: null, span: null };
    const { model } = this;
    const { track } = timelineLane(model, span);
    const { label, category } = model.names[model.name[span]];
    const nanoseconds = (ticks) => model.origin + BigInt(Math.round(ticks)) * BigInt(model.tickNs);
    return {
      step: model.step[span] < 0 ? null : model.step[span],
      rank: track.rank,
      role: track.role,
      phase: label,
      span: {
        phase: label,
        category,
        machine: track.machine,
        start_ns: String(nanoseconds(model.start[span])),
        duration_s: ((model.end[span] - model.start[span]) * model.tickNs) / 1e9,
        failed: Boolean(model.failed[span]),
        ...model.details.get(span),
      },
    };
  }

  scrollTo(lane) {
    let row = this.view.rows.find((each) => each.lane === lane);
    if (!row && !this.view.nested) {
      this.nested.click();
      row = this.view.rows.find((each) => each.lane === lane);
    }
    const room = this.view.height - TIMELINE_TOP;
    if (!row || (row.y >= this.stage.scrollTop && row.y + row.height <= this.stage.scrollTop + room)) return;
    this.stage.scrollTop = Math.max(0, row.y - room / 2);
    this.view.top = this.stage.scrollTop;
  }

  selectedShare() {
    const { selected } = this.view;
    const at = selected < 0 ? -1 : (this.model.start[selected] + this.model.end[selected]) / 2;
    const share = (at - this.range.first) / (this.range.last - this.range.first);
    return share > 0 && share < 1 ? share : 0.5;
  }

  /** Move the selection to a neighbor: before or after in its lane, or at the same time in the row above or below. */
  move(way) {
    const { model, view } = this;
    if (view.selected < 0) {
      const first = this.firstVisible();
      if (first >= 0) this.select(first, true);
      return;
    }
    const lane = timelineLane(model, view.selected);
    if (way === "before" || way === "after") {
      const next = view.selected + (way === "after" ? 1 : -1);
      if (next >= lane.first && next < lane.end) this.select(next, true);
      return;
    }
    const lanes = view.rows.filter((row) => row.kind === "lane").map((row) => row.lane);
    const middle = (Math.max(model.start[view.selected], this.range.first) + Math.min(model.end[view.selected], this.range.last)) / 2;
    const by = way === "down" ? 1 : -1;
    for (let n = lanes.indexOf(lane) + by; n >= 0 && n < lanes.length; n += by) {
      const span = timelineAt(model, lanes[n], middle, (this.range.last - this.range.first) / 2);
      if (span >= 0) return this.select(span, true);
    }
  }

  firstVisible() {
    const { model, view } = this;
    for (const row of view.rows) {
      if (row.kind !== "lane" || row.y + row.height < view.top) continue;
      const i = timelineFrom(model.start, row.lane, this.range.first, row.lane.first);
      if (i < row.lane.end && model.start[i] < this.range.last) return i;
    }
    return -1;
  }

  enter(span) {
    if (span < 0) return false;
    this.select(span);
    this.range.go(this.model.start[span], this.model.end[span]);
    return true;
  }

  /** Go back to what was shown before; from the whole run, forget the selection. */
  leave() {
    if (this.range.back()) return true;
    if (this.view.selected < 0) return false; // the page closes what it has open
    this.select(-1);
    return true;
  }

  /** Show a stretch of time, in Unix nanoseconds (numbers, texts or BigInts), or steps from `first_step` to `last_step`; without any, the whole run. */
  show({ first_ns, last_ns, first_step, last_step = first_step }) {
    const { model } = this;
    if (first_ns === undefined && first_step === undefined) return this.range.go(0, model.ticks);
    const ticks = (ns) => Number(BigInt(ns) - model.origin) / model.tickNs;
    const [first, last] = first_ns === undefined ? this.ofSteps(first_step, last_step) : [ticks(first_ns), ticks(last_ns)];
    if (!(last >= first)) return false;
    this.range.go(first, last);
    return true;
  }

  /** Show a step, unless it is visible in some detail. */
  showStep(step) {
    const [first, last] = this.ofSteps(step, step);
    if (!(last >= first)) return false;
    const { range } = this;
    const isSeen = first >= range.first && last <= range.last && last - first > (range.last - range.first) / 8;
    if (!isSeen) range.go(first, last);
    return true;
  }

  /** Return from when to when steps went on. */
  ofSteps(first, last) {
    const { start, end, number, count } = this.model.steps;
    let [from, to] = [Infinity, -Infinity];
    for (let i = 0; i < count; i++) {
      if (number[i] < first || number[i] > last) continue;
      from = Math.min(from, start[i]);
      to = Math.max(to, end[i]);
    }
    return [from, to];
  }

  /** Show a step, and select the longest phase of a process in it; without a step and a rank, select nothing. */
  selectPlace({ step = null, rank = null, role = null, phase = null }) {
    const { model, view } = this;
    const now = this.described(view.selected);
    const isSame = now.step === step && now.rank === rank && (role === null || (now.role ?? "") === role);
    if (isSame && (phase === null || now.phase === phase)) return view.selected >= 0;
    const tracks = model.tracks.filter((track) => rank === null || (track.rank === rank && track.role === (role ?? "")));
    const span = step === null && rank === null ? -1 : this.longest(tracks, step, phase);
    const isShown = step !== null && this.showStep(step);
    this.choose(span, true);
    if (span < 0 && rank !== null && tracks[0]?.lanes.length) this.scrollTo(tracks[0].lanes[0]);
    return isShown || span >= 0;
  }

  /** Return the longest span of processes, of a step and of a phase; outer ones if the phase is not given. */
  longest(tracks, step, phase) {
    const { model } = this;
    let best = -1;
    for (const lane of tracks.flatMap((track) => track.lanes)) {
      if (phase === null && lane.level > 0) continue;
      let [i, end] = step === null ? [lane.first, lane.end] : this.near(lane, step);
      for (; i < end; i++) {
        if (step !== null && model.step[i] !== step) continue;
        if (phase !== null && model.names[model.name[i]].label !== phase) continue;
        if (best < 0 || model.end[i] - model.start[i] > model.end[best] - model.start[best]) best = i;
      }
    }
    return best;
  }

  /** Return the spans of a lane around a step, so that not all have to be looked at. */
  near(lane, step) {
    const [from, to] = this.ofSteps(step, step);
    if (!(to >= from)) return [lane.first, lane.end];
    return [timelineAfter(this.model.end, lane, from, lane.first), timelineFrom(this.model.start, lane, to + 1, lane.first)];
  }

  moved() {
    this.view.first = this.range.first;
    this.view.last = this.range.last;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.settled(), 150);
    this.redraw();
  }

  settled() {
    this.fill();
    const { model, range } = this;
    const ns = (ticks) => String(model.origin + BigInt(Math.round(ticks)) * BigInt(model.tickNs));
    this.hooks.onRange?.({ first_ns: ns(range.first), last_ns: ns(range.last) });
  }

  fill() {
    if (this.table.open) timelineTable(this.body, this.model, this.range, this.isMatch, (span) => this.select(span, true));
  }

  redraw() {
    if (this.waits || !this.view.sums || !this.view.rows) return;
    this.waits = true;
    requestAnimationFrame(() => {
      this.waits = false;
      this.draw();
    });
  }

  draw() {
    timelineDraw(this.context, this.model, this.view);
    timelineMap(this.mapContext, this.model, this.view);
    this.extent.textContent = secondsText(((this.view.last - this.view.first) * this.model.tickNs) / 1e9);
    this.whole.disabled = this.range.isWhole;
  }
}
