// Recorded tables, such as completions: filtered by text, by the chosen step, and sorted by a column.

import {make, renewed} from "./dom.js";
import {numberText, wholeText} from "./numbers.js";
import {transcriptList} from "./transcripts.js";

const MOST_SAMPLES = 100;

export function mountSamples(place, data, run) {
  const keyOf = ({transcripts, tables}) => JSON.stringify([transcripts.length > 0, tables.map(({name, columns}) => [name, columns])]);
  return renewed(place, data, keyOf, ({command, transcripts, tables}) => {
    const shown = transcripts.length ? transcriptList(place, transcripts, command, run) : null;
    if (!tables.length && !shown) place.append(make("p", {class: "nothing"}, "No completions or tables were recorded."));
    const drawn = tables.map((table) => sampleTable(place, table, run));
    return (newer) => {
      shown?.(newer.transcripts, newer.command);
      newer.tables.forEach((table, at) => drawn[at](table));
    };
  });
}

/** A table that can be filtered and sorted; what is returned takes over newer lines. */
function sampleTable(place, table, run) {
  const {view} = run;
  const filter = make("input", {type: "search", placeholder: "Filter", "aria-label": `Filter ${table.name}`});
  const count = make("span", {class: "note", role: "status"});
  const inside = make("div", {class: "scrolled samples", tabindex: "0", role: "region", "aria-label": table.name});
  const titles = ["step", ...table.columns];
  let sorted = null;
  const show = () => {
    const words = filter.value.toLowerCase();
    const inRange = table.lines.filter(([step]) => (view.step === null ? step >= view.first && step <= view.last : step === view.step));
    const lines = inRange.filter((line) => !words || line.some((cell) => String(cell ?? "").toLowerCase().includes(words)));
    if (sorted) lines.sort((a, b) => sorted.sign * compared(a[sorted.column], b[sorted.column]));
    const head = titles.map((title, column) => {
      const by = () => {
        sorted = {column, sign: sorted?.column === column ? -sorted.sign : -1};
        show();
      };
      const arrow = sorted?.column === column ? (sorted.sign < 0 ? " ↓" : " ↑") : "";
      const order = arrow ? (sorted.sign < 0 ? "descending" : "ascending") : null;
      return make("th", {scope: "col", "aria-sort": order}, make("button", {type: "button", onclick: by}, title + arrow));
    });
    const body = lines.slice(0, MOST_SAMPLES).map((line) => make("tr", {}, ...titles.map((_, at) => cell(line[at]))));
    inside.replaceChildren(make("table", {}, make("caption", {class: "unseen"}, table.name), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
    const parts = [`${wholeText(lines.length)} of ${wholeText(table.lines.length)} lines on this page`];
    if (lines.length > MOST_SAMPLES) parts.push(`the first ${MOST_SAMPLES} are shown`);
    if (table.cut) parts.push(`${wholeText(table.cut)} were left out when they were recorded or written here`);
    count.textContent = `${parts.join("; ")}. Recorded in steps ${wholeText(table.first)} to ${wholeText(table.last)}.`;
  };
  filter.addEventListener("input", show);
  run.watch(inside, show);
  show();
  place.append(make("figure", {}, make("figcaption", {}, make("span", {class: "metric"}, table.name)), make("div", {class: "search"}, filter, count), inside));
  return (newer) => {
    table = newer;
    show();
  };
}

function compared(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a ?? "").localeCompare(String(b ?? ""));
}

function cell(value) {
  if (typeof value === "number") return make("td", {class: "number"}, Number.isInteger(value) ? wholeText(value) : numberText(value));
  return make("td", {}, make("div", {class: "text"}, String(value ?? "")));
}
