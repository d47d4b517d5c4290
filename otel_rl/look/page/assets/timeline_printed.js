// The lines that a process printed while a span was open, from the table of printed lines on the same page.

import {wholeText} from "./numbers.js";

const TIMELINE_LINES = 6;

/** Return the last lines of a process in a step, and in a phase unless it is empty, the oldest first. */
export function timelinePrinted(process, step, phase) {
  const rows = [...document.querySelectorAll("#printed tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent));
  const lines = rows.filter(([, who, of, where]) => who === process && of === wholeText(step) && (!phase || where === phase)).map((cells) => cells.at(-1));
  const shown = lines.slice(0, TIMELINE_LINES).reverse();
  return lines.length > shown.length ? [`${lines.length - shown.length} lines before these`, ...shown] : shown;
}
