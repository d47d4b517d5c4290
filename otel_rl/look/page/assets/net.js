// Requests to the server of this page, with the token of its link, and polls that rest while nobody looks.

const KEY = "otel-rl token";
const CALM_MS = 5000;

/** Take the token out of the address: a link that is sent or a history that is kept must not have it. */
export function takeToken() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const token = parts.get("token");
  if (token === null) return;
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    kept = token; // the browser keeps nothing for this page
  }
  parts.delete("token");
  history.replaceState(null, "", `#${readable(parts)}`);
}

let kept = null;

function tokenNow() {
  try {
    return sessionStorage.getItem(KEY) ?? kept;
  } catch {
    return kept;
  }
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

const known = new Map(); // by path: the tag and the value that came with it
const MOST_KNOWN = 200;

/** The JSON at a path, relative to the page. What the browser has already is not sent again. */
export async function ask(path) {
  const before = known.get(path);
  const headers = {Authorization: `Bearer ${tokenNow() ?? ""}`};
  if (before) headers["If-None-Match"] = before.tag;
  const answer = await fetch(path, {headers, cache: "no-store"});
  if (answer.status === 304) return before.value;
  if (!answer.ok) throw new Refused(answer.status, (await answer.text()).trim());
  const value = await answer.json();
  const tag = answer.headers.get("ETag");
  known.delete(path);
  if (tag) known.set(path, {tag, value});
  if (known.size > MOST_KNOWN) known.delete(known.keys().next().value);
  return value;
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
    let pause = everyMs();
    try {
      await act();
      onError(null);
    } catch (error) {
      pause = Math.max(pause, CALM_MS);
      onError(error);
    }
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
