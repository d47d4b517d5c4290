// The report: the page of one run, whose data it holds.

import {byId} from "./dom.js";
import {RunParts} from "./run.js";
import {dataOf} from "./source.js";
import {ShownRun} from "./state.js";
import {nextTheme, setTheme} from "./theme.js";

async function start() {
  const run = new ShownRun(), parts = new RunParts(run, dataOf);
  setTheme("");
  await parts.start();
  byId("theme").addEventListener("click", nextTheme);
  run.follow(location.hash);
  addEventListener("hashchange", () => run.follow(location.hash));
  addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault(); // a frame of a notebook would open the notebook in itself
    run.enter(link.getAttribute("href"));
  });
  document.documentElement.dataset.ready = "page";
  await parts.finish();
  document.documentElement.dataset.ready = "all";
}

start();
