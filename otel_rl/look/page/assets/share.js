// A link to what is shown, for somebody else: its token reads, and changes nothing.

import {byId, make} from "./dom.js";
import {ask} from "./net.js";

const SAID = "Whoever has this link and reaches this address reads all runs of this page, and changes nothing.";

async function share() {
  const {reading_token: token} = await ask("access");
  const [place] = location.href.split("#");
  const address = location.hash.length > 1 ? location.hash : "#runs";
  const link = make("input", {type: "text", readonly: true, "aria-label": "Link for reading", value: `${place}${address}&token=${token}`});
  const copied = make("span", {class: "note", role: "status"});
  const copy = make("button", {type: "button", onclick: async () => {
    link.select();
    // Without TLS, and not on this machine, a browser lets no script copy: the text is chosen for Ctrl-C.
    copied.textContent = await navigator.clipboard?.writeText(link.value).then(() => "copied", () => "") ?? "chosen: press Ctrl-C";
  }}, "Copy");
  const dialog = make("dialog", {class: "marks", "aria-label": "Share", onclose: () => dialog.remove()}, make("h2", {}, "Share"), make("p", {}, SAID), make("label", {class: "field"}, link), make("p", {class: "buttons"}, copy, make("button", {type: "button", onclick: () => dialog.close()}, "Close"), copied));
  document.body.append(dialog);
  dialog.showModal();
  link.select();
}

export function mountShare(onError) {
  byId("share").addEventListener("click", () => share().catch(onError));
}
