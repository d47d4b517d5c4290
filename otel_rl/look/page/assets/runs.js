// The list of runs: what needs somebody comes first, and what each run says is its main column.

import {byId, make} from "./dom.js";
import {keyed} from "./keyed.js";
import {ask, poll, Refused} from "./net.js";
import {numberText, percentText, secondsText, wholeText} from "./numbers.js";

const EVERY_MS = 1000;
const MARKS = {bad: "✖", warning: "▲", note: "○", good: "✓"};
const CALLED = {bad: "Problem", warning: "Warning", note: "Note", good: "Good"};
const TRENDS = {1: ["↑", "slower than before"], "-1": ["↓", "faster than before"], 0: ["", ""]};
const GROUPS = [["needs", "Needs somebody"], ["goes", "Running"], ["ended", "Ended"]];
const CURVE = {width: 96, height: 22};

export function runsScreen(place) {
  const runs = new Map();
  let cursor = "", clock = 0;
  const note = make("p", {class: "note", role: "status"});
  const bodies = GROUPS.map(([group, title]) => {
    const count = make("span", {class: "count"});
    const body = make("tbody");
    const head = make("tbody", {class: "group", hidden: true}, make("tr", {}, make("th", {colspan: COLUMNS.length, scope: "colgroup"}, title, " ", count)));
    return {group, head, body, count};
  });
  const head = make("thead", {}, make("tr", {}, ...COLUMNS.map(({title, kind}) => make("th", {scope: "col", class: kind}, title))));
  const table = make("table", {class: "runs"}, make("caption", {class: "unseen"}, "Runs"), head, ...bodies.flatMap(({head, body}) => [head, body]));
  place.append(make("main", {}, make("h1", {}, "Runs"), note, table));

  const show = () => {
    const every = [...runs.values()].sort((a, b) => b.last_unix_nano - a.last_unix_nano || a.name.localeCompare(b.name));
    for (const {group, head, body, count} of bodies) {
      const some = every.filter((run) => groupOf(run) === group);
      head.hidden = !some.length;
      count.textContent = wholeText(some.length);
      keyed(body, some, {key: (run) => run.key, make: rowOf, update: (row, run) => fill(row, run, clock)});
    }
    table.hidden = !runs.size;
    document.title = `${every.filter(({needs_somebody}) => needs_somebody).length || ""} otel-rl`.trim();
  };

  const look = async () => {
    const news = await ask(`runs?cursor=${encodeURIComponent(cursor)}`);
    if (news.is_whole) runs.clear();
    for (const run of news.runs) runs.set(run.key, run);
    for (const key of news.gone) runs.delete(key);
    cursor = news.cursor;
    clock = news.at_unix_nano;
    note.textContent = runs.size ? "" : `No run in ${news.directories.join(", ")} yet. Record one: otel-rl demo, or: otel-rl run -- python train.py`;
    byId("watching").textContent = `${wholeText(runs.size)} ${runs.size === 1 ? "run" : "runs"} in ${news.directories.join(", ")}`;
    show();
  };
  const leave = poll(look, () => EVERY_MS, (error) => sayWhat(error));
  return {follow() {}, leave};
}

/** Say in the bar why nothing new arrives. */
export function sayWhat(error) {
  const bar = byId("watching");
  bar.classList.toggle("bad", error !== null);
  if (error === null) return;
  if (error instanceof Refused && error.status === 401) bar.textContent = "This page needs the link that `otel-rl ui` printed: it has a token, and each start has another one.";
  else if (error instanceof Refused) bar.textContent = `The server answers ${error.status}: ${error.message}`;
  else bar.textContent = "The server does not answer. This page goes on by itself when it does; start it again with: otel-rl ui";
}

function groupOf(run) {
  return run.needs_somebody ? "needs" : run.goes_on ? "goes" : "ended";
}

const COLUMNS = [
  {title: "run", cell: (run) => [make("a", {href: `#run=${run.key}`, class: "name"}, run.name), make("small", {}, run.project)]},
  {title: "state", cell: (run) => [make("span", {class: `state ${run.state}`, "data-severity": run.severity}, run.state)]},
  {title: "what it says", kind: "says", cell: saysOf},
  {title: "steps", kind: "number", cell: (run) => [run.steps ? `${wholeText(run.steps)}${run.total_steps ? ` of ${wholeText(run.total_steps)}` : ""}` : ""]},
  {title: "a step", kind: "number", cell: stepOf},
  {title: "time goes to", cell: (run) => [barOf(run.recent_shares)]},
  {title: "main metric", kind: "curve", cell: curveOf},
  {title: "seen", kind: "number", cell: (run, at) => [run.last_unix_nano ? agoText((at - run.last_unix_nano) / 1e9) : ""]},
];

function rowOf() {
  return make("tr", {}, ...COLUMNS.map(({kind, title}) => make("td", {class: kind, "data-title": title})));
}

/** Renew the cells of a row whose content has changed. */
function fill(row, run, at) {
  row.className = run.severity;
  COLUMNS.forEach(({cell}, column) => {
    const content = cell(run, at);
    const text = content.map((part) => (part instanceof Node ? part.outerHTML : part)).join("");
    const td = row.children[column];
    if (td.shown === text) return;
    td.shown = text;
    td.replaceChildren(...content);
  });
}

function saysOf(run) {
  const mark = make("span", {class: `mark ${run.severity}`, "aria-hidden": "true"}, MARKS[run.severity]);
  const sure = run.sure === "certain" ? null : make("span", {class: "sure", title: "How sure this is"}, run.sure);
  const words = make("span", {class: "words"}, make("span", {class: "unseen"}, `${CALLED[run.severity]}: `), ...codedOf(run.sentence), sure ? " " : null, sure);
  const advice = run.needs_somebody && run.advice ? make("span", {class: "advice"}, "→ ", ...codedOf(run.advice)) : null;
  return [make("div", {class: "saying"}, mark, make("div", {}, words, advice))];
}

/** A text in which what stands between backticks is code. */
export function codedOf(text) {
  const parts = text.split("`");
  return parts.length % 2 ? parts.map((part, at) => (at % 2 ? make("code", {}, part) : part)) : [text];
}

function stepOf(run) {
  if (run.recent_step_seconds === null) return [""];
  const [arrow, meaning] = TRENDS[run.step_trend];
  return [secondsText(run.recent_step_seconds), arrow ? make("span", {class: `trend ${run.step_trend > 0 ? "warning" : "good"}`, title: meaning, "aria-label": meaning}, ` ${arrow}`) : ""];
}

/** Where time went, as a bar in the order of the RL loop; its text is the list of shares. */
export function barOf(shares) {
  if (!shares.length) return "";
  const text = shares.map(([name, , share]) => `${name || "not in any phase"} ${percentText(share)}`).join(", ");
  const bar = make("div", {class: "shares", role: "img", "aria-label": text, title: text});
  for (const [, category, share] of shares) {
    const part = make("i", {class: `swatch ${category}`});
    part.style.flexGrow = String(share);
    bar.append(part);
  }
  return bar;
}

function curveOf(run) {
  if (!run.curve) return [""];
  const {name, points} = run.curve;
  const last = points.at(-1)[1];
  const words = make("span", {class: "last"}, make("small", {}, name), make("b", {}, last === null ? "NaN" : numberText(last)));
  return [make("div", {class: "sparked"}, sparkline(points), words)];
}

const SVG = "http://www.w3.org/2000/svg";

/** The last points of a metric as a line; a gap is a value that is not finite. */
function sparkline(points) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${CURVE.width} ${CURVE.height}`);
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  const finite = points.filter(([, value]) => value !== null);
  if (finite.length < 2) return svg;
  const steps = finite.map(([step]) => step), values = finite.map(([, value]) => value);
  const low = Math.min(...values), high = Math.max(...values), first = steps[0], last = steps.at(-1);
  const x = (step) => ((step - first) / (last - first || 1)) * (CURVE.width - 2) + 1;
  const y = (value) => (high === low ? CURVE.height / 2 : CURVE.height - 2 - ((value - low) / (high - low)) * (CURVE.height - 4));
  let path = "", isPen = false;
  for (const [step, value] of points) {
    if (value !== null) path += `${isPen ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
    isPen = value !== null;
  }
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

/** How long ago something was, in its largest unit alone. */
export function agoText(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (whole >= 2 * size) return `${wholeText(Math.floor(whole / size))} ${unit}`;
  }
  return `${whole} s`;
}
