// Requests to the server of this page, with the token of its link, and polls that rest while nobody looks.

const KEY = "otel-rl token";
const CALM_MS = 5000, TABS_MS = 300;
const ANSWERS_MS = 60_000; // the first comparison of many runs reads all of them

/** Take the token out of the address: a link that is sent or a history that is kept must not have it. */
export function takeToken() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const token = parts.get("token");
  if (token === null) return;
  keep(token);
  parts.delete("token");
  history.replaceState(null, "", `#${readable(parts)}`);
}

function keep(token) {
  kept = token;
  if (isFramed) return;
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // the browser keeps nothing for this page
  }
}

let kept = null;
// In a frame, such as a notebook's, only the token of its own address counts: whoever frames the page of somebody else
// could lead clicks to "Delete".
const isFramed = window.top !== window;

function tokenNow() {
  try {
    return (isFramed ? null : sessionStorage.getItem(KEY)) ?? kept;
  } catch {
    return kept;
  }
}

// A run that is opened in a new tab: other tabs of this page, and only those of the same address and port, tell the token.
const tabs = isFramed ? new EventTarget() : new BroadcastChannel(KEY);
tabs.addEventListener("message", ({data}) => {
  const token = tokenNow();
  if (data === null && token) tabs.postMessage(token);
  else if (typeof data === "string" && !token) keep(data);
});

/** Ask other tabs for the token, and wait until one has told it, for a moment. */
async function askTabs() {
  if (isFramed) return;
  const told = new Promise((resolve) => tabs.addEventListener("message", ({data}) => typeof data === "string" && resolve()));
  tabs.postMessage(null);
  await Promise.race([told, new Promise((resolve) => setTimeout(resolve, TABS_MS))]);
}

/** The parameters of a fragment as a text in which commas and colons stay as they are. */
export function readable(parts) {
  return parts.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
}

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** The server is not there, or says nothing. */
export class Unreachable extends Error {}

const known = new Map(); // by path: the tag and the value that came with it
const MOST_KNOWN = 200;

/** The JSON at a path, relative to the page. What the browser has already is not sent again. */
export async function ask(path, withinMs = ANSWERS_MS) {
  const before = known.get(path);
  const [answer, text] = await fetched(path, before ? {"If-None-Match": before.tag} : {}, {}, withinMs);
  if (answer.status === 304) return before.value;
  const value = JSON.parse(text);
  const tag = answer.headers.get("ETag");
  known.delete(path);
  if (tag) known.set(path, {tag, value});
  if (known.size > MOST_KNOWN) known.delete(known.keys().next().value);
  return value;
}

/** Post a change to a path, and return the JSON of its answer. */
export async function send(path, change) {
  const [, text] = await fetched(path, {"Content-Type": "application/json"}, {method: "POST", body: JSON.stringify(change)}, ANSWERS_MS);
  return JSON.parse(text);
}

async function fetched(path, headers, more, withinMs) {
  if (!tokenNow()) await askTabs();
  const own = {Authorization: `Bearer ${tokenNow() ?? ""}`, ...headers};
  const [answer, text] = await fetch(path, {headers: own, cache: "no-store", signal: AbortSignal.timeout(withinMs), ...more})
    .then(async (answer) => [answer, await answer.text()])
    .catch((error) => {
      throw new Unreachable(error.message);
    });
  if (!answer.ok && answer.status !== 304) throw new Refused(answer.status, text.trim());
  return [answer, text];
}

/**
 * Call `act` again and again while the page is visible, `everyMs()` after it ended. `onError` gets what went wrong, and
 * null when it is well again. Returns a function that ends it.
 */
export function poll(act, everyMs, onError) {
  let timer = null, isEnded = false, isBusy = false;
  const next = async () => {
    timer = null;
    if (isEnded || isBusy || document.hidden) return;
    isBusy = true;
    let calm = 0;
    try {
      await act();
      if (!isEnded) onError(null);
    } catch (error) {
      calm = CALM_MS;
      if (!isEnded) onError(error);
    }
    const pause = Math.max(everyMs(), calm);
    isBusy = false;
    if (!isEnded && timer === null) timer = setTimeout(next, pause);
  };
  const wake = () => {
    if (document.hidden) return;
    clearTimeout(timer);
    next();
  };
  document.addEventListener("visibilitychange", wake);
  addEventListener("online", wake);
  next();
  return () => {
    isEnded = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", wake);
    removeEventListener("online", wake);
  };
}
