// Time per step as stacked phases, in the order of the loop. What is narrower than a pixel is averaged, and said.

import {canvasIn, chooseSteps, fillOf, stepAxis, stepMarks, ticks} from "./canvas.js";
import {decoded, placeOf} from "./decode.js";
import {hint, make, renewed} from "./dom.js";
import {numberText, percentText, secondsText, wholeText} from "./numbers.js";
import {valueRange} from "./ranges.js";
import {tableBehind} from "./tables.js";
import {color} from "./theme.js";

const SHADES = [1, 0.74, 0.52, 0.36];

export function mountPhases(place, data, run) {
  const keyOf = ({phases}) => JSON.stringify(phases.map(({name, category}) => [name, category]));
  return renewed(place, data, keyOf, (first) => {
    if (first.phases.length) return stack(place, first, run);
    place.append(make("p", {class: "nothing"}, "No phase was recorded."));
    return null;
  });
}

async function stack(place, data, run) {
  const {view} = run;
  let steps = await decoded(data.steps), phases = await phasesOf(data);
  const box = make("div", {class: "drawing"});
  const note = make("p", {class: "note"});
  place.append(legend(phases, run), box, note);
  const LEFT = 54, BOTTOM = 22, TOP = 6;
  let columns = [];
  const xOf = (step, width) => LEFT + ((step - view.first) / (view.last - view.first + 1)) * (width - LEFT);
  const stepOf = (x) => Math.floor(view.first + ((x - LEFT) / (box.clientWidth - LEFT)) * (view.last - view.first + 1));

  const {canvas, redraw} = canvasIn(box, 240, "Seconds of each phase in each step, stacked", (context, width, height) => {
    columns = stacked(width);
    const most = Math.max(1e-9, valueRange(columns.map(({sum}) => sum)).high) * 1.04; // a slow first step is cut off
    const yOf = (seconds) => height - BOTTOM - (seconds / most) * (height - BOTTOM - TOP);
    context.clearRect(0, 0, width, height);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const value of ticks(0, most, 5)) {
      context.fillStyle = color("rule");
      context.fillRect(LEFT, yOf(value), width - LEFT, 1);
      context.fillStyle = color("ink-soft");
      context.fillText(secondsText(value), LEFT - 6, Math.max(7, yOf(value)));
    }
    const fills = phases.map(({category}) => fillOf(context, category));
    const pale = phases.map(({name, shade}) => (view.phase && view.phase !== name ? 0.25 : 1) * SHADES[shade]);
    for (const {x, wide, means, sum: whole} of columns) {
      let sum = 0;
      for (let i = 0; i < phases.length; i++) {
        const top = Math.max(TOP, yOf(sum + means[i])), below = Math.max(TOP, yOf(sum));
        context.globalAlpha = pale[i];
        context.fillStyle = fills[i];
        context.fillRect(x, top, wide, below - top);
        if (phases[i].category === "none" && wide > 2 && below - top > 1) {
          context.strokeStyle = color("rule");
          context.strokeRect(x + 0.5, top + 0.5, wide - 1, below - top - 1);
        } else if (below - top > 3 && i && phases[i].category === phases[i - 1].category) {
          context.fillStyle = color("ground"); // two phases of a kind have a line between them
          context.fillRect(x, below - 1, wide, 1);
        }
        sum += means[i];
      }
      context.globalAlpha = 1;
      context.fillStyle = color("ink-soft");
      if (whole > most) context.fillText(`▲ ${secondsText(whole)}`, Math.max(x + wide / 2 + 20, LEFT + 60), TOP + 4);
    }
    stepAxis(context, LEFT, width, height - BOTTOM, view);
    stepMarks(context, (step) => xOf(step, width), TOP, height - BOTTOM, run);
    const together = columns.length ? Math.max(...columns.map(({count}) => count)) * data.every : 1;
    note.textContent = `Averaged over ranks; phases inside a phase count once.${together > 1 ? ` Each column is the mean of up to ${wholeText(together)} steps.` : ""}`;
  }, run);

  function stacked(width) {
    const low = placeOf(steps, view.first - data.every + 1), high = placeOf(steps, view.last + 1);
    const room = width - LEFT, wide = (room / (view.last - view.first + 1)) * data.every;
    const columns = [];
    for (let i = low; i < high; i++) {
      const x = Math.max(LEFT, wide >= 1 ? xOf(steps[i], width) : Math.floor(xOf(steps[i], width)));
      let column = columns[columns.length - 1];
      if (!column || column.x !== x || wide >= 1) {
        column = {x, wide: wide >= 1 ? Math.max(1, wide - (wide > 4 ? 1 : 0)) : 1, count: 0, step: steps[i], means: new Float64Array(phases.length), sum: 0};
        columns.push(column);
      }
      column.count++;
      for (let p = 0; p < phases.length; p++) column.means[p] += phases[p].values[i];
    }
    for (const column of columns) {
      for (let p = 0; p < phases.length; p++) column.sum += column.means[p] /= column.count;
    }
    return columns;
  }

  canvas.addEventListener("pointermove", (event) => {
    const column = columns.findLast(({x}) => x <= event.offsetX);
    if (!column) return hint(event, null);
    const many = column.count * data.every;
    const rows = phases.map((phase, i) => [phase, column.means[i]]).filter(([, seconds]) => seconds > 0).reverse();
    const title = many > 1 ? `steps ${wholeText(column.step)} to ${wholeText(column.step + many - 1)}, mean` : `step ${wholeText(column.step)}`;
    hint(event, [make("b", {}, `${title}: ${secondsText(column.sum)}`), ...rows.map(([phase, seconds]) => phaseLine(phase, `${secondsText(seconds)}, ${percentText(seconds / column.sum)}`))]);
  });
  canvas.addEventListener("pointerleave", (event) => hint(event, null));
  chooseSteps(canvas, stepOf, (event) => run.change({step: run.nearestStep(stepOf(event.offsetX))}, {enters: true}), run);
  tableBehind(place, "Seconds of each phase by step", () => {
    const low = placeOf(steps, view.first), high = placeOf(steps, view.last + 1);
    const rows = [];
    for (let i = low; i < high; i++) rows.push([wholeText(steps[i]), ...phases.map(({values}) => numberText(values[i]))]);
    return {titles: ["step", ...phases.map(({called}) => called)], rows};
  }, run);
  return async (newer) => {
    [steps, phases, data] = [await decoded(newer.steps), await phasesOf(newer), newer];
    redraw();
  };
}

async function phasesOf(data) {
  const phases = await Promise.all(data.phases.map(async (phase) => ({...phase, called: phase.name || "not in any phase", values: await decoded(phase.seconds)})));
  phases.forEach((phase, at) => (phase.shade = Math.min(3, phases.slice(0, at).filter(({category}) => category === phase.category).length)));
  return phases;
}

function swatch({category, shade}) {
  return make("i", {class: `swatch ${category} shade-${shade}`});
}

function phaseLine(phase, text) {
  return make("div", {class: "phase-line"}, swatch(phase), `${phase.called}: `, make("b", {}, text));
}

/** The phases in the order of the drawing; choosing one pales the others. */
function legend(phases, run) {
  const {view} = run;
  const entries = phases.map((phase) => {
    const choose = () => run.change({phase: view.phase === phase.name ? null : phase.name}, {enters: true});
    const button = make("button", {type: "button", onclick: choose}, swatch(phase), phase.called);
    run.watch(button, () => button.setAttribute("aria-pressed", String(view.phase === phase.name)));
    return button;
  });
  return make("div", {class: "legend", role: "group", "aria-label": "Phases"}, ...entries);
}
