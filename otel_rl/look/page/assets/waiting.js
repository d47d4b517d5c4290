// Ranks × steps: by how many seconds each rank fell behind the others, so that they had to wait for it.

import {canvasIn, chooseSteps, stepAxis, stepMarks, ticks} from "./canvas.js";
import {decoded} from "./decode.js";
import {hint, make, renewed} from "./dom.js";
import {secondsText, wholeText} from "./numbers.js";
import {tableBehind} from "./tables.js";
import {color} from "./theme.js";

const MOST_ROWS = 420;

export function mountWaiting(place, data, run) {
  return renewed(place, data, ({ranks}) => JSON.stringify(ranks), (first) => {
    if (first.ranks.length > 1) return cellsOfRanks(place, first, run);
    const text = first.ranks.length ? "One rank: nobody waits for another one." : "No phase of a rank was recorded.";
    place.append(make("p", {class: "nothing"}, text));
    return null;
  });
}

async function cellsOfRanks(place, data, run) {
  const {view} = run;
  let cells = await decoded(data.cells), most = highest(cells);
  const box = make("div", {class: "drawing"});
  const scale = make("div", {class: "scale"});
  const note = make("p", {class: "note"});
  place.append(scale, box, note);
  const LEFT = 54, BOTTOM = 22;
  const per = Math.ceil(data.ranks.length / MOST_ROWS);
  const rows = Math.ceil(data.ranks.length / per);
  const tall = Math.max(1, Math.min(22, Math.floor(MOST_ROWS / rows)));
  const stepOf = (x) => Math.floor(view.first + ((x - LEFT) / (box.clientWidth - LEFT)) * (view.last - view.first + 1));
  const rowOf = (y) => Math.min(rows - 1, Math.max(0, Math.floor(y / tall)));
  const placeAt = (step) => Math.floor((step - data.first) / data.every);
  /** The rank of a row that is farthest behind, and by how much: NaN if none was recorded. */
  const worst = (row, place) => {
    let cell = [row * per, NaN];
    for (let at = row * per; at < Math.min(data.ranks.length, (row + 1) * per); at++) {
      const value = cells[at * data.width + place];
      if (!Number.isNaN(value) && !(value <= cell[1])) cell = [at, value];
    }
    return cell;
  };

  const {canvas, redraw} = canvasIn(box, () => rows * tall + BOTTOM, "Seconds by which each rank fell behind, by step", (context, width) => {
    const bottom = rows * tall;
    context.clearRect(0, 0, width, bottom + BOTTOM);
    const span = view.last - view.first + 1, room = width - LEFT;
    const colors = Array.from({length: 64}, (_, i) => heat(i / 63));
    for (let row = 0; row < rows; row++) {
      for (let x = 0; x < room;) {
        const step = Math.floor(view.first + (x / room) * span);
        const place = Math.floor((step - data.first) / data.every);
        const next = Math.max(x + 1, Math.min(room, (((place + 1) * data.every + data.first - view.first) / span) * room));
        let value = NaN;
        const until = Math.floor((Math.floor(view.first + ((next - 0.01) / room) * span) - data.first) / data.every);
        for (let at = place; at <= until && at < data.width; at++) {
          const delay = worst(row, at)[1];
          if (!(delay <= value)) value = Number.isNaN(delay) ? value : delay; // the highest of those in a pixel
        }
        if (!Number.isNaN(value)) {
          context.fillStyle = colors[Math.min(63, Math.round((value / most) * 63))];
          context.fillRect(LEFT + x, row * tall, next - x + (next - x > 4 ? -0.5 : 0.5), tall > 3 ? tall - 1 : tall);
        }
        x = next;
      }
    }
    context.fillStyle = color("ink-soft");
    context.textAlign = "right";
    context.textBaseline = "middle";
    const labels = tall >= 11 ? data.ranks.keys() : ticks(0, rows - 1, 12, true);
    for (const row of labels) context.fillText(`rank ${data.ranks[row * per]}`, LEFT - 6, Math.max(6, row * tall + tall / 2));
    stepAxis(context, LEFT, width, bottom, view);
    stepMarks(context, (step) => LEFT + ((step - view.first) / span) * room, 0, bottom, run);
    const chosen = view.role ? -1 : Math.floor(data.ranks.indexOf(view.rank) / per);
    if (chosen >= 0) {
      context.strokeStyle = color("chosen");
      context.lineWidth = 2;
      context.strokeRect(LEFT, chosen * tall - 1, room - 1, Math.max(3, tall));
    }
  }, run);
  const words = () => {
    const notes = ["A rank that merely waits does not fall behind."];
    if (data.every > 1) notes.push(`Each cell is the worst of ${data.every} steps.`);
    if (per > 1) notes.push(`Each line is the worst of ${per} ranks.`);
    if (data.of > data.ranks.length) notes.push(`The ${data.ranks.length} of ${data.of} ranks that fell behind most.`);
    note.textContent = notes.join(" ");
    scale.replaceChildren("0 s behind", make("i", {class: "heat"}), `${secondsText(most)} or more`);
  };
  words();

  canvas.addEventListener("pointermove", (event) => {
    const row = rowOf(event.offsetY), step = stepOf(event.offsetX);
    if (event.offsetX < LEFT || event.offsetY > rows * tall) return hint(event, null);
    const [at, value] = worst(row, placeAt(step));
    const begins = data.first + Math.floor((step - data.first) / data.every) * data.every;
    const title = data.every > 1 ? `steps ${wholeText(begins)} to ${wholeText(begins + data.every - 1)}` : `step ${wholeText(step)}`;
    hint(event, [`rank ${data.ranks[at]}, ${title}`, make("b", {}, Number.isNaN(value) ? "not recorded" : `${secondsText(value)} behind`)]);
  });
  canvas.addEventListener("pointerleave", (event) => hint(event, null));
  chooseSteps(canvas, stepOf, (event) => {
    const step = run.nearestStep(stepOf(event.offsetX));
    run.change({step, rank: data.ranks[worst(rowOf(event.offsetY), placeAt(step))[0]], role: ""}, {enters: true});
  }, run);
  tableBehind(place, "Seconds behind by rank", () => ({
    titles: ["rank", "worst in these steps", "mean"],
    rows: data.ranks.map((rank, row) => {
      let sum = 0, count = 0, most = 0;
      for (let at = 0; at < data.width; at++) {
        const value = cells[row * data.width + at], step = data.first + at * data.every;
        if (Number.isNaN(value) || step + data.every <= view.first || step > view.last) continue;
        sum += value;
        count++;
        most = Math.max(most, value);
      }
      return [String(rank), count ? secondsText(most) : "", count ? secondsText(sum / count) : ""];
    }),
  }), run);
  return async (newer) => {
    [cells, data] = [await decoded(newer.cells), newer];
    most = highest(cells);
    words();
    redraw();
  };
}

/** The value that is darkest: one that few cells exceed, so that one bad step does not pale all others. */
function highest(cells) {
  const known = cells.filter((delay) => delay > 0).sort();
  return known.length ? Math.max(known[Math.floor(known.length * 0.995)], 1e-9) : 1e-9;
}

/** From pale to dark, in steps of equal lightness; readable without colors. */
function heat(share) {
  const [from, to] = [color("heat-low"), color("heat-high")].map((rgb) => rgb.match(/[\d.]+/g).map(Number));
  return `rgb(${from.slice(0, 3).map((low, i) => Math.round(low + (to[i] - low) * Math.sqrt(share))).join(",")})`;
}
