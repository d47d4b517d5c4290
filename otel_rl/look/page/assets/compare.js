// Several runs over each other: their curves on one axis, what differs between them, and what `otel-rl compare` says.

import {sayWhat, showPlace} from "./bar.js";
import {whatDiffers, whatIsSaid} from "./compared.js";
import {decoded} from "./decode.js";
import {arrange, make, whenSeen} from "./dom.js";
import {goToSearch, mountKeys} from "./keys.js";
import {DASHES, LINE_COLORS, lineChart} from "./lines.js";
import {ask, poll} from "./net.js";
import {foundText, wholeText} from "./numbers.js";
import {ShownRun} from "./state.js";
import {color, whenThemed} from "./theme.js";

const LIVE_MS = 2000, ENDED_MS = 10_000, MOST_COMPARED = 10;
const AXES = {step: "step", time: "time since the start", tokens: "tokens"}, BY = {step: "step", time: "seconds", tokens: "tokens"};
const SMOOTH = {0: "none", 5: "5 points", 20: "20 points", 100: "100 points"};

export function compareScreen(place, of, parts) {
  const keys = [...new Set(of.split(",").filter((key) => /^[0-9a-f]+$/.test(key)))];
  const shown = new ShownRun(), panels = new Map();
  const lines = new Map(); // of the list, by key
  let settings = {}, cursor = "", curves = null, said = null, isAsked = 0, isFollowed = false;

  const legend = make("ul", {class: "legend"}), note = make("p", {class: "note", role: "status"}, "Reading the runs …");
  const x = choice("x axis", AXES, (value) => set({x: value})), smooth = choice("smoothing", SMOOTH, (value) => set({smooth: value}));
  const log = make("input", {type: "checkbox", onchange: () => set({log: log.checked ? "1" : ""})});
  const seeds = make("input", {type: "checkbox", onchange: () => set({seeds: seeds.checked ? "1" : ""})});
  const find = make("input", {type: "search", id: "find", placeholder: "Names, as a regular expression", "aria-label": "Names, as a regular expression", autocomplete: "off", spellcheck: "false", onchange: () => set({find: find.value})});
  const bar = make("div", {class: "chooser"}, x.label, smooth.label, make("label", {}, log, " log"), make("label", {title: "Runs that differ in their seed alone: their mean, between the lowest and the highest"}, seeds, " seeds as a band"), find, make("button", {type: "button", onclick: () => shown.change({first: shown.axis.first, last: shown.axis.last})}, "Whole range"), make("button", {type: "button", onclick: toShared, title: "The range that all runs have"}, "Shared range"));
  const box = make("div", {class: "multiples wide"});
  const differs = make("section"), words = make("section");
  place.append(make("main", {class: "compare"}, make("h1", {}, "Compare"), legend, bar, note, box, differs, words));

  /** Change what the address says of this screen. */
  function set(part) {
    read({...settings, ...part});
    history.replaceState(null, "", shown.address);
    look().catch(sayWhat);
  }

  function toShared() {
    const runs = curves?.runs ?? [];
    if (runs.length) shown.change({first: Math.max(...runs.map(({first}) => Math.floor(first))), last: Math.min(...runs.map(({last}) => Math.ceil(last)))});
  }

  function read(next) {
    settings = Object.fromEntries(["x", "smooth", "log", "seeds", "find", "baseline"].map((name) => [name, next[name] ?? ""]));
    const address = new URLSearchParams({compare: keys.join(",")});
    for (const [name, value] of Object.entries(settings)) if (value) address.set(name, value);
    shown.base = address.toString();
    x.select.value = Object.hasOwn(AXES, settings.x) ? settings.x : "step";
    smooth.select.value = Object.hasOwn(SMOOTH, settings.smooth) ? settings.smooth : "0";
    log.checked = settings.log === "1";
    seeds.checked = settings.seeds === "1";
    if (document.activeElement !== find) find.value = settings.find;
  }

  const look = async () => {
    const asked = ++isAsked;
    const news = await ask(`runs?cursor=${encodeURIComponent(cursor)}`);
    cursor = news.cursor;
    if (news.is_whole) lines.clear();
    for (const run of news.runs) if (keys.includes(run.key)) lines.set(run.key, run);
    for (const key of news.gone) lines.delete(key);
    const next = await ask(`curves?runs=${keys.join(",")}&x=${x.select.value}&seeds=${settings.seeds}&find=${encodeURIComponent(settings.find)}`);
    if (asked !== isAsked || shown.signal.aborted) return;
    curves = next;
    await draw();
    if (!isFollowed) shown.follow(location.hash); // now that the steps are known: a range of the address
    isFollowed = true;
    const known = keys.filter((key) => lines.has(key)).slice(0, MOST_COMPARED);
    said = known.length > 1 ? await ask(`compared?runs=${known.join(",")}&baseline=${baselineOf()}`) : null;
    if (asked === isAsked && !shown.signal.aborted) whatIsSaid(words, said, keys.length > MOST_COMPARED ? `The first ${MOST_COMPARED} of ${keys.length} runs.` : "");
    document.documentElement.dataset.ready = "compare";
  };

  async function draw() {
    const labels = labelsOf(keys, lines);
    drawLegend(labels);
    const some = curves.runs;
    const [first, last] = some.length ? [Math.min(...some.map((run) => run.first)), Math.max(...some.map((run) => run.last))] : [0, 0];
    const isWhole = shown.isWhole || shown.unit !== curves.x;
    shown.unit = curves.x;
    Object.assign(shown.axis, {first: Math.floor(first), last: Math.ceil(last)});
    if (isWhole) Object.assign(shown.view, {first: shown.axis.first, last: shown.axis.last});
    for (const name of panels.keys()) if (!curves.drawn.includes(name)) panels.delete(name);
    const updates = curves.drawn.map((name) => {
      if (!panels.has(name)) panels.set(name, panel(name, shown));
      return panels.get(name).update(curves, curves.lines.filter((line) => line.name === name), some.map(({key}) => ({label: labels.get(key), place: keys.indexOf(key)})), settings);
    });
    arrange(box, curves.drawn.map((name) => panels.get(name).figure));
    await Promise.all(updates);
    find.setCustomValidity(curves.refused);
    const text = curves.refused || resolution();
    if (note.textContent !== text) note.textContent = text;
    whatDiffers(differs, keys.filter((key) => lines.has(key)).map((key) => ({run: lines.get(key), mark: swatch(keys.indexOf(key)), label: labels.get(key)})));
    showPlace("", {isInside: true});
    document.title = `${[...labels.values()].join(" · ")} – otel-rl`;
    shown.announce();
  }

  /** The run that the others are compared with: the one of the address, else one that is marked, else the first. */
  function baselineOf() {
    const there = keys.filter((key) => lines.has(key));
    return there.find((key) => key === settings.baseline) ?? there.find((key) => lines.get(key).tags.includes("baseline")) ?? there[0];
  }

  function resolution() {
    const {found, drawn, names} = curves;
    const texts = [settings.find ? `${foundText(found, names.length, drawn.length)}.` : `The main metrics, of ${wholeText(curves.names.length)} names.`];
    const every = Math.max(1, ...curves.runs.map((run) => run.every));
    if (every > 1) texts.push(`Pale: the lowest and the highest value of each ${wholeText(every)} steps at most; the line is their mean.`);
    if (Number(settings.smooth)) texts.push(`Lines are means of ${settings.smooth} points, pale the values.`);
    if (settings.log) texts.push("On log axes, values that are not above zero are left out.");
    if (settings.seeds) texts.push(curves.lines.some(({of}) => of > 1) ? "Runs that differ in their seed alone are one line: their mean, and pale from the lowest to the highest." : "No two of these runs differ in their seed alone.");
    const without = curves.x === "tokens" ? curves.runs.filter(({last}) => !last).length : 0;
    if (without) texts.push(`${wholeText(without)} of the runs logged no number of tokens.`);
    const lost = keys.filter((key) => !curves.runs.some((run) => run.key === key)).length;
    if (lost) texts.push(`${wholeText(lost)} of the runs ${lost === 1 ? "is" : "are"} there no more.`);
    return texts.join(" ");
  }

  function drawLegend(labels) {
    const key = JSON.stringify([[...labels], settings, [...lines.keys()]]);
    if (legend.shown === key) return; // its buttons keep their focus
    legend.shown = key;
    const baseline = baselineOf();
    legend.replaceChildren(...keys.filter((key) => lines.has(key)).map((key) => {
      const others = keys.filter((other) => other !== key);
      const isBase = key === baseline;
      const base = make("button", {type: "button", "aria-pressed": String(isBase), title: "Compare the others with this run", onclick: () => set({baseline: key})}, isBase ? "baseline" : "as baseline");
      const rest = new URLSearchParams({compare: others.join(",")});
      for (const [name, value] of Object.entries(settings)) if (value) rest.set(name, value);
      const remove = make("a", {href: `#${rest}`, "aria-label": `Leave out ${labels.get(key)}`, title: "Leave out"}, "×");
      return make("li", {}, swatch(keys.indexOf(key)), make("a", {href: `#run=${key}`, class: "name"}, labels.get(key)), base, others.length ? remove : null);
    }));
  }

  whenThemed(() => {
    legend.shown = null;
    if (lines.size) drawLegend(labelsOf(keys, lines));
  }, shown.signal);
  mountKeys(shown.signal, [
    ["/", "search names", {"/": () => goToSearch("find")}],
    ["0", "the whole range", {0: () => shown.change({first: shown.axis.first, last: shown.axis.last})}],
  ], "Drag over a chart to choose a range; double-click to see all. The address keeps what is chosen: send it.");
  const follow = (address) => {
    read(Object.fromEntries(address));
    shown.follow(location.hash);
  };
  follow(parts);
  const isLive = () => [...lines.values()].some((run) => run.goes_on);
  const end = poll(look, () => (isLive() ? LIVE_MS : ENDED_MS), sayWhat);
  return {
    follow: (address) => {
      follow(address);
      look().catch(sayWhat);
    },
    leave() {
      end();
      shown.close();
    },
  };
}

function choice(name, options, act) {
  const select = make("select", {onchange: () => act(select.value)}, ...Object.entries(options).map(([value, text]) => make("option", {value}, text)));
  return {select, label: make("label", {}, `${name} `, select)};
}

/** What runs are called here: their names, with their directories where several have the same. */
function labelsOf(keys, lines) {
  const names = keys.map((key) => lines.get(key)?.name ?? key);
  return new Map(keys.map((key, at) => [key, names.indexOf(names[at]) === names.lastIndexOf(names[at]) ? names[at] : `${names[at]} (${lines.get(key)?.directory ?? key})`]));
}

function swatch(place) {
  const mark = make("i", {class: "swatch", "aria-hidden": "true"});
  mark.style.background = color(LINE_COLORS[place % LINE_COLORS.length]);
  return mark;
}

/** The chart of a name: a line for each run. */
function panel(name, shown) {
  const readout = make("div", {class: "readout", "aria-hidden": "true"}), place = make("div"), bad = make("p", {class: "note bad", hidden: true});
  const figure = make("figure", {"data-name": name}, make("figcaption", {}, make("span", {class: "metric", title: name}, name)), readout, place, bad);
  let asked = null, isSeen = false, chart = null, drawn = "";
  const draw = async () => {
    const [curves, lines, runs, settings] = asked;
    const made = await Promise.all(lines.map(async (line) => drawnLine(line, runs[line.run], await decoded(curves.axes[line.axis]), await Promise.all([line.values, line.low, line.high].map((column) => column && decoded(column))), settings)));
    if (asked[1] !== lines) return;
    const by = BY[curves.x];
    const options = {by, readout, isRobust: true, hasNames: true, log: settings.log === "1", height: 190, label: `${name} of ${lines.length} runs by ${curves.x}`, every: Math.max(1, ...curves.runs.map((run) => run.every))};
    const form = JSON.stringify([by, settings.log, made.map((line) => [line.name, line.color])]);
    if (form !== drawn) {
      place.replaceChildren();
      chart = made.length ? lineChart(place, made, options, shown) : null;
      drawn = form;
    } else chart?.update(made, options);
    const broken = lines.filter((line) => line.not_finite).map((line) => `${runs[line.run].label}: ${wholeText(line.not_finite.count)} values are not finite, the first at step ${wholeText(line.not_finite.first)}.`);
    bad.hidden = !broken.length;
    bad.textContent = broken.join(" ");
  };
  whenSeen(figure, () => {
    isSeen = true;
    if (asked) draw();
  });
  const update = (...next) => {
    const isSame = asked && asked[0] === next[0] && JSON.stringify(asked.slice(2)) === JSON.stringify(next.slice(2));
    asked = isSame ? asked : next;
    return isSeen && !isSame ? draw() : null;
  };
  return {figure, update};
}

function drawnLine(line, {label: first, place}, xs, [values, low, high], {smooth, log}) {
  const wide = Number(smooth) || 0, label = line.of > 1 ? `${first} and ${line.of - 1} other ${line.of > 2 ? "seeds" : "seed"}` : first;
  const above = (column) => (log && column ? Array.from(column, (value) => (value > 0 ? value : null)) : column);
  const [ys, least, most] = [wide ? means(values, wide) : values, low ?? (wide ? values : null), high ?? (wide ? values : null)].map(above);
  return {
    name: label, xs, ys, low: least, high: most,
    color: LINE_COLORS[place % LINE_COLORS.length], dash: DASHES[Math.floor(place / LINE_COLORS.length) % DASHES.length],
  };
}

/** The means of so many neighboring values each; at the ends, of those that are there. */
function means(values, wide) {
  const sums = new Float64Array(values.length + 1);
  values.forEach((value, at) => (sums[at + 1] = sums[at] + value));
  return Array.from(values, (_, at) => {
    const half = Math.min(wide >> 1, at, values.length - 1 - at);
    return (sums[at + half + 1] - sums[at - half]) / (2 * half + 1);
  });
}
