// One run, live: the report in pieces from the server, of which those that have changed are asked for again.

import {sayWhat, showPlace} from "./bar.js";
import {arrange, byId, make} from "./dom.js";
import {changeMarks} from "./marks.js";
import {Refused, ask, poll} from "./net.js";
import {parsed, renew} from "./renew.js";
import {RunParts} from "./run.js";
import {dataOf} from "./source.js";
import {ShownRun} from "./state.js";
import {RunTail} from "./tail.js";

const LIVE_MS = 1000, ENDED_MS = 10_000;
const FIRST = ["verdict", "now"]; // above the overview of all steps

export function runScreen(place, key) {
  const run = new ShownRun(`run=${key}`);
  const tail = new RunTail((first) => ask(`run/${encodeURIComponent(key)}/tail?from=${first}`));
  const parts = new RunParts(run, (part) => dataOf(part, () => ask(`run/${encodeURIComponent(key)}/part/${part}`)), tail);
  const header = make("div", {class: "run-title", role: "region", "aria-label": "The run"}), nav = make("nav", {"aria-label": "Parts of the page"});
  const overview = make("div", {class: "follow", id: "follow"}, make("p", {id: "where", role: "status"}), make("div", {id: "brush"}));
  const main = make("main", {}, make("p", {class: "note", id: "reading"}, "Reading the run …"));
  const sections = new Map();
  const marks = make("button", {type: "button", hidden: true, class: "marking", "data-drawn": true, onclick: () => changeMarks([{key}], () => look().catch(sayWhat)).catch(sayWhat)}, "Marks …");
  header.append(marks);
  let everyMs = LIVE_MS, isFollowed = false;
  place.append(header, nav, main);

  const look = async () => {
    if (marks.hidden) marks.hidden = !(await ask("access")).may_change;
    const page = await ask(`run/${encodeURIComponent(key)}?known=${[...sections.values()].map(({digest}) => digest).join(",")}`);
    run.signal.throwIfAborted(); // the reader has left: the page is that of another screen
    everyMs = page.goes_on || !page.sections.length ? LIVE_MS : ENDED_MS;
    document.title = page.title;
    showPlace(page.problem || (page.goes_on && !page.is_held ? "Its archive is saved every 10 s: this page cannot write there." : ""), {isInside: true});
    if (!page.sections.length) return;
    if (page.header !== header.shown) renew(header, localized(page.header).firstElementChild);
    header.shown = page.header;
    main.classList.toggle("incomplete", page.is_incomplete);
    renewSections(page.sections);
    await parts.update(page.parts, page.tail);
    if (isFollowed || !("run" in page.parts)) return;
    isFollowed = true;
    run.follow(location.hash);
    document.documentElement.dataset.ready = "run";
  };

  /** Show the sections of now, of which only those have their content that this page does not know. */
  function renewSections(shown) {
    for (const {id, digest, html} of shown) {
      const known = sections.get(id);
      if (html === null) continue;
      const fresh = localized(html).firstElementChild;
      if (known) renew(known.element, fresh);
      sections.set(id, {digest, element: known?.element ?? fresh});
    }
    const ids = shown.map(({id}) => id);
    for (const id of sections.keys()) if (!ids.includes(id)) sections.delete(id);
    const elements = ids.map((id) => sections.get(id).element);
    const first = ids.findLastIndex((id) => FIRST.includes(id)) + 1;
    arrange(main, [...elements.slice(0, first), overview, ...elements.slice(first), ...[byId("nothing")].filter(Boolean)]);
    const titles = shown.filter(({id}) => id !== "verdict").map(({id, title}) => [`#run=${key}&at=${id}`, title]);
    if (titles.map(([, title]) => title).join() === [...nav.children].map(({textContent}) => textContent).join()) return;
    nav.replaceChildren(...titles.map(([href, title]) => make("a", {href}, title)));
  }

  /** Elements of the server, whose links inside of the page are addresses of this run. */
  function localized(html) {
    const content = parsed(html);
    for (const link of content.querySelectorAll('a[href^="#"]:not(.skip)')) link.setAttribute("href", `#run=${key}&${link.getAttribute("href").slice(1)}`);
    return content;
  }

  place.addEventListener("click", (event) => {
    const link = event.target.closest?.("a");
    if (link?.matches(".skip")) {
      event.preventDefault(); // its address is not one of this page
      run.goTo("verdict");
    } else if (link?.hash && link.hash === location.hash) run.follow(link.hash); // once more to where it leads already
  }, {signal: run.signal});
  const stop = poll(look, () => everyMs, (error) => {
    if (error instanceof Refused && error.status === 404) byId("reading")?.replaceChildren(); // a run that is there no more
    sayWhat(error);
  });
  return {
    follow: () => run.follow(location.hash),
    leave: () => {
      stop();
      run.close();
      place.replaceChildren();
    },
  };
}
