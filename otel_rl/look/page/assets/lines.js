// Line charts with uPlot, over steps or over time. All follow the view; dragging chooses steps, a click chooses one.

import {LABEL} from "./canvas.js";
import {placeOf} from "./decode.js";
import {make, whenResized} from "./dom.js";
import {bytesText, decimalsText, numberText, secondsText, wholeText} from "./numbers.js";
import {sharedRange, valueRange} from "./ranges.js";
import {tableBehind} from "./tables.js";
import {color} from "./theme.js";

export const LINE_COLORS = ["line-1", "line-2", "line-3", "line-4", "line-5", "line-6", "line-7", "line-8"];
export const DASHES = [[], [7, 3], [2, 2], [8, 3, 2, 3]];
const WHOLE = [1, 2, 5].flatMap((digit) => Array.from({length: 12}, (_, power) => digit * 10 ** power)).sort((a, b) => a - b);
export const TIMES = [0.001, 0.01, 0.1, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];
const BYTES = Array.from({length: 50}, (_, power) => 2 ** power).flatMap((unit) => [unit, unit * 10]).sort((a, b) => a - b);
const sync = uPlot.sync("steps");
const SECONDS = {title: "seconds", space: 90, incrs: TIMES, tick: secondsText, said: secondsText, text: numberText};
/** What an axis counts: its title in tables, its ticks, and a place on it in words. */
const COUNTED = {
  step: {title: "step", space: 45, incrs: WHOLE, tick: stepText, said: (x) => `step ${wholeText(x)}`, text: wholeText},
  tokens: {title: "tokens", space: 90, incrs: WHOLE, tick: numberText, said: (x) => `${numberText(x)} tokens`, text: wholeText},
  seconds: SECONDS, time: SECONDS,
};

/**
 * A chart of lines in an element; what it returns has `update(lines, options)`.
 * `lines` are `{name, xs, ys, color?}`; each has its own x. `options`: `by` ("step" or "time"), `text` (a value in
 * words), `height`, `every` (steps of a point), `label`, `bad` (steps without a number), `low` (0 to begin at zero).
 * Of several runs, `by` can be "seconds" or "tokens": the range shown is one of these then. Lines can have `low` and `high`, between
 * which is pale, and a `dash`; `isRobust` leaves lines outside that are far from the others, `log` chooses the scale, and
 * `hasNames` names a line in the readout that is alone.
 */
export function lineChart(parent, lines, options, run) {
  const {by = "step", text = numberText, height = 150, label = ""} = options;
  const {axis, view} = run;
  const box = make("div", {class: "chart", role: "img", "aria-label": label, tabindex: "0"});
  const readout = options.readout ?? make("div", {class: "readout", "aria-hidden": "true"});
  parent.append(box);
  if (!options.readout) parent.append(readout);
  const joined = lines.length > 1 || options.hasNames, counted = COUNTED[by], isTime = by === "time";
  let data = columns(lines, options), isLog = spansDecades(lines, options);
  let chart = null;

  const axisOf = (extra) => ({
    stroke: () => color("ink-soft"), font: LABEL, ticks: {stroke: () => color("rule"), size: 3},
    grid: {stroke: () => color("rule"), width: 1}, ...extra,
  });
  const build = () => {
    const width = box.clientWidth;
    if (!width) return;
    chart?.destroy();
    const series = lines.map((line, at) => ({
      label: line.name,
      stroke: () => color(line.color ?? (joined ? LINE_COLORS[at % LINE_COLORS.length] : options.means ? "line-pale" : "line-1")),
      width: 1.5,
      dash: line.dash ?? (joined ? DASHES[dashOf(lines, at) % DASHES.length] : []),
      points: {show: (plot, index, from, to) => to - from < plot.bbox.width / devicePixelRatio / 12, size: 4},
      spanGaps: false,
    }));
    chart = new uPlot({
      width, height, padding: [8, 14, 0, 0],
      scales: {x: {time: false, range: () => rangeShown(run, by)}, y: {distr: isLog ? 3 : 1, range: (plot) => yRange(plot, run, by, isLog, options)}},
      axes: [
        axisOf({size: 24, space: counted.space, incrs: counted.incrs, values: (plot, values) => values.map(counted.tick)}),
        axisOf({size: 54, space: 28, ...(text === bytesText ? {incrs: BYTES} : {}), values: (plot, values, axis, space, size) => values.map((value) => (value === null ? "" : text === numberText && !isLog ? tickText(value, size) : text(value)))}),
      ],
      legend: {show: false},
      cursor: {y: false, drag: {x: true, y: false, setScale: false}, ...(isTime ? {} : {sync: {key: sync.key, setSeries: false}})},
      series: [{}, ...series],
      hooks: {
        drawAxes: [(plot) => bands(plot, lines)],
        draw: [(plot) => overlay(plot, run, by, isLog, options)],
        setCursor: [(plot) => read(plot)],
        setSelect: [(plot) => selected(plot)],
        ready: [(plot) => clicks(plot)],
      },
    }, data, box);
    read(chart);
  };

  function read(plot) {
    const at = plot.cursor.idx;
    const hovered = at != null && plot.cursor.left >= 0;
    const shown = hovered ? [counted.said(plot.data[0][at])] : [];
    for (let i = 0; i < lines.length && i < 12; i++) {
      const value = hovered ? nearest(plot.data[i + 1], at) : lastShown(lines[i], run, by);
      const bad = hovered ? null : options.bad?.last;
      if (bad && bad[0] <= view.last && bad[0] > (lastPlace(lines[i], run, by) ?? -Infinity)) {
        shown.push(make("b", {class: "bad"}, bad[1]));
        continue;
      }
      if (value == null || (hovered && joined && value === undefined)) continue;
      shown.push(joined ? [lines[i], text(value)] : text(value));
    }
    if (!joined && !shown.length) shown.push("no value here");
    readout.replaceChildren(...shown.map((entry) => (Array.isArray(entry) ? keyed(entry[0], lines, entry[1]) : make("span", {}, entry))));
  }

  function selected(plot) {
    const {left, width} = plot.select;
    if (width < 4) return;
    plot.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
    const from = plot.posToVal(left, "x"), to = plot.posToVal(left + width, "x");
    if (!isTime) run.change({first: Math.floor(from), last: Math.ceil(to)}, {enters: true});
    else run.change({first: run.stepAt(from) ?? axis.first, last: run.stepAt(to) ?? axis.last}, {enters: true});
  }

  function clicks(plot) {
    let begun = 0;
    plot.over.addEventListener("pointerdown", (event) => (begun = event.clientX));
    plot.over.addEventListener("click", (event) => {
      if (Math.abs(event.clientX - begun) > 4 || options.hasNames) return; // a step is one of a run
      const x = plot.posToVal(plot.cursor.left, "x");
      const step = by === "step" ? run.nearestStep(Math.round(x)) : run.stepAt(x);
      if (step !== null) run.change({step, name: by === "step" && !joined ? lines[0].name : view.name}, {enters: true});
    });
    plot.over.addEventListener("dblclick", () => run.change({first: axis.first, last: axis.last}));
  }

  whenResized(box, build);
  let theme = null;
  const redraw = () => {
    chart.setScale("x", {});
    chart.redraw(false, true);
    read(chart);
  };
  run.watch(box, () => {
    if (!chart) return;
    const now = color("ink");
    if (theme !== null && theme !== now) build();
    else redraw();
    theme = now;
  }, () => chart?.destroy());
  theme = color("ink");
  tableBehind(parent, `${label}: values`, () => ({
    caption: `${options.label ?? ""}: values`,
    titles: [counted.title, ...lines.map((line) => line.name)],
    rows: rowsShown(data, run, by).map(([x, ...values]) => [counted.text(x), ...values.map(numberText)]),
  }), run);

  /** The same lines with newer values; `more` are the options that changed. */
  function update(newer, more) {
    lines = newer;
    options = {...options, ...more};
    const wasLog = isLog;
    [data, isLog] = [columns(lines, options), spansDecades(lines, options)];
    if (options.label) box.setAttribute("aria-label", options.label);
    if (!chart) return;
    if (isLog !== wasLog) build();
    else {
      chart.setData(data, false);
      redraw();
    }
  }
  return {update};
}

/** The lines on one x, as uPlot reads them. */
function columns(lines, {every = 1}) {
  const cut = lines.map((line) => withGaps(line.xs, line.ys, every));
  // 2 is uPlot's NULL_EXPAND: an x that only other lines have is passed over, but next to a gap it belongs to the gap.
  return lines.length > 1 ? uPlot.join(cut.map(([xs, ys]) => [xs, ys]), cut.map(() => [2])) : cut[0];
}

function spansDecades(lines, {low, log}) {
  if (log !== undefined) return log;
  return low === undefined && valueRange(lines.flatMap(({ys}) => Array.from(ys))).log;
}

/** How many lines before this one have its color. */
function dashOf(lines, at) {
  if (!lines[at].color) return Math.floor(at / LINE_COLORS.length);
  return lines.slice(0, at).filter(({color: other}) => other === lines[at].color).length;
}

function keyed(line, lines, value) {
  const at = lines.indexOf(line);
  const mark = make("i", {class: "swatch"});
  mark.style.background = color(line.color ?? LINE_COLORS[at % LINE_COLORS.length]);
  return make("span", {}, mark, line.name, " ", make("b", {}, value));
}

/** A value of an axis, with as many decimals as tell it from its neighbors. */
function tickText(value, size) {
  if (Math.abs(value) >= 1e6 || size < 1e-6) return numberText(value);
  const decimals = (String(size).split(".")[1] ?? "").length;
  return decimalsText(value, Math.min(8, decimals));
}

function stepText(x) {
  return Number.isInteger(x) ? wholeText(x) : "";
}

function rangeShown(run, by) {
  const {view} = run;
  if (by === "time") return run.shownSeconds();
  return view.first === view.last ? [view.first - 0.5, view.last + 0.5] : [view.first, view.last];
}

function yRange(plot, run, by, isLog, {low: least, isRobust}) {
  const [begin, end] = placesShown(plot, run, by);
  const cut = plot.data.slice(1).map((values) => Array.prototype.slice.call(values, begin, end)).filter((values) => values.some((value) => value != null));
  const shown = isRobust && cut.length ? sharedRange(cut) : valueRange(cut.flat());
  if (isLog) {
    const low = shown.low > 0 ? shown.low : Math.min(1, ...cut.flat().filter((value) => value > 0));
    return [low, shown.high > low ? shown.high : 10 * low];
  }
  const [from, to] = [least === undefined ? shown.low : Math.min(least, shown.low), shown.high];
  const room = (to - from) * 0.06 || Math.abs(to) * 0.1 || 1;
  return [from === least ? from : from - room, to + room];
}

/** Where the shown range begins and ends in the data. */
function placesShown(plot, run, by) {
  const [first, last] = rangeShown(run, by);
  return [placeOf(plot.data[0], first), placeOf(plot.data[0], last + 1e-9 * Math.abs(last) + 1e-12)];
}

/** A gap stays a gap: a line is cut where more than three usual intervals have no value. */
function withGaps(xs, ys, every) {
  if (xs.length < 3) return [Array.from(xs), Array.from(ys)];
  const sample = [];
  for (let i = 1; i < xs.length; i += Math.max(1, Math.floor(xs.length / 500))) sample.push(xs[i] - xs[i - 1]);
  sample.sort((a, b) => a - b);
  const usual = sample[sample.length >> 1], widest = sample[Math.floor(sample.length * 0.95)];
  const limit = Math.max(3 * usual, widest, every > 1 ? 2 * every : 0) * 1.001; // two extremes of two ranges
  const [left, values] = [[], []];
  for (let i = 0; i < xs.length; i++) {
    if (i && xs[i] - xs[i - 1] > limit) {
      left.push((xs[i] + xs[i - 1]) / 2);
      values.push(null);
    }
    left.push(xs[i]);
    values.push(ys[i]);
  }
  return [left, values];
}

function nearest(values, at) {
  for (let i = 0; i < 40; i++) {
    if (values[at - i] != null) return values[at - i];
    if (values[at + i] != null) return values[at + i];
  }
  return undefined;
}

function lastShown({xs, ys}, run, by) {
  const place = lastPlace({xs}, run, by);
  return place === null ? null : ys[placeOf(xs, place)];
}

/** Where the last shown value is. */
function lastPlace({xs}, run, by) {
  const [first, last] = rangeShown(run, by);
  const place = placeOf(xs, last + 1e-9 * Math.abs(last) + 1e-12) - 1;
  return place >= 0 && xs[place] >= first ? xs[place] : null;
}

function rowsShown(data, run, by) {
  const [first, last] = rangeShown(run, by);
  const rows = [];
  for (let i = placeOf(data[0], first); i < data[0].length && data[0][i] <= last; i++) {
    if (data.slice(1).some((values) => values[i] != null)) rows.push(data.map((values) => values[i]));
  }
  return rows;
}

/** Between the lowest and the highest value of each point: pale. */
function bands(plot, lines) {
  const {ctx: context, bbox: {left, top, width, height}} = plot;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.globalAlpha = 0.18;
  for (const {xs, low, high, color: name} of lines) {
    if (!low) continue;
    context.fillStyle = context.strokeStyle = color(name);
    const places = Array.from(xs, (_, at) => at).filter((at) => low[at] != null && high[at] != null);
    const to = (values) => (at) => context.lineTo(plot.valToPos(xs[at], "x", true), plot.valToPos(values[at], "y", true));
    context.beginPath();
    places.forEach(to(high));
    places.reverse().forEach(to(low));
    context.fill();
    context.stroke();
  }
  context.restore();
}

/** Above the lines: where the run was resumed, the chosen step, values outside of the range, and those that are no numbers. */
function overlay(plot, run, by, isLog, {bad, means, text = numberText}) {
  const {axis, view} = run;
  const context = plot.ctx;
  const {left, top, width, height} = plot.bbox;
  const scale = devicePixelRatio || 1;
  const at = (step) => (by === "step" ? step : axis.ended[placeOf(axis.steps, step)]);
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  if (means) {
    context.strokeStyle = color("line-1");
    context.lineWidth = 1.8 * scale;
    context.beginPath();
    means.xs.forEach((x, i) => context.lineTo(plot.valToPos(x, "x", true), plot.valToPos(means.ys[i], "y", true)));
    context.stroke();
  }
  const upright = (x, name, dash) => {
    context.strokeStyle = color(name);
    context.lineWidth = scale;
    context.setLineDash(dash.map((length) => length * scale));
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
  };
  for (const [step] of axis.resumed) upright(plot.valToPos(at(step), "x", true), "ink-soft", [4, 3]);
  if (view.step !== null) upright(plot.valToPos(at(view.step), "x", true), "chosen", []);
  context.font = `${10 * scale}px system-ui, sans-serif`;
  context.textAlign = "left";
  context.fillStyle = color("ink-soft");
  if (isLog) context.fillText("log scale", left + 4 * scale, top + 10 * scale);
  for (const isAbove of [true, false]) outside(plot, run, by, isAbove, text);
  context.fillStyle = color("bad");
  let before = -Infinity; // of marks side by side, the first has a text
  for (const [step, text] of bad?.first ?? []) {
    const x = plot.valToPos(step, "x", true);
    context.fillRect(x - scale, top + height - 8 * scale, 2 * scale, 8 * scale);
    if (x - before > 40 * scale && x >= left && x <= left + width) context.fillText(text, x, top + height - 11 * scale);
    before = x;
  }
  context.restore();
}

/** Mark the values above or below the range: a triangle at the edge for each, and the farthest one in words. */
function outside(plot, run, by, isAbove, text) {
  const {ctx: context, bbox: {left, top, width, height}} = plot;
  const scale = devicePixelRatio || 1;
  const edge = isAbove ? plot.scales.y.max : plot.scales.y.min;
  const isOut = (value) => value != null && (isAbove ? value > edge : value < edge);
  const [begin, end] = placesShown(plot, run, by);
  let farthest = null, drawn = -Infinity;
  for (let i = begin; i < end; i++) {
    const value = plot.data.slice(1).map((values) => values[i]).find(isOut);
    if (value === undefined) continue;
    const x = plot.valToPos(plot.data[0][i], "x", true);
    if (!farthest || Math.abs(value) > Math.abs(farthest.value)) farthest = {x, value};
    if (x - drawn < 5 * scale) continue;
    drawn = x;
    const y = isAbove ? top : top + height, tip = (isAbove ? 6 : -6) * scale;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x - 4 * scale, y + tip);
    context.lineTo(x + 4 * scale, y + tip);
    context.fill();
  }
  if (!farthest) return;
  const isRight = farthest.x > left + width / 2;
  context.textAlign = isRight ? "right" : "left";
  context.fillText(text(farthest.value), farthest.x + (isRight ? -7 : 7) * scale, isAbove ? top + 9 * scale : top + height - 3 * scale);
  context.textAlign = "left";
}
