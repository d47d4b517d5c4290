// What is known of the selected span, and the table of the longest spans in view. Recorded text is only ever text.

import {numberText, secondsText, wholeText} from "./numbers.js";
import {timelineLane, timelineLongest, timelineParent} from "./timeline_index.js";
import {timelinePrinted} from "./timeline_printed.js";
import {timelineMoment, timelinePlain, timelineProcess, timelineTrackName} from "./timeline_words.js";

const TIMELINE_TABLE = 20;

/** Return an element with a class, text and children. */
export function timelineElement(tag, { className = "", text = "", ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Return what is known of a span, as pairs of a name and a text. */
export function timelineFacts(model, span) {
  const { track } = timelineLane(model, span);
  const second = 1e9 / model.tickNs;
  const nanoseconds = model.origin + BigInt(Math.round(model.start[span])) * BigInt(model.tickNs);
  const clock = new Date(Number(nanoseconds / 1000000n));
  const facts = [
    ["machine", track.place],
    ["starts", `${timelineExact(model.start[span] / second)} after the start · ${timelineClock(clock)}`],
  ];
  const parent = timelineParent(model, span);
  if (parent >= 0) {
    const took = ((model.end[parent] - model.start[parent]) * model.tickNs) / 1e9;
    facts.push(["inside", `${model.names[model.name[parent]].label}, ${secondsText(took)}`]);
  }
  const details = model.details.get(span);
  if (model.failed[span]) facts.push(["error", details?.error || "failed; the message is in the archive"]);
  if (model.open[span]) facts.push(["state", "open when the run was last seen"]);
  if (details?.attributes) facts.push(...timelineAttributes(details.attributes));
  if (model.step[span] >= 0) {
    const phase = parent < 0 ? "" : model.names[model.name[span]].label; // a step has the lines of all of its phases
    facts.push(...timelinePrinted(timelineProcess(track), model.step[span], phase).map((line) => ["printed", line]));
  }
  return facts.map((pair) => pair.map(timelinePlain));
}

function timelineAttributes(text) {
  try {
    return Object.entries(JSON.parse(text)).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  } catch {
    return [["attributes", text]];
  }
}

/** Return a point of time with its milliseconds, as far as they matter. */
function timelineExact(seconds) {
  const rest = Math.round((seconds - Math.floor(seconds)) * 1e5) / 100;
  const fraction = rest && seconds < 3600 ? ` ${numberText(rest)} ms` : "";
  return `${seconds < 1 && fraction ? "" : timelineMoment(seconds, 1)}${fraction}`.trim();
}

function timelineClock(date) {
  return `${date.toISOString().replace("T", " ").slice(0, 19)} UTC`;
}

/** Fill the table of the longest spans in view that match the search; `select` gets the span of a row that was chosen. */
export function timelineTable(body, model, range, isMatch, select) {
  const spans = timelineLongest(model, range.first, range.last, TIMELINE_TABLE, isMatch);
  const second = 1e9 / model.tickNs;
  const rows = spans.map((span) => {
    const { track } = timelineLane(model, span);
    const button = timelineElement("button", { type: "button", text: model.names[model.name[span]].label });
    button.addEventListener("click", () => select(span));
    const cells = [
      track.place,
      timelineTrackName(track),
      model.step[span] < 0 ? "" : wholeText(model.step[span]),
      secondsText((model.end[span] - model.start[span]) / second),
      secondsText(model.start[span] / second),
      model.failed[span] ? "failed" : model.open[span] ? "open" : "",
    ].map((text) => timelineElement("td", { text }));
    return timelineElement("tr", {}, timelineElement("th", { scope: "row" }, button), ...cells);
  });
  body.replaceChildren(...rows);
}
