// Small multiples: the main metrics first, then all others by search.

import {decoded} from "./decode.js";
import {byId, make, whenSeen} from "./dom.js";
import {lineChart} from "./lines.js";
import {numberText, wholeText} from "./numbers.js";
import {view, watch} from "./state.js";

const MOST_FOUND = 24;

export async function mountCurves(data) {
  const place = byId("draw-curves");
  if (!data.lines.length) {
    place.append(make("p", {class: "nothing"}, "No value was recorded."));
    return;
  }
  const main = make("div", {class: "multiples"});
  const matching = make("div", {class: "multiples"});
  const search = make("input", {type: "search", id: "search", placeholder: data.lines.length > 1 ? `Search all ${data.lines.length} names` : "Search the names", "aria-label": "Search all names", autocomplete: "off", spellcheck: "false"});
  const count = make("span", {class: "note", role: "status"});
  place.append(main, resolution(data.lines.slice(0, data.main)), make("div", {class: "search"}, search, count), matching);
  data.lines.slice(0, data.main).forEach((line) => main.append(curve(data, line)));
  if (data.left_out) place.append(make("p", {class: "note"}, `${wholeText(data.left_out)} more names are in the archive, but not in this file.`));
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const others = data.lines.slice(data.main);
    const chosen = data.lines.filter(({name}) => words.every((word) => name.toLowerCase().includes(word)));
    const shown = words.length ? chosen : others.slice(0, 0);
    matching.replaceChildren(...shown.slice(0, MOST_FOUND).map((line) => curve(data, line)), resolution(shown));
    count.textContent = words.length
      ? `${wholeText(chosen.length)} of ${wholeText(data.lines.length)} names${chosen.length > MOST_FOUND ? `, the first ${MOST_FOUND} are drawn` : ""}`
      : others.length ? names(others) : "";
  };
  search.addEventListener("input", show);
  show();
  let shown = null;
  watch(() => {
    if (view.name === shown) return;
    shown = view.name;
    const line = data.lines.find(({name}) => name === shown);
    if (line && data.lines.indexOf(line) >= data.main && search.value !== shown) {
      search.value = shown;
      show();
    }
    for (const figure of place.querySelectorAll("figure")) figure.classList.toggle("chosen", figure.dataset.name === shown);
  });
}

/** Which names there are, in one line: what stands before the first slash, with how many. */
function names(lines) {
  const counts = new Map();
  for (const {name} of lines) {
    const group = name.includes("/") ? `${name.split("/")[0]}/…` : name;
    counts.set(group, (counts.get(group) ?? 0) + 1);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  const listed = sorted.slice(0, 8).map(([group, many]) => (many > 1 ? `${group} (${many})` : group));
  return `${lines.length} more: ${listed.join(", ")}${sorted.length > 8 ? ", …" : ""}`;
}

/** How long the ranges of lines are whose values are not all in the file. */
export function resolution(lines) {
  const every = Math.max(1, ...lines.map((line) => line.every));
  const wide = Math.max(0, ...lines.map(({means}) => means?.every ?? 0));
  const text = `Pale: the lowest and the highest value of each ${wholeText(every)} steps. Dark: the mean of each ${wholeText(wide)}.`;
  return make("p", {class: "note"}, every > 1 ? text : "");
}

/** A long name is broken behind a slash. */
function breakable(name) {
  return name.split(/(?<=[/.])/).flatMap((part, at) => (at ? [make("wbr"), part] : [part]));
}

export function curve(data, line) {
  const readout = make("span", {class: "readout", "aria-hidden": "true", title: "the last shown value"});
  const title = make("figcaption", {}, make("span", {class: "metric", title: line.name}, ...breakable(line.name)), readout);
  const figure = make("figure", {"data-name": line.name}, title);
  const place = make("div", {class: "room"});
  figure.append(place);
  whenSeen(figure, async () => {
    const [xs, ys] = await Promise.all([decoded(data.axes[line.axis]), decoded(line.values)]);
    place.classList.remove("room");
    if (!xs.length) {
      place.append(make("p", {class: "nothing"}, `None of its ${wholeText(line.count)} values is a finite number.`));
      return;
    }
    const means = line.means && {xs: await decoded(line.means.steps), ys: await decoded(line.means.values)};
    const ends = `${line.name}: ${numberText(ys[0])} at step ${wholeText(xs[0])}, ${numberText(ys[ys.length - 1])} at step ${wholeText(xs[xs.length - 1])}`;
    lineChart(place, [{name: line.name, xs, ys}], {label: ends, bad: line.not_finite, readout, every: line.every, means});
    const {count, first} = line.not_finite;
    if (count) figure.append(make("p", {class: "note bad"}, `${wholeText(count)} values are not finite, the first at step ${wholeText(first[0][0])}`));
  });
  return figure;
}
