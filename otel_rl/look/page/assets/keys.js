// The keyboard: what the mouse does too, and where the keys are told.

import {byId, make} from "./dom.js";
import {nextTheme} from "./theme.js";

/**
 * Listen to the keys of a screen until `signal` says so. Each line of `keys` has how the keys are written, what they do,
 * and what is called by key. `more` is said below them.
 */
export function mountKeys(signal, keys, more = "") {
  const every = [["?", "show these keys", {"?": () => dialog.showModal()}], ...keys, ["t", "theme: system, light, dark", {t: nextTheme}]];
  const acts = Object.assign({}, ...every.map(([, , act]) => act));
  const lines = every.map(([key, what]) => make("tr", {}, make("th", {scope: "row"}, make("kbd", {}, key)), make("td", {}, what)));
  const close = make("button", {type: "button", onclick: () => dialog.close()}, "Close");
  const dialog = make("dialog", {"aria-label": "Keys"}, make("h2", {}, "Keys"), make("table", {}, make("tbody", {}, ...lines)), make("p", {}, more), close);
  document.body.append(dialog);
  signal.addEventListener("abort", () => dialog.remove());
  addEventListener("click", ({target}) => {
    if (target.closest?.("#keys")) dialog.showModal();
  }, {signal});
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.target.closest?.("#timeline") && !["?", "t", "j", "k"].includes(event.key)) return; // it has keys of its own
    const act = Object.hasOwn(acts, event.key) && acts[event.key];
    if (!act || (event.key.startsWith("Arrow") && event.target.closest?.(".scrolled"))) return;
    event.preventDefault();
    act();
  }, {signal});
}

/** Go to a field to search. */
export function goToSearch(id) {
  byId(id)?.focus();
  byId(id)?.scrollIntoView({block: "center"});
}
