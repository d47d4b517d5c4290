// Markup of the server, renewed in place: what stays the same keeps its focus, its scrolling, and what is open in it.

/** The elements of a text of markup. The server escapes all that was recorded; scripts in a template never run. */
export function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

/** Give an element the children of a fresh one. Where this page draws (`.draw`) and what it added (`data-drawn`) stay. */
export function renew(old, fresh) {
  const before = [...old.childNodes].filter((node) => node.dataset?.drawn === undefined);
  let at = 0;
  for (const wanted of [...fresh.childNodes]) {
    const known = wanted.id ? before.findIndex((node, place) => place >= at && node.id === wanted.id) : at;
    if (known < 0 || !before[known] || !isAlike(before[known], wanted)) {
      old.insertBefore(wanted, before[at] ?? null);
      continue;
    }
    while (at < known) before[at++].remove();
    renewNode(before[at++], wanted);
  }
  for (const node of before.slice(at)) node.remove();
}

function isAlike(node, wanted) {
  return node.nodeName === wanted.nodeName && (node.id ?? "") === (wanted.id ?? "");
}

function renewNode(node, wanted) {
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.data !== wanted.data) node.data = wanted.data;
    return;
  }
  if (node.classList.contains("draw")) return;
  for (const {name, value} of wanted.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  for (const {name} of [...node.attributes]) {
    if (!wanted.hasAttribute(name) && name !== "open" && name !== "hidden") node.removeAttribute(name);
  }
  renew(node, wanted);
}
