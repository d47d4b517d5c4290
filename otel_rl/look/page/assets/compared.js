// What differs between runs, as tables, and the sentences of `otel-rl compare`.

import {make} from "./dom.js";
import {numberText, wholeText} from "./numbers.js";
import {barOf, codedOf, saysOf, stepOf} from "./runs.js";

const FACTS = [
  ["state", ({state, severity}) => make("span", {class: `state ${state}`, "data-severity": severity}, state)],
  ["what it says", (run) => saysOf(run)[0]],
  ["steps", ({steps}) => wholeText(steps)],
  ["a step", (run) => make("span", {}, ...stepOf(run))],
  ["time goes to", (run) => barOf(run.recent_shares)],
  ["cost", ({spent}) => spent],
];

/** Runs side by side: what each says, and the parameters and last values of which not all have the same. */
export function whatDiffers(place, runs) {
  const key = JSON.stringify(runs.map(({run, label}) => [label, {...run, last_unix_nano: 0}]));
  if (place.shown === key) return;
  place.shown = key;
  const names = [...new Set(runs.flatMap(({run}) => Object.keys(run.parameters)))];
  const different = names.filter((name) => new Set(runs.map(({run}) => JSON.stringify(run.parameters[name]))).size > 1);
  const metrics = [...new Set(runs.flatMap(({run}) => Object.keys(run.metrics)))];
  const rows = [
    ...FACTS.map(([name, cell]) => [name, ...runs.map(({run}) => cell(run))]),
    ...different.map((name) => [name, ...runs.map(({run}) => valueText(run.parameters[name]))]),
    ...metrics.map((name) => [`last ${name}`, ...runs.map(({run}) => (name in run.metrics ? (run.metrics[name] === null ? "not finite" : numberText(run.metrics[name])) : ""))]),
  ];
  const titles = ["", ...runs.map(({mark, label}) => [mark, label])];
  const same = names.length - different.length;
  place.replaceChildren(make("h2", {id: "differs"}, "What differs"), scrolled("What differs", tableOf(titles, rows)), make("p", {class: "note"}, same ? `${wholeText(same)} parameters are the same in all runs.` : ""));
}

function valueText(value) {
  if (value === undefined) return "";
  return typeof value === "number" ? numberText(value) : String(value);
}

/** What the comparison with the baseline says; `only` says which runs were compared, if not all. */
export function whatIsSaid(place, said, only) {
  if (place.shown === said) return;
  place.shown = said;
  const title = make("h2", {id: "said"}, "Compared with the baseline");
  const best = (said?.best ?? []).map((sentence) => make("p", {class: "finding-line"}, ...codedOf(sentence)));
  if (!said || said.refused) {
    place.replaceChildren(title, ...best, make("p", {class: "nothing"}, said ? `${said.refused[0].toUpperCase()}${said.refused.slice(1)}.` : "Choose two runs or more."));
    return;
  }
  const [first, last] = said.steps;
  place.replaceChildren(
    title,
    ...best,
    make("p", {class: "note"}, [`Steps ${wholeText(first)} to ${wholeText(last)}, which all have.`, only, ...said.method].filter(Boolean).join(" ")),
    make("ul", {class: "sentences"}, ...said.sentences.map((sentence) => make("li", {class: "finding-line"}, ...codedOf(sentence)))),
    ...[["Metrics", said.metrics], ["Phases", said.phases]].filter(([, table]) => table.lines.length).flatMap(([name, {titles, lines}]) => [make("h3", {}, name), scrolled(name, tableOf(titles, lines))]),
    ...(said.changes.length ? [make("h3", {}, "Changed"), make("ul", {}, ...said.changes.map((change) => make("li", {}, change)))] : []),
  );
}

function scrolled(name, table) {
  return make("div", {class: "scrolled", tabindex: "0", role: "region", "aria-label": name}, table);
}

function tableOf(titles, rows) {
  const head = titles.map((title) => (title.length ? make("th", {scope: "col"}, ...[title].flat()) : make("td")));
  const body = rows.map(([name, ...cells]) => make("tr", {}, make("th", {scope: "row"}, name), ...cells.map((cell) => make("td", {}, cell))));
  return make("table", {class: "differences"}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
}
