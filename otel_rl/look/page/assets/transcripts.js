// Samples: a list by step and group, and the chosen one turn by turn, next to another one of the same prompt.

import {make} from "./dom.js";
import {numberText, secondsText, wholeText} from "./numbers.js";
import {coloringsOf, mostOf, tokenCells, tokenTable, tokensIn} from "./tokens.js";

const FACTS = [
  ["step", "step", wholeText], ["group", "group", (value) => (typeof value === "number" ? String(value) : value)],
  ["reward", "reward", numberText], ["advantage", "advantage", numberText], ["gap", "gap", numberText], ["staleness", "staleness", wholeText],
];

/** The samples of a run; what is returned takes over newer ones. */
export function transcriptList(place, samples, command, run) {
  const {view} = run;
  const inside = make("div", {class: "scrolled sample-list", tabindex: "0", role: "region", "aria-label": "Samples"});
  const note = make("p", {class: "note", role: "status"});
  const detail = make("div", {});
  place.append(note, inside, detail);
  const chosen = {beside: null, coloring: null};
  let shown = "";
  const show = (isNewer) => {
    const inRange = samples.filter(({step}) => (view.step === null ? step >= view.first && step <= view.last : step === view.step));
    const sample = samples.find(({id}) => id === view.sample) ?? inRange.find(({step}) => step === inRange.at(-1).step);
    const key = [samples.length, inRange.length, inRange[0]?.id, sample?.id].join();
    if (key === shown) return;
    const isRead = isNewer && sample && detail.dataset.sample === sample.id; // whoever reads it goes on reading
    shown = key;
    const facts = FACTS.filter(([name]) => samples.some((each) => each[name] !== null));
    const steps = [...new Set(samples.map(({step}) => step))].map(wholeText).join(", ");
    note.textContent = `${wholeText(inRange.length)} of the ${wholeText(samples.length)} samples on this page, which are extremes of steps ${steps}. ${command} shows all.`;
    const [top, isFocused] = [inside.scrollTop, inside.contains(document.activeElement)];
    inside.replaceChildren(sampleList(inRange, sample, facts, run));
    inside.hidden = !inRange.length;
    const row = inside.querySelector("tr.chosen");
    if (isFocused) row?.querySelector("button").focus({preventScroll: true});
    if (isRead) inside.scrollTop = top;
    else if (row) inside.scrollTop = row.offsetTop - inside.clientHeight / 2;
    if (isRead) return;
    detail.dataset.sample = sample?.id ?? "";
    chosen.beside = null;
    drawDetail(detail, samples, sample, chosen, run);
  };
  run.watch(inside, () => show(false));
  show(false);
  return (newer, saying) => {
    [samples, command] = [newer, saying];
    show(true);
  };
}

function sampleList(samples, chosen, facts, run) {
  const head = [...facts.map(([, title]) => make("th", {scope: "col", class: "number"}, title)), make("th", {scope: "col"}, "last answer")];
  const rows = samples.map((sample) => {
    const enter = () => run.change({sample: sample.id}, {enters: true});
    const cells = facts.map(([key, , text]) => make("td", {class: "number"}, sample[key] === null ? "" : text(sample[key])));
    const answer = sample.turns.findLast(({author}) => author === "assistant" || author === "completion") ?? sample.turns.at(-1);
    const begin = answer.text.slice(0, 160) || answer.calls[0] || "(empty)";
    const name = make("td", {}, make("button", {type: "button", class: "begin", "aria-pressed": String(sample === chosen)}, begin));
    return make("tr", {class: sample === chosen ? "chosen" : null, onclick: enter}, ...cells, name);
  });
  return make("table", {}, make("caption", {class: "unseen"}, "Samples"), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
}

/** The chosen sample, and what can be put next to it. */
function drawDetail(detail, samples, sample, chosen, run) {
  if (!sample) return detail.replaceChildren();
  const again = () => drawDetail(detail, samples, sample, chosen, run);
  const both = chosen.beside ? [sample, chosen.beside] : [sample];
  const colorings = coloringsOf(both);
  const coloring = colorings.find(({key}) => key === chosen.coloring) ?? colorings[0];
  const most = coloring ? mostOf(both, coloring) : 1;
  detail.replaceChildren(
    samePrompt(samples, sample, chosen, again),
    coloring ? colorChoice(colorings, coloring, most, (key) => { chosen.coloring = key; again(); }) : "",
    make("div", {class: "transcripts"}, ...both.map((each) => transcript(each, coloring, most, run))),
  );
}

/** The samples of the same prompt in all steps, with their rewards: one of them is shown next to the chosen one. */
function samePrompt(samples, sample, chosen, again) {
  const others = samples.filter((other) => other !== sample && other.prompt === sample.prompt);
  if (!others.length) return "";
  const buttons = others.map((other) => {
    const reward = other.reward === null ? "" : `: ${numberText(other.reward)}`;
    const set = () => {
      chosen.beside = chosen.beside === other ? null : other;
      again();
    };
    return make("button", {type: "button", "aria-pressed": String(chosen.beside === other), onclick: set}, `step ${wholeText(other.step)} #${other.number}${reward}`);
  });
  return make("div", {class: "legend same"}, make("span", {}, "The same prompt in other steps, with its reward:"), ...buttons);
}

function colorChoice(colorings, chosen, most, choose) {
  const options = colorings.map(({key, title}) => make("option", {value: key, selected: key === chosen.key}, title));
  const select = make("select", {"aria-label": "Color tokens by", onchange: () => choose(select.value)}, ...options);
  const ends = chosen.low ? [chosen.low, make("i", {class: "heat both"}), chosen.high] : ["0", make("i", {class: "heat"}), numberText(chosen.sign * most)];
  return make("div", {class: "scale"}, make("span", {}, "Color tokens by"), select, ...ends);
}

function transcript(sample, coloring, most, run) {
  const title = [`step ${wholeText(sample.step)}`, sample.group === null ? "" : `group ${sample.group}`, `#${sample.number}`];
  const article = make("article", {}, make("h3", {}, title.filter(Boolean).join(" · ")), make("p", {class: "note"}, factsOf(sample).join(" · ")));
  for (const turn of sample.turns) {
    const block = make("div", {class: "turn"}, make("p", {class: "author"}, `${turn.author} ${turn.name}`.trim()));
    if (turn.text || !turn.calls.length) block.append(make("div", {class: "text", tabindex: "0", role: "region", "aria-label": turn.author}, turn.text));
    for (const call of turn.calls) block.append(make("div", {class: "text"}, `→ ${call}`));
    if (turn.cut) block.append(make("p", {class: "note"}, `${wholeText(turn.cut)} more characters were not recorded.`));
    if (coloring && tokensIn(turn)) {
      block.append(tokenCells(turn, sample, coloring, most));
      if (turn.moreTokens) block.append(make("p", {class: "note"}, `${wholeText(turn.moreTokens)} more tokens are not on this page.`));
      tokenTable(block, turn, run);
    }
    article.append(block);
  }
  if (sample.more) article.append(make("p", {class: "note"}, `${wholeText(sample.more)} more turns are not on this page.`));
  return article;
}

function factsOf(sample) {
  const parts = Object.entries(sample.components).map(([name, value]) => `${name} ${numberText(value)}`);
  const facts = [];
  if (sample.reward !== null) facts.push(`reward ${numberText(sample.reward)}`);
  if (parts.length) facts.push(parts.join(", "));
  for (const key of ["advantage", "loss", "gap"]) if (sample[key] !== null) facts.push(`${key} ${numberText(sample[key])}`);
  if (sample.version !== null) facts.push(`version ${sample.version}`);
  if (sample.staleness !== null) facts.push(`staleness ${sample.staleness}`);
  if (sample.dropped) facts.push(`dropped: ${sample.dropped}`);
  for (const [at, name] of ["prompt", "row"].entries()) if (sample.names[at]) facts.push(`${name} ${sample.names[at]}`);
  for (const [part, seconds] of Object.entries(sample.seconds)) facts.push(`${part} ${secondsText(seconds)}`);
  facts.push(sample.command);
  return facts;
}
