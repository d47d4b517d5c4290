// The bar at the top: where the reader is, the way back to the list, and why nothing new arrives.

import {byId, make} from "./dom.js";
import {Refused, Unreachable} from "./net.js";

let list = "#runs";

/** Remember the address of the list, with what is searched and sorted: the way back leads there. */
export function rememberList(address) {
  list = address;
}

/** Show in the bar where the reader is; as long as it is the same, nothing is changed: links keep their focus. */
export function showPlace(text, {isInside = false} = {}) {
  const bar = byId("watching"), key = `${isInside ? list : ""} ${text}`;
  bar.classList.remove("bad");
  if (bar.shown === key) return;
  bar.shown = key;
  bar.replaceChildren(isInside ? make("a", {href: list}, "← all runs") : "", isInside && text ? ` · ${text}` : text);
}

/** Say in the bar why nothing new arrives; nothing if it does. */
export function sayWhat(error) {
  if (error === null) return;
  const bar = byId("watching");
  bar.classList.add("bad");
  bar.shown = null;
  const way = make("a", {href: list}, "← all runs");
  if (error instanceof Refused && error.status === 401) bar.replaceChildren("This page needs the link that `otel-rl ui` printed: it has a token, and each start has another one.");
  else if (error instanceof Refused) bar.replaceChildren(way, ` · ${error.message}`);
  else if (error instanceof Unreachable) bar.replaceChildren("The server does not answer. This page goes on by itself when it does; start it again with: otel-rl ui");
  else {
    bar.replaceChildren(way, ` · This page could not be drawn: ${error.message}`);
    console.error(error);
  }
}
