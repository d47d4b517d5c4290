// The page over all runs: which screen is shown follows from the address.

import {sayWhat} from "./bar.js";
import {compareScreen} from "./compare.js";
import {byId} from "./dom.js";
import {takeToken} from "./net.js";
import {runScreen} from "./run_screen.js";
import {runsScreen} from "./runs.js";
import {mountShare} from "./share.js";
import {nextTheme, setTheme} from "./theme.js";

const SCREENS = {runs: runsScreen, run: runScreen, compare: compareScreen};
let shown = null, leave = () => {};

/** The screen of an address, such as `runs` or `run=KEY&step=812`, and its parameters. */
function screenOf(address) {
  const parts = new URLSearchParams(address.replace(/^#/, ""));
  const name = Object.keys(SCREENS).find((screen) => parts.has(screen)) ?? "runs";
  return {name, of: parts.get(name) ?? "", parts};
}

/** Show the screen of the address. A screen returns `follow(parts)` for addresses of its own, and `leave()`. */
function follow() {
  takeToken();
  const {name, of, parts} = screenOf(location.hash);
  const identity = `${name}=${of}`;
  if (shown?.identity === identity) {
    shown.screen.follow(parts);
    return;
  }
  leave();
  byId("screen").replaceChildren();
  const screen = SCREENS[name](byId("screen"), of, parts);
  shown = {identity, screen};
  leave = () => screen.leave();
}

setTheme("");
byId("theme").addEventListener("click", nextTheme);
mountShare(sayWhat);
addEventListener("hashchange", follow);
follow();
document.documentElement.dataset.ready = "page";
