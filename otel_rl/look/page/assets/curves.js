// Small multiples: the main metrics first, then all others by search.

import {decoded} from "./decode.js";
import {arrange, make, renewed, whenSeen} from "./dom.js";
import {lineChart} from "./lines.js";
import {foundText, numberText, wholeText} from "./numbers.js";

const MOST_FOUND = 24;

export function mountCurves(place, data, run) {
  return renewed(place, data, ({lines}) => String(lines.length > 0), (first) => {
    if (first.lines.length) return curves(place, first, run);
    place.append(make("p", {class: "nothing"}, "No value was recorded."));
    return null;
  });
}

async function curves(place, data, run) {
  const {view} = run;
  const boxes = [make("div", {class: "multiples"}), make("div", {class: "multiples"})];
  const [main, matching] = boxes.map((box) => curveGrid(box, run));
  const search = make("input", {type: "search", id: "search", "aria-label": "Search all names", autocomplete: "off", spellcheck: "false"});
  const count = make("span", {class: "note", role: "status"});
  const note = make("div", {class: "draw"}), left = make("div", {});
  place.append(boxes[0], note, make("div", {class: "search"}, search, count), boxes[1], left);
  const find = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const others = data.lines.slice(data.main);
    const chosen = data.lines.filter(({name}) => words.every((word) => name.toLowerCase().includes(word)));
    const shown = words.length ? chosen : [];
    const drawn = matching(data, shown.slice(0, MOST_FOUND), resolution(shown));
    count.textContent = words.length
      ? foundText(chosen.length, data.lines.length, MOST_FOUND)
      : others.length ? names(others) : "";
    return drawn;
  };
  const update = (newer) => {
    data = newer;
    search.placeholder = data.lines.length > 1 ? `Search all ${data.lines.length} names` : "Search the names";
    const first = data.lines.slice(0, data.main);
    note.replaceChildren(resolution(first));
    left.replaceChildren(data.left_out ? make("p", {class: "note"}, `${wholeText(data.left_out)} more names are in the archive, but not on this page.`) : "");
    return Promise.all([main(data, first), find()]);
  };
  search.addEventListener("input", find);
  await update(data);
  let shown = null;
  run.watch(search, () => {
    if (view.name === shown) return;
    shown = view.name;
    const line = data.lines.find(({name}) => name === shown);
    if (line && data.lines.indexOf(line) >= data.main && search.value !== shown) {
      search.value = shown;
      find();
    }
    for (const figure of place.querySelectorAll("figure")) figure.classList.toggle("chosen", figure.dataset.name === shown);
  });
  return update;
}

/** Curves in a box: a curve stays while its name does, with what is open in it. */
export function curveGrid(box, run) {
  const shown = new Map();
  return (data, lines, ...behind) => {
    const wanted = new Set(lines.map(({name}) => name));
    for (const name of shown.keys()) if (!wanted.has(name)) shown.delete(name);
    const updates = lines.map((line) => {
      if (shown.has(line.name)) return shown.get(line.name).update(data, line);
      shown.set(line.name, curve(data, line, run));
      return null;
    });
    arrange(box, [...lines.map(({name}) => shown.get(name).figure), ...behind]);
    return Promise.all(updates);
  };
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

function curve(data, line, run) {
  const readout = make("span", {class: "readout", "aria-hidden": "true", title: "the last shown value"});
  const title = make("figcaption", {}, make("span", {class: "metric", title: line.name}, ...breakable(line.name)), readout);
  const place = make("div", {class: "room"});
  const bad = make("p", {class: "note bad", hidden: true});
  const figure = make("figure", {"data-name": line.name}, title, place, bad);
  let isSeen = false, chart = null;
  const draw = async () => {
    const [xs, ys] = await Promise.all([decoded(data.axes[line.axis]), decoded(line.values)]);
    const {count, first} = line.not_finite;
    if (!xs.length) {
      chart = null;
      place.replaceChildren(make("p", {class: "nothing"}, `None of its ${wholeText(line.count)} values is a finite number.`));
    } else {
      const means = line.means && {xs: await decoded(line.means.steps), ys: await decoded(line.means.values)};
      const label = `${line.name}: ${numberText(ys[0])} at step ${wholeText(xs[0])}, ${numberText(ys[ys.length - 1])} at step ${wholeText(xs[xs.length - 1])}`;
      const options = {label, bad: line.not_finite, readout, every: line.every, means};
      if (chart) chart.update([{name: line.name, xs, ys}], options);
      else {
        place.replaceChildren();
        chart = lineChart(place, [{name: line.name, xs, ys}], options, run);
      }
      bad.hidden = !count;
      if (count) bad.textContent = `${wholeText(count)} values are not finite, the first at step ${wholeText(first[0][0])}`;
    }
    place.classList.remove("room");
  };
  whenSeen(figure, () => {
    isSeen = true;
    draw();
  });
  return {
    figure,
    update: (newer, its) => {
      if (its === line) return null;
      [data, line] = [newer, its];
      return isSeen ? draw() : null;
    },
  };
}
