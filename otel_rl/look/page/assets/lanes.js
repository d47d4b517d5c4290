// Lanes: many lines of one unit over time, one below the other on one scale, so that the odd one is seen.

import {canvasIn, chooseSteps} from "./canvas.js";
import {placeOf} from "./decode.js";
import {hint, make} from "./dom.js";
import {TIMES} from "./lines.js";
import {numberText, secondsText} from "./numbers.js";
import {tableBehind} from "./tables.js";
import {color} from "./theme.js";

/** Draw `rows` of `{name, xs, ys}`, in which a value holds up to the next x. What it returns has `most`, the highest value, and `update(rows)`. */
export function lanes(place, rows, {label, text}, run) {
  const drawn = {most: highest(rows), update};
  const box = make("div", {class: "drawing"});
  place.append(box);
  const LEFT = 96, TALL = rows.length > 24 ? 12 : 22, BOTTOM = 22;
  let limits = rows.map(({xs}) => longest(xs));

  const {canvas, redraw} = canvasIn(box, rows.length * TALL + BOTTOM, label, (context, width, height) => {
    context.clearRect(0, 0, width, height);
    const [from, to] = run.shownSeconds();
    const xOf = (seconds) => LEFT + ((seconds - from) / Math.max(1e-9, to - from)) * (width - LEFT);
    rows.forEach(({name, xs, ys}, row) => {
      const below = (row + 1) * TALL - 3;
      context.fillStyle = color("line-1");
      const low = Math.max(0, placeOf(xs, from) - 1), high = Math.min(ys.length, placeOf(xs, to) + 1);
      const tops = new Float32Array(Math.max(1, width - LEFT)).fill(NaN);
      for (let i = low; i < high; i++) {
        const until = i + 1 < xs.length ? Math.min(xs[i + 1], xs[i] + limits[row]) : xs[i] + limits[row];
        const left = Math.max(0, Math.floor(xOf(xs[i]) - LEFT)), right = Math.min(tops.length, Math.ceil(xOf(until) - LEFT));
        for (let x = left; x < right; x++) if (!(tops[x] > ys[i])) tops[x] = ys[i];
      }
      for (let x = 0; x < tops.length; x++) {
        const tall = (tops[x] / drawn.most) * (TALL - 5);
        if (tall > 0) context.fillRect(LEFT + x, below - tall, 1, tall);
      }
      context.fillStyle = color("rule");
      context.fillRect(LEFT, below, width - LEFT, 1);
      context.fillStyle = color("ink-soft");
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillText(name, LEFT - 6, below - TALL / 2 + 3, LEFT - 8);
    });
    context.textAlign = "center";
    context.textBaseline = "top";
    const size = TIMES.find((step) => (to - from) / step <= (width - LEFT) / 90) ?? to - from;
    for (let at = Math.ceil(from / size) * size; at <= to; at += size) {
      const x = xOf(at);
      context.fillRect(x, height - BOTTOM, 1, 3);
      context.fillText(secondsText(at), Math.min(width - 24, Math.max(LEFT + 8, x)), height - BOTTOM + 5);
    }
  }, run);

  canvas.addEventListener("pointermove", (event) => {
    const row = Math.floor(event.offsetY / TALL);
    const seconds = timeAt(event.offsetX);
    if (!rows[row] || event.offsetX < LEFT) return hint(event, null);
    const {name, xs, ys} = rows[row];
    const at = xs[placeOf(xs, seconds)] === seconds ? placeOf(xs, seconds) : placeOf(xs, seconds) - 1;
    const value = at >= 0 && seconds - xs[at] <= limits[row] ? ys[at] : undefined;
    hint(event, [`${name}, ${secondsText(seconds)} after the start`, make("b", {}, value === undefined ? "not recorded" : text(value))]);
  });
  canvas.addEventListener("pointerleave", (event) => hint(event, null));
  const timeAt = (x) => {
    const [from, to] = run.shownSeconds();
    return from + ((x - LEFT) / (box.clientWidth - LEFT)) * (to - from);
  };
  chooseSteps(canvas, (x) => run.stepAt(timeAt(x)) ?? run.axis.first, (event) => {
    const step = run.stepAt(timeAt(event.offsetX));
    if (step !== null) run.change({step}, {enters: true});
  }, run);
  tableBehind(place, label, () => {
    const [from, to] = run.shownSeconds();
    const lines = rows.map(({name, xs, ys}) => {
      const part = Array.from(ys.slice(Math.max(0, placeOf(xs, from) - 1), Math.max(1, placeOf(xs, to)))).filter(Number.isFinite);
      const mean = part.reduce((a, b) => a + b, 0) / part.length;
      return [name, ...(part.length ? [Math.min(...part), mean, Math.max(...part)].map(numberText) : ["", "", ""])];
    });
    return {titles: ["name", "lowest", "mean", "highest"], rows: lines};
  }, run);

  function update(newer) {
    rows = newer;
    limits = rows.map(({xs}) => longest(xs));
    drawn.most = highest(rows);
    redraw();
  }
  return drawn;
}

function highest(rows) {
  return rows.reduce((high, {ys}) => ys.reduce((a, b) => (b > a ? b : a), high), 1e-9);
}

/** How long a value holds if nothing follows it: three usual intervals; after that is a gap. */
function longest(xs) {
  const between = Array.from(xs.slice(1), (x, i) => x - xs[i]).sort((a, b) => a - b);
  return between.length ? 3 * Math.max(between[between.length >> 1], between[Math.floor(between.length * 0.9)]) : 1;
}
