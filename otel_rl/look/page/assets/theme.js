// The theme: that of the system, light or dark; and the colors that canvases take from the style sheet.

import {byId, make} from "./dom.js";

const THEMES = ["", "light", "dark"];
const probe = make("span", {hidden: true});
const resolved = new Map();
const watchers = new Set();

/** Call `show` whenever the theme changes, until `signal` says so. */
export function whenThemed(show, signal) {
  watchers.add(show);
  signal.addEventListener("abort", () => watchers.delete(show));
}

export function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  resolved.clear();
  byId("theme").textContent = `◐ ${theme || "theme"}`;
  byId("theme").setAttribute("aria-label", `Theme: ${theme || "that of the system"}`);
  for (const show of watchers) show();
}

export function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
}

/** The value of a color of the style sheet, such as `ink` or `rollout`. */
export function color(name) {
  if (!resolved.has(name)) {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(--${name})`;
    resolved.set(name, getComputedStyle(probe).color);
  }
  return resolved.get(name);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(document.documentElement.dataset.theme ?? ""));
addEventListener("beforeprint", () => setTheme("light"));
