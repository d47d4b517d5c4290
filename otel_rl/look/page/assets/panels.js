// Memory, engines, GPUs and host, goodput: lines side by side, or what was not recorded.

import {curveGrid, resolution} from "./curves.js";
import {decoded} from "./decode.js";
import {make, renewed, whenSeen} from "./dom.js";
import {lanes} from "./lanes.js";
import {lineChart} from "./lines.js";
import {bytesText, numberText} from "./numbers.js";

const MOST_EVIDENCE = 8;

export function mountMemory(place, data, run) {
  const keyOf = ([memory, machines]) => JSON.stringify([memory.map(({name}) => name), machines.some(isMemory)]);
  return renewed(place, data, keyOf, async ([memory, machines]) => {
    const again = memory.length ? await memoryLines(place, memory, run) : null;
    if (!again) place.append(make("p", {class: "nothing"}, "No memory was recorded at the borders of phases."));
    if (!machines.some(isMemory)) place.append(make("p", {class: "nothing"}, "No memory of GPUs or of the host was measured."));
    return ([newer]) => again?.(newer);
  });
}

function isMemory({group}) {
  return group.includes("mem");
}

async function memoryLines(place, memory, run) {
  const figure = panel(place, "Memory of the trainer's processes at the borders of phases");
  const options = ([{every}]) => ({text: bytesText, height: 220, every, low: 0, label: "Memory of the trainer's processes by phase"});
  const chart = lineChart(figure, await stepLines(memory), options(memory), run);
  const note = make("p", {class: "note"});
  figure.append(note);
  const say = ([{every}]) => (note.textContent = every > 1 ? `The highest of each ${every} steps and of all ranks.` : "The highest of all ranks.");
  say(memory);
  return async (newer) => {
    chart.update(await stepLines(newer), options(newer));
    say(newer);
  };
}

/** Lines over steps, as `lineChart` draws them. */
function stepLines(lines) {
  return Promise.all(lines.map(async ({name, category, steps, values}) => ({name, xs: await decoded(steps), ys: await decoded(values), color: category})));
}

export function mountMachines(place, data, run) {
  const keyOf = (groups) => JSON.stringify(groups.map(({group, lines}) => [group, lines.map(({name}) => name)]));
  return renewed(place, data, keyOf, (groups) => {
    if (!groups.some(({group}) => group.includes(".gpu."))) place.append(make("p", {class: "nothing"}, "No GPU was seen."));
    if (!groups.length) {
      place.append(make("p", {class: "nothing"}, "Nothing was measured on the machines."));
      return null;
    }
    const box = make("div", {class: "multiples wide"});
    place.append(box);
    const updates = groups.map((group) => measured(panel(box, group.unit ? `${group.title}, ${group.unit}` : group.title), group, run));
    place.append(make("p", {class: "note"}, "Over the time since the start of the run; lowest and highest of each interval."));
    return (newer) => Promise.all(newer.map((group, at) => updates[at](group)));
  });
}

/** The lines of a group, or its lanes if they are many; drawn when they are seen. */
function measured(figure, group, run) {
  const text = (value) => `${numberText(value)} ${group.unit}`;
  const note = make("p", {class: "note"});
  let drawn = null, isSeen = false;
  const draw = async () => {
    const lines = await Promise.all(group.lines.map(async ({name, times, values}) => ({name: shortened(name), xs: await decoded(times), ys: await decoded(values)})));
    if (drawn) drawn.update(lines);
    else if (lines.length > 3) drawn = lanes(figure, lines, {label: group.title, text}, run);
    else drawn = lineChart(figure, lines, {by: "time", height: 120, low: 0, label: group.title}, run);
    if (lines.length < 4) return;
    figure.append(note);
    note.textContent = `Each row is from 0 to ${text(drawn.most)}.`;
  };
  whenSeen(figure, () => {
    isSeen = true;
    draw();
  });
  return (newer) => {
    group = newer;
    return isSeen ? draw() : null;
  };
}

/** `hardware/node.0.gpu.3.util` is GPU 3 of node 0. */
function shortened(name) {
  const gpu = /^(?:hardware|ray)\/node\.(\d+)\.gpu\.(\d+)\.\w+$/.exec(name);
  if (gpu) return `node ${gpu[1]} GPU ${gpu[2]}`;
  const host = /^(?:hardware|ray)\/node\.(\d+)\.\w+$/.exec(name);
  return host ? `node ${host[1]}` : name;
}

export function mountEngines(place, data, run) {
  const keyOf = ({engines, what}) => JSON.stringify([what, engines.map(({name}) => name)]);
  return renewed(place, data, keyOf, async (first) => {
    if (!first.engines.length) {
      place.append(make("p", {class: "nothing"}, "No engine or worker beside the trainer was recorded."));
      return null;
    }
    const label = `Open ${first.what} of each process over time`;
    const drawn = lanes(place, await loads(first), {label, text: (value) => `${numberText(value)} open on average`}, run);
    const note = make("p", {class: "note"});
    place.append(note);
    const say = ({what, engines, of}) => {
      const notes = [`Open ${what} of each process, side by side on one scale up to ${numberText(drawn.most)}.`];
      if (of > engines.length) notes.push(`The ${engines.length} of ${of} with the most work.`);
      note.textContent = notes.join(" ");
    };
    say(first);
    return async (newer) => {
      drawn.update(await loads(newer));
      say(newer);
    };
  });
}

async function loads({edges, engines}) {
  const xs = await decoded(edges);
  return Promise.all(engines.map(async ({name, load}) => ({name, xs, ys: await decoded(load)})));
}

export function mountTrajectories(place, data, run) {
  return renewed(place, data, (lines) => JSON.stringify(lines.map(({name}) => name)), async (first) => {
    if (!first.length) return null;
    const figure = panel(place, "Trajectories by what became of them");
    const options = ([{every}]) => ({height: 150, low: 0, label: "Trajectories by what became of them", every});
    const chart = lineChart(figure, await stepLines(first), options(first), run);
    const note = make("p", {class: "note", hidden: true});
    figure.append(note);
    const say = ([{every}]) => {
      note.hidden = every < 2;
      note.textContent = `Of each ${every} steps together.`;
    };
    say(first);
    return async (newer) => {
      chart.update(await stepLines(newer), options(newer));
      say(newer);
    };
  });
}

export function mountGoodput(place, curves, run) {
  const linesOf = ({lines}) => lines.filter(({name}) => /goodput/i.test(name));
  return renewed(place, curves, (data) => String(linesOf(data).length > 0), (data) => {
    if (linesOf(data).length) return evidence(place, data, run, linesOf);
    place.append(make("p", {class: "nothing"}, "No goodput was recorded."));
    return null;
  });
}

/** How to draw the curves that findings of a part are about. */
export function evidenceOf(part) {
  return (place, data, run) => {
    const linesOf = ([{lines}, {evidence: names}]) => lines.filter(({name}) => names[part]?.includes(name));
    return renewed(place, data, (both) => String(linesOf(both).length > 0), (both) => {
      if (!linesOf(both).length) return null;
      const draw = evidence(place, both[0], run, () => linesOf(both));
      return (newer) => draw(newer[0], linesOf(newer));
    });
  };
}

function evidence(place, curves, run, linesOf) {
  const box = make("div", {class: "multiples"}), note = make("div", {class: "draw"});
  place.append(box, note);
  const draw = curveGrid(box, run);
  const update = (data, lines = linesOf(data)) => {
    const shown = lines.slice(0, MOST_EVIDENCE);
    note.replaceChildren(resolution(shown));
    return draw(data, shown);
  };
  update(curves);
  return update;
}

function panel(place, title) {
  const figure = make("figure", {}, make("figcaption", {}, make("span", {class: "metric"}, title)));
  place.append(figure);
  return figure;
}
