// Memory, engines, GPUs and host, goodput: lines side by side, or what was not recorded.

import {curve, resolution} from "./curves.js";
import {decoded} from "./decode.js";
import {byId, make, whenSeen} from "./dom.js";
import {lanes} from "./lanes.js";
import {lineChart} from "./lines.js";
import {bytesText, numberText} from "./numbers.js";

export async function mountMemory(data, machines) {
  const place = byId("draw-memory");
  if (data.length) {
    const lines = await Promise.all(data.map(async ({name, category, steps, values}) => ({name, xs: await decoded(steps), ys: await decoded(values), color: category})));
    const figure = panel(place, "Memory of the trainer's processes at the borders of phases");
    lineChart(figure, lines, {text: bytesText, height: 220, every: data[0].every, low: 0, label: "Memory of the trainer's processes by phase"});
    if (data[0].every > 1) figure.append(make("p", {class: "note"}, `The highest of each ${data[0].every} steps and of all ranks.`));
    else figure.append(make("p", {class: "note"}, "The highest of all ranks."));
  } else {
    place.append(make("p", {class: "nothing"}, "No memory was recorded at the borders of phases."));
  }
  if (!machines.some(({group}) => group.includes("mem"))) place.append(make("p", {class: "nothing"}, "No memory of GPUs or of the host was measured."));
}

export async function mountMachines(groups) {
  const place = byId("draw-machines");
  if (!groups.some(({group}) => group.includes(".gpu."))) place.append(make("p", {class: "nothing"}, "No GPU was seen."));
  if (!groups.length) {
    place.append(make("p", {class: "nothing"}, "Nothing was measured on the machines."));
    return;
  }
  const box = make("div", {class: "multiples wide"});
  place.append(box);
  for (const group of groups) {
    const figure = panel(box, group.unit ? `${group.title}, ${group.unit}` : group.title);
    whenSeen(figure, async () => {
      const lines = await Promise.all(group.lines.map(async ({name, times, values}) => ({name: shortened(name), xs: await decoded(times), ys: await decoded(values)})));
      const text = (value) => `${numberText(value)} ${group.unit}`;
      if (lines.length > 3) figure.append(make("p", {class: "note"}, `Each row is from 0 to ${text(lanes(figure, lines, {label: group.title, text}))}.`));
      else lineChart(figure, lines, {by: "time", height: 120, low: 0, label: group.title});
    });
  }
  place.append(make("p", {class: "note"}, "Over the time since the start of the run; lowest and highest of each interval."));
}

/** `hardware/node.0.gpu.3.util` is GPU 3 of node 0. */
function shortened(name) {
  const gpu = /^(?:hardware|ray)\/node\.(\d+)\.gpu\.(\d+)\.\w+$/.exec(name);
  if (gpu) return `node ${gpu[1]} GPU ${gpu[2]}`;
  const host = /^(?:hardware|ray)\/node\.(\d+)\.\w+$/.exec(name);
  return host ? `node ${host[1]}` : name;
}

export async function mountEngines(data) {
  const place = byId("draw-engines");
  if (!data.engines.length) {
    place.append(make("p", {class: "nothing"}, "No engine or worker beside the trainer was recorded."));
    return;
  }
  const xs = await decoded(data.edges);
  const rows = await Promise.all(data.engines.map(async ({name, load}) => ({name, xs, ys: await decoded(load)})));
  const most = lanes(place, rows, {label: `Open ${data.what} of each process over time`, text: (value) => `${numberText(value)} open on average`});
  const notes = [`Open ${data.what} of each process, side by side on one scale up to ${numberText(most)}.`];
  if (data.of > rows.length) notes.push(`The ${rows.length} of ${data.of} with the most work.`);
  place.append(make("p", {class: "note"}, notes.join(" ")));
}

export async function mountTrajectories(data) {
  if (!data.length) return;
  const lines = await Promise.all(data.map(async ({name, steps, values}) => ({name, xs: await decoded(steps), ys: await decoded(values)})));
  const figure = panel(byId("draw-data"), "Trajectories by what became of them");
  const every = data[0].every;
  lineChart(figure, lines, {height: 150, low: 0, label: "Trajectories by what became of them", every});
  if (every > 1) figure.append(make("p", {class: "note"}, `Of each ${every} steps together.`));
}

export function mountGoodput(curves) {
  const lines = curves.lines.filter(({name}) => /goodput/i.test(name));
  if (!lines.length) byId("draw-goodput").append(make("p", {class: "nothing"}, "No goodput was recorded."));
  else mountEvidence("goodput", curves, lines.map(({name}) => name));
}

/** The curves that findings of a part are about. */
export function mountEvidence(part, curves, names) {
  const lines = curves.lines.filter(({name}) => names.includes(name)).slice(0, 8);
  if (!lines.length) return;
  const box = make("div", {class: "multiples"});
  box.append(...lines.map((line) => curve(curves, line)));
  byId(`draw-${part}`).append(box, resolution(lines));
}

function panel(place, title) {
  const figure = make("figure", {}, make("figcaption", {}, make("span", {class: "metric"}, title)));
  place.append(figure);
  return figure;
}
