"use strict";
// Elements. Texts are set as text, never as markup, so that recorded names and texts cannot become elements.

function make(name, attributes = {}, ...content) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...content.filter((one) => one != null));
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

/** The JSON that the page holds for a part; `null` if there is none. */
function dataOf(part) {
  const block = byId(`data-${part}`);
  return block && JSON.parse(block.textContent);
}

/** Call `draw` when the element comes near the screen: a page with hundreds of charts draws those that are seen. */
function whenSeen(element, draw) {
  const once = () => {
    seen.disconnect();
    removeEventListener("beforeprint", once);
    draw();
  };
  const seen = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) once();
  }, {rootMargin: "300px"});
  seen.observe(element);
  addEventListener("beforeprint", once); // paper has all of them
}

/** Call `draw` when the width of the element changes. */
function whenResized(element, draw) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now === width || now === 0) return;
    width = now;
    requestAnimationFrame(draw);
  }).observe(element);
}

/** A hint beside the pointer; `null` hides it. */
function hint(event, lines) {
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
