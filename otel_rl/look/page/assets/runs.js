// The list of runs: what needs somebody comes first, and what each run says is its main column.

import {rememberList, sayWhat, showPlace} from "./bar.js";
import {make} from "./dom.js";
import {keyed} from "./keyed.js";
import {goToSearch, mountKeys} from "./keys.js";
import {changeMarks} from "./marks.js";
import {ask, poll, readable} from "./net.js";
import {agoText, numberText, percentText, secondsText, wholeText} from "./numbers.js";
import {valueRange} from "./ranges.js";

const EVERY_MS = 1000, ANSWERS_MS = 15_000, MOST_COMPARED = 50, MOST_OFFERED = 50, MOST_DRAWN = 300;
const MARKS = {bad: "✖", warning: "▲", note: "○", good: "✓"};
const CALLED = {bad: "Problem", warning: "Warning", note: "Note", good: "Good"};
const TRENDS = {1: ["↑", "slower than before"], "-1": ["↓", "faster than before"], 0: ["", ""]};
const GROUPS = [["needs", "Needs somebody"], ["goes", "Running"], ["ended", "Ended"]];
const CURVE = {width: 96, height: 22};

const chosen = new Set(); // keys of runs to be compared: they stay chosen when the reader comes back

/** The list. Its search, order, columns and groups are in the address: `#runs&find=state:hung&sort=lr&columns=lr,kl:best`. */
export function runsScreen(place, of, parts) {
  const runs = new Map(), closing = new AbortController();
  let cursor = "", clock = 0, settings = {}, mayChange = null, isPriced = false, best = new Set(), found = null, foundFor = "", wanted = "", drawnColumns = "", isStale = true;
  const note = make("p", {class: "note", role: "status"});
  const inputs = {
    find: make("input", {type: "search", id: "find", placeholder: "Search: text, state:hung, project:math, lr>1e-6", "aria-label": "Search runs", autocomplete: "off", spellcheck: "false", oninput: () => set({find: inputs.find.value})}),
    columns: make("input", {type: "text", placeholder: "Columns: lr, kl:best, loss:mean100", "aria-label": "Further columns: parameters and metrics", autocomplete: "off", spellcheck: "false", onchange: () => set({columns: inputs.columns.value})}),
    group: make("input", {type: "text", list: "groups", placeholder: "Group by: project, lr", "aria-label": "Group by project, state, or a parameter", autocomplete: "off", spellcheck: "false", onfocus: () => offer(names, runs.values()), onchange: () => set({group: inputs.group.value.trim()})}),
    all: make("input", {type: "checkbox", onchange: () => set({all: inputs.all.checked ? "1" : ""})}),
  };
  const names = make("datalist", {id: "groups"});
  const compare = make("button", {type: "button", id: "compare", disabled: true, onclick: () => (location.hash = `#compare=${[...chosen].join(",")}`)}, "Compare");
  const marks = make("button", {type: "button", hidden: true, onclick: () => changeMarks([...chosen].map((key) => runs.get(key)).filter(Boolean), again).catch(sayWhat)}, "Marks …");
  const bar = make("div", {class: "chooser", role: "search"}, inputs.find, inputs.columns, inputs.group, names, make("label", {}, inputs.all, " archived too"), compare, marks);
  const summary = make("div", {class: "summary", role: "status"});
  const caption = make("caption", {class: "unseen", "data-key": "caption"}, "Runs"), head = make("thead", {"data-key": "head"});
  const table = make("table", {class: "runs"}, caption, head);
  place.append(make("main", {}, make("h1", {}, "Runs"), bar, note, summary, table));
  const columns = () => [...COLUMNS.filter(({title}) => title !== "cost" || isPriced), ...further().map((name, at) => ({title: name, sort: name, kind: "number", cell: (run) => [cellText(found?.values[run.key]?.[at])]}))];
  const further = () => settings.columns.split(",").map((name) => name.trim()).filter(Boolean);

  function read(next) {
    settings = Object.fromEntries(["find", "sort", "reverse", "columns", "group", "all"].map((name) => [name, next[name] ?? ""]));
    for (const name of ["find", "columns", "group"]) if (document.activeElement !== inputs[name]) inputs[name].value = settings[name];
    inputs.all.checked = settings.all === "1";
    const focused = head.contains(document.activeElement) ? document.activeElement.dataset.sort : null;
    head.replaceChildren(make("tr", {}, make("th", {scope: "col", class: "choose"}, make("span", {class: "unseen"}, "chosen")), ...columns().map(titleOf)));
    if (focused) [...head.querySelectorAll("button")].find(({dataset}) => dataset.sort === focused)?.focus();
  }

  /** A title that sorts: by a first click the best, latest or largest first, by a second one the other way. */
  function titleOf({title, kind, sort}) {
    const isSorted = sort && settings.sort === sort, isReversed = settings.reverse === "1";
    const act = () => set(isSorted && isReversed ? {sort: "", reverse: ""} : {sort, reverse: isSorted ? "1" : ""});
    const content = sort ? make("button", {type: "button", "data-sort": sort, onclick: act}, title, isSorted ? (isReversed ? " ▲" : " ▼") : "") : title;
    return make("th", {scope: "col", class: kind, "aria-sort": isSorted ? (isReversed ? "ascending" : "descending") : null}, content);
  }

  function set(part) {
    read({...settings, ...part});
    const address = new URLSearchParams(Object.entries(settings).filter(([, value]) => value));
    history.replaceState(null, "", `#runs${address.size ? `&${readable(address)}` : ""}`);
    rememberList(location.hash);
    look().catch(sayWhat);
  }

  const show = () => {
    const of = (keys) => keys.map((key) => runs.get(key)).filter(Boolean);
    const every = of(found?.keys ?? []), known = settings.group ? (found?.groups ?? []) : [];
    const wasPriced = isPriced;
    isPriced = every.some(({spent}) => spent);
    if (isPriced !== wasPriced) read(settings); // the titles
    const titles = columns().map(({title}) => title).join("\n");
    if (titles !== drawnColumns) table.querySelectorAll("tbody").forEach((body) => body.remove()); // rows have other cells
    drawnColumns = titles;
    best = new Set((found?.groups ?? []).flatMap((group) => group.best));
    const groups = settings.group ? known.map(({label, keys, spent, sentences}) => [label, `${settings.group} ${label || "unknown"}`, of(keys), spent, sentences])
      : settings.sort ? [["all", "", every]] : GROUPS.map(([group, title]) => [group, title, every.filter((run) => groupOf(run) === group)]);
    const bodies = groups.filter(([,, some]) => some.length).flatMap(([group, title, some, spent = "", sentences = []]) => [{key: `title ${group}`, title, count: some.length, spent, sentences}, {key: `runs ${group}`, some}]);
    sum(summary, settings.group ? null : found?.groups[0]);
    keyed(table, [{key: "caption"}, {key: "head"}, ...bodies], {
      key: ({key}) => key,
      make: ({title}) => (title === undefined ? make("tbody") : make("tbody", {class: "group"}, make("tr", {}, make("th", {colspan: columns().length + 1, scope: "colgroup"}, title, " ", make("span", {class: "count"}), make("div", {class: "note summary"}))))),
      update: (body, {title, count, some, spent, sentences}) => {
        if (title !== undefined) {
          body.hidden = !title;
          body.querySelector(".count").textContent = [wholeText(count), count > MOST_DRAWN && title && `the first ${MOST_DRAWN} are listed: search for the others`, spent].filter(Boolean).join(" · ");
          sum(body.querySelector(".summary"), {spent: "", sentences});
        }
        if (some) keyed(body, some.slice(0, MOST_DRAWN), {key: (run) => run.key, make: (run) => rowOf(run, columns(), chosen, sayChosen), update: (row, run) => fill(row, {...run, isBest: best.has(run.key)}, clock, columns())});
      },
    });
    table.hidden = !runs.size;
    for (const key of chosen) if (!runs.has(key)) chosen.delete(key);
    sayChosen();
    const waiting = [...runs.values()].filter(({needs_somebody}) => needs_somebody).length;
    document.title = `${waiting || ""} otel-rl`.trim();
    note.classList.toggle("bad", Boolean(found?.refused));
    if (found?.refused) say(found.refused);
    else if (runs.size) say([every.length < runs.size ? `${wholeText(every.length)} of ${wholeText(runs.size)} runs` : "", settings.sort && every.length > MOST_DRAWN ? `the first ${MOST_DRAWN} are listed` : ""].filter(Boolean).join(", "));
  };

  /** Say something of the list; the same text again would be read out again. */
  function say(text) {
    if (note.textContent !== text) note.textContent = text;
  }

  function sayChosen() {
    marks.hidden = !mayChange || !chosen.size;
    compare.disabled = chosen.size < 2 || chosen.size > MOST_COMPARED;
    compare.textContent = chosen.size > MOST_COMPARED ? `Compare: ${MOST_COMPARED} runs at most` : chosen.size ? `Compare ${wholeText(chosen.size)} chosen` : "Compare: choose runs";
  }

  const again = () => look().catch(sayWhat);
  const look = async () => {
    mayChange ??= (await ask("access")).may_change;
    const news = await ask(`runs?cursor=${encodeURIComponent(cursor)}`, ANSWERS_MS);
    if (closing.signal.aborted) return;
    if (news.is_whole) runs.clear();
    for (const run of news.runs) runs.set(run.key, run);
    for (const key of news.gone) runs.delete(key);
    isStale ||= news.cursor !== cursor;
    cursor = news.cursor;
    clock = news.at_unix_nano;
    const query = new URLSearchParams(["find", "sort", "reverse", "group", "all"].filter((name) => settings[name]).map((name) => [name, settings[name]]));
    for (const name of further()) query.append("columns", name);
    const asked = String(query);
    if (asked !== foundFor || isStale || !found) {
      wanted = asked;
      const next = await ask(`found?${asked}`, ANSWERS_MS);
      if (asked !== wanted || closing.signal.aborted) return;
      [foundFor, isStale] = [asked, false];
      found = next.refused && found ? {...found, refused: next.refused} : next; // while somebody types, what was found stays
    }
    if (!runs.size && !news.unread) say(`No run in ${news.directories.join(", ")} yet. Record one: otel-rl demo, or: otel-rl run -- python train.py`);
    showPlace(`${wholeText(runs.size)} ${runs.size === 1 ? "run" : "runs"} in ${news.directories.join(", ")}${news.unread ? ` · ${wholeText(news.unread)} more are being read` : ""}`);
    show();
  };
  read(Object.fromEntries(parts));
  rememberList(location.hash || "#runs");
  mountKeys(closing.signal, [["/", "search the runs", {"/": () => goToSearch("find")}]], "Choose runs to compare them. The address keeps what is searched, sorted and shown: send it.");
  const stop = poll(look, () => EVERY_MS, sayWhat);
  const leave = () => {
    stop();
    closing.abort();
  };
  return {follow: (next) => set(Object.fromEntries(next)), leave};
}

function cellText(value) {
  return value == null ? "" : typeof value === "number" ? numberText(value) : String(value);
}

/** What runs cost together, and which of them is the best; the same again would be read out again. */
function sum(place, group) {
  const texts = [group?.spent && `Together: ${group.spent}.`, ...(group?.sentences ?? [])].filter(Boolean);
  if (place.shown === texts.join("\n")) return;
  place.shown = texts.join("\n");
  place.replaceChildren(...texts.map((text) => make("p", {}, ...codedOf(text))));
}

/** Offer what runs can be grouped by: parameters that differ between them. */
function offer(list, runs) {
  const values = new Map();
  for (const {parameters} of runs) for (const [name, value] of Object.entries(parameters)) values.set(name, (values.get(name) ?? new Set()).add(value));
  const names = ["project", "state", ...[...values].filter(([, some]) => some.size > 1).map(([name]) => name)].slice(0, MOST_OFFERED);
  list.replaceChildren(...names.map((value) => make("option", {value})));
}

function groupOf(run) {
  return run.needs_somebody ? "needs" : run.goes_on ? "goes" : "ended";
}

const COLUMNS = [
  {title: "run", sort: "name", kind: "named", cell: namedOf},
  {title: "state", sort: "state", cell: (run) => [make("span", {class: `state ${run.state}`, "data-severity": run.severity}, run.state)]},
  {title: "what it says", kind: "says", cell: saysOf},
  {title: "steps", sort: "steps", kind: "number", cell: (run) => [run.steps ? `${wholeText(run.steps)}${run.total_steps ? ` of ${wholeText(run.total_steps)}` : ""}` : ""]},
  {title: "a step", sort: "step_time", kind: "number", cell: stepOf},
  {title: "time goes to", cell: (run) => [barOf(run.recent_shares)]},
  {title: "main metric", sort: "reward", kind: "curve", cell: curveOf},
  {title: "cost", sort: "gpu_hours", kind: "cost", cell: ({spent}) => spent.split(/, | (?=\()/).map((part) => make("span", {}, part))},
  {title: "seen", sort: "seen", kind: "number", cell: (run, at) => [run.last_unix_nano ? agoText((at - run.last_unix_nano) / 1e9) : ""]},
];

function rowOf(run, columns, chosen, say) {
  const choose = () => {
    if (box.checked) chosen.add(run.key);
    else chosen.delete(run.key);
    say();
  };
  const box = make("input", {type: "checkbox", "aria-label": `Choose ${run.name}`, onchange: choose});
  box.checked = chosen.has(run.key);
  return make("tr", {}, make("td", {class: "choose"}, box), ...columns.map(({kind, title}) => make("td", {class: kind, "data-title": title})));
}

/** Renew the cells of a row whose content has changed. */
function fill(row, run, at, columns) {
  row.className = run.severity;
  columns.forEach(({cell}, column) => {
    const content = cell(run, at);
    const text = content.map((part) => (part instanceof Node ? part.outerHTML : part)).join("");
    const td = row.children[column + 1];
    if (td.shown === text) return;
    td.shown = text;
    td.replaceChildren(...content);
  });
}

function namedOf(run) {
  const best = run.isBest ? make("span", {class: "best", title: "The best of these runs by their main metric"}, "★ best") : "";
  const tags = run.tags.length ? make("small", {class: "tags"}, ...run.tags.map((tag) => make("span", {class: "sure"}, tag))) : "";
  const notes = run.notes ? make("small", {title: run.notes}, run.notes.split("\n")[0]) : "";
  return [make("a", {href: `#run=${run.key}`, class: "name"}, run.name), best, make("small", {}, run.project), tags, notes];
}

export function saysOf(run) {
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

export function stepOf(run) {
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

/** Where a value is between two others, from 0 to 1; ±1.7e308 are finite, and their difference is not. */
function placeIn(value, low, high) {
  return Number.isFinite(high - low) ? (value - low) / (high - low) : (value / 2 - low / 2) / (high / 2 - low / 2);
}

/** A metric over the whole run as a line; a gap is a value that is not finite. */
function sparkline(points) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${CURVE.width} ${CURVE.height}`);
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  const finite = points.filter(([, value]) => value !== null);
  if (finite.length < 2) return svg;
  const steps = finite.map(([step]) => step), values = finite.map(([, value]) => value);
  const {low, high} = valueRange(values), first = steps[0], last = steps.at(-1);
  const x = (step) => ((step - first) / (last - first || 1)) * (CURVE.width - 2) + 1;
  const inside = (value) => Math.max(low, Math.min(value, high));
  const y = (value) => (high === low ? CURVE.height / 2 : CURVE.height - 2 - placeIn(inside(value), low, high) * (CURVE.height - 4));
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
