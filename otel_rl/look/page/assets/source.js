// Where the data of a part comes from: the page holds it, or a server is asked.

import {byId} from "./dom.js";

/** The data of a part: what the page holds, which may still be read, else what `served(part)` returns; `null` without either. */
export async function dataOf(part, served = null) {
  let block = byId(`data-${part}`);
  if (!block && !served && document.readyState === "loading") {
    await new Promise((resolve) => addEventListener("DOMContentLoaded", resolve, {once: true}));
    block = byId(`data-${part}`);
  }
  return block ? JSON.parse(block.textContent) : (served?.(part) ?? null);
}
