// The tokens of a turn as cells, colored by what engine and trainer say of them; with their texts, if these are recorded.

import {hint, make} from "./dom.js";
import {numberText, wholeText} from "./numbers.js";
import {tableBehind} from "./tables.js";

const COLORINGS = [
  {key: "engine", title: "log-probability in the engine", value: (turn, at) => turn.engine[at], weight: (value) => -value, sign: -1},
  {key: "trainer", title: "log-probability in the trainer", value: (turn, at) => turn.trainer[at], weight: (value) => -value, sign: -1},
  {key: "ratio", title: "ratio of trainer to engine", value: ratioAt, weight: (value) => Math.log(value), low: "trainer lower", high: "trainer higher"},
  {key: "gap", title: "gap of engine and trainer", value: (turn, at) => Math.abs(Math.log(ratioAt(turn, at))), weight: (value) => value, sign: 1},
  {key: "advantage", title: "advantage", value: (turn, at, sample) => (turn.mask[at] === 0 ? 0 : sample.advantage), weight: (value) => value, low: "lower", high: "higher"},
  {key: "mask", title: "trained on", value: (turn, at) => turn.mask[at], weight: (value) => value, sign: 1},
];

function ratioAt(turn, at) {
  const [engine, trainer] = [turn.engine[at], turn.trainer[at]];
  return engine == null || trainer == null ? NaN : Math.exp(trainer - engine);
}

export function tokensIn(turn) {
  return Math.max(turn.tokens.length, turn.engine.length, turn.trainer.length, turn.mask.length);
}

/** The colorings that some token of the samples has a value for. */
export function coloringsOf(samples) {
  const known = ({value}) => samples.some((sample) => sample.turns.some((turn) => {
    for (let at = 0; at < tokensIn(turn); at++) if (isKnown(value(turn, at, sample))) return true;
    return false;
  }));
  return COLORINGS.filter(known);
}

function isKnown(value) {
  return value != null && !Number.isNaN(value);
}

/** What a token of these samples weighs at most, so that samples side by side have the same colors. */
export function mostOf(samples, {value, weight}) {
  let most = 1e-9;
  for (const sample of samples) for (const turn of sample.turns) for (let at = 0; at < tokensIn(turn); at++) {
    const score = value(turn, at, sample);
    if (isKnown(score) && Number.isFinite(weight(score))) most = Math.max(most, Math.abs(weight(score)));
  }
  return most;
}

/** The cells of a turn; `most` is the weight of the darkest one. */
export function tokenCells(turn, sample, coloring, most) {
  const count = tokensIn(turn);
  const cells = Array.from({length: count}, (_, at) => {
    const value = coloring.value(turn, at, sample);
    const cell = make("i", {class: isKnown(value) ? "" : "unknown", "data-at": at}, ...(turn.pieces[at] ? [turn.pieces[at]] : []));
    const weight = isKnown(value) ? coloring.weight(value) : 0;
    if (weight < 0) cell.classList.add("low");
    cell.style.setProperty("--heat", `${Math.round(100 * Math.sqrt(Math.min(1, Math.abs(weight) / most)))}%`);
    return cell;
  });
  const box = make("div", {class: turn.pieces.length ? "tokens texts" : "tokens", role: "img", "aria-label": `${wholeText(count)} tokens by ${coloring.title}`}, ...cells);
  const tell = (event) => hint(event, event.target.dataset.at === undefined ? null : tokenWords(turn, Number(event.target.dataset.at), sample));
  for (const act of ["pointermove", "click"]) box.addEventListener(act, tell);
  box.addEventListener("pointerleave", (event) => hint(event, null));
  return box;
}

function tokenWords(turn, at, sample) {
  const words = [make("b", {}, `token ${wholeText(at)}${turn.tokens[at] === undefined ? "" : ` · id ${turn.tokens[at]}`}`)];
  if (turn.pieces[at] !== undefined) words.push(JSON.stringify(turn.pieces[at]));
  for (const [name, values] of [["engine", turn.engine], ["trainer", turn.trainer]]) {
    if (values[at] != null) words.push(`${name}: probability ${numberText(Math.exp(values[at]))}, log ${numberText(values[at])}`);
  }
  if (isKnown(ratioAt(turn, at))) words.push(`ratio of trainer to engine ${numberText(ratioAt(turn, at))}`);
  if (turn.mask[at] !== undefined) words.push(turn.mask[at] ? "trained on" : "not trained on");
  if (sample.advantage !== null && turn.mask[at] !== 0) words.push(`advantage ${numberText(sample.advantage)}`);
  return words;
}

/** The table of a turn's tokens, for screen readers and for the numbers. */
export function tokenTable(place, turn, run) {
  tableBehind(place, "Tokens", () => ({
    titles: ["token", "id", "text", "engine", "trainer", "ratio", "trained on"],
    rows: Array.from({length: tokensIn(turn)}, (_, at) => {
      const ratio = ratioAt(turn, at);
      const kept = turn.mask[at] === undefined ? "" : turn.mask[at] ? "yes" : "no";
      return [wholeText(at), String(turn.tokens[at] ?? ""), turn.pieces[at] ?? "", numberText(turn.engine[at]), numberText(turn.trainer[at]), isKnown(ratio) ? numberText(ratio) : "", kept];
    }),
  }), run);
}
