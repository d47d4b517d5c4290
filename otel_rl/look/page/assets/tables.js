// Tables behind charts, for screen readers and for those who want the numbers. They are made when they are opened.

import {make} from "./dom.js";
import {wholeText} from "./numbers.js";

const MOST_LINES = 300;

/** A table that opens below a chart. `lines()` returns its titles and its lines now, and its caption if that changes. */
export function tableBehind(parent, caption, lines, run) {
  const inside = make("div", {class: "scrolled", tabindex: "0", role: "region", "aria-label": caption});
  const details = make("details", {class: "behind"}, make("summary", {}, "As a table"), inside);
  const show = async () => {
    if (!details.open) return;
    const {titles, rows, caption: now = caption} = await lines();
    const table = make("table", {}, make("caption", {class: "unseen"}, now));
    const head = titles.map((title, at) => make("th", {scope: "col", class: at ? "number" : "number first"}, title));
    const body = rows.slice(0, MOST_LINES).map((row) => make("tr", {}, ...row.map((cell) => make("td", {class: "number"}, cell))));
    table.append(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
    const more = rows.length > MOST_LINES ? make("p", {class: "note"}, `The first ${MOST_LINES} of ${wholeText(rows.length)} lines; choose fewer steps to see others.`) : "";
    inside.replaceChildren(more, table);
  };
  details.addEventListener("toggle", show);
  run.watch(details, show);
  parent.append(details);
}
