// Elements. Texts are set as text, never as markup, so that recorded names and texts cannot become elements.

// No `style` among the attributes: the policy of the page refuses it, while `element.style` is allowed
// (test_in_the_browser.py: test_the_policy_stops_what_gets_in).
export function make(name, attributes = {}, ...content) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...content.filter((part) => part != null));
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Give an element these children. Those that it has stay as they are: focus, scrolling and what is open are kept. */
export function arrange(parent, children) {
  for (const child of [...parent.childNodes]) if (!children.includes(child)) child.remove();
  children.forEach((child, at) => {
    if (parent.childNodes[at] !== child) parent.insertBefore(child, parent.childNodes[at] ?? null);
  });
}

/**
 * Draw a part in a place: `build(data)` returns how to update it, and is called again only when `keyOf(data)` changes.
 * What it returns has `update(data)`.
 */
export async function renewed(place, data, keyOf, build) {
  let key = null, again = null;
  const update = async (next) => {
    const before = key;
    key = keyOf(next);
    if (key === before) return again?.(next);
    place.replaceChildren();
    again = await build(next);
  };
  await update(data);
  return {update};
}

/** Call `draw` when the element comes near the screen, or at the latest when nothing else is to do: a picture of the whole page and paper have all charts. */
export function whenSeen(element, draw) {
  let isDrawn = false;
  const once = () => {
    if (isDrawn) return;
    isDrawn = true;
    seen.disconnect();
    removeEventListener("beforeprint", once);
    draw();
  };
  const seen = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) once();
  }, {rootMargin: "300px"});
  seen.observe(element);
  addEventListener("beforeprint", once); // before there was time
  whenIdle(once);
}

const waiting = [];

/** Do something when nothing else is to do, one thing after the other. */
function whenIdle(act) {
  waiting.push(act);
  if (waiting.length === 1) later();
}

function later() {
  const next = () => {
    const act = waiting[0];
    try {
      act();
    } finally {
      waiting.shift();
      if (waiting.length) later();
    }
  };
  if (window.requestIdleCallback) requestIdleCallback(next, {timeout: 1000});
  else setTimeout(next, 50);
}

/** Call `draw` when the width of the element changes. */
export function whenResized(element, draw) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now === width || now === 0) return;
    width = now;
    // What is drawn can change the size again: inside of the observer, browsers report that as an error of the page.
    requestAnimationFrame(draw);
  }).observe(element);
}

/** A hint beside the pointer; `null` hides it. */
export function hint(event, lines) {
  const box = byId("hint");
  box.hidden = !lines;
  if (!lines) return;
  box.replaceChildren(...lines.map((line) => (line instanceof Node ? line : make("div", {}, line))));
  const {innerWidth, innerHeight} = window;
  const {offsetWidth, offsetHeight} = box;
  const left = event.clientX + 14 + offsetWidth > innerWidth ? event.clientX - offsetWidth - 14 : event.clientX + 14;
  const top = Math.min(event.clientY + 14, innerHeight - offsetHeight - 4);
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, top)}px`;
}
