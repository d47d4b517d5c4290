// The page: first what is nearest to the verdict, the timeline last, since its data is behind all the rest.

import {mountBrush, mountWhere} from "./brush.js";
import {mountCurves} from "./curves.js";
import {decoded} from "./decode.js";
import {byId, dataOf, make} from "./dom.js";
import {mountKeys} from "./keys.js";
import {wholeText} from "./numbers.js";
import {mountEngines, mountEvidence, mountGoodput, mountMachines, mountMemory, mountTrajectories} from "./panels.js";
import {mountPhases} from "./phases.js";
import {mountSamples} from "./samples.js";
import {announce, axis, change, enter, follow, isWhole, shownSeconds, stayAtTarget, view, watch} from "./state.js";
import {color, setTheme} from "./theme.js";
import {mountTimeline} from "./timeline.js";
import {mountWaiting} from "./waiting.js";

async function start() {
  const run = dataOf("run"), steps = dataOf("steps");
  [axis.steps, axis.ended, axis.seconds] = await Promise.all([decoded(steps.steps), decoded(steps.ended), decoded(steps.seconds)]);
  axis.first = axis.steps[0] ?? 0;
  axis.last = axis.steps[axis.steps.length - 1] ?? 0;
  axis.resumed = steps.resumed;
  axis.end = run.end;
  Object.assign(view, {first: axis.first, last: axis.last});
  setTheme("");
  mountKeys();
  stayAtTarget();
  mountWhere();
  mountBrush(run.events);
  const curves = dataOf("curves"), machines = dataOf("machines");
  await mountCurves(curves);
  await mountPhases(dataOf("phases"));
  await mountWaiting(dataOf("waiting"));
  await mountMemory(dataOf("memory"), machines);
  await mountEngines(dataOf("engines"));
  await mountMachines(machines);
  mountGoodput(curves);
  for (const part of ["memory", "engines", "data"]) mountEvidence(part, curves, run.evidence[part] ?? []);
  await mountTrajectories(dataOf("trajectories"));
  mountSamples(dataOf("samples"));
  for (const part of ["curves", "phases", "waiting", "memory"]) sayRange(part);
  follow(location.hash);
  addEventListener("hashchange", () => follow(location.hash));
  addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault(); // a frame of a notebook would open the notebook in itself
    enter(link.getAttribute("href"));
  });
  document.documentElement.dataset.ready = "page";
}

/** Parts that have nothing to show are one line together. */
function gatherEmpty() {
  const empty = [...document.querySelectorAll("main > section")].filter((part) => !part.querySelector("table, canvas, figure, input, ul, .finding-line"));
  if (!empty.length) return;
  const line = make("p", {class: "nothing"}, "Nothing to show: ");
  for (const part of empty) {
    const reasons = [...part.querySelectorAll(".nothing")].map(({textContent}) => textContent).join(" ");
    line.append(make("b", {}, part.querySelector("h2").textContent), reasons ? ` (${reasons.replace(/\.$/, "")})` : "", part === empty.at(-1) ? "." : ", ");
    document.querySelector(`nav a[href="#at=${part.id}"]`)?.remove();
    part.remove();
  }
  document.querySelector("main").append(line);
}

/** Beside the title of a part: the steps that it shows. */
function sayRange(part) {
  const title = byId(`${part}-title`);
  if (!title || !axis.steps.length) return;
  const range = make("p", {class: "note"});
  title.after(range);
  const say = () => (range.textContent = `steps ${wholeText(view.first)} to ${wholeText(view.last)}${isWhole() ? "" : ` of ${wholeText(axis.first)} to ${wholeText(axis.last)}`}`);
  watch(say);
  say();
}

const started = start();

/** The timeline comes last: its data may be the largest part of the file. */
addEventListener("DOMContentLoaded", async () => {
  await started;
  await startTimeline(dataOf("run"));
  gatherEmpty();
  document.documentElement.dataset.ready = "all";
});

function startTimeline(run) {
  const place = byId("draw-timeline");
  const onSelect = ({step, rank, role}) => change({step: step ?? null, rank: rank ?? null, role: role ?? ""}, {enters: true});
  const timeline = mountTimeline(place, dataOf("timeline"), {onSelect});
  const origin = BigInt(run.origin);
  const ns = (seconds) => origin + BigInt(Math.round(seconds * 1e6)) * 1000n;
  let shown = "", theme = color("ink");
  watch(() => {
    const [first, last] = shownSeconds();
    if (shown !== `${first} ${last}`) timeline.show({first_ns: ns(first), last_ns: ns(last)});
    shown = `${first} ${last}`;
    if (theme !== color("ink")) timeline.theme();
    theme = color("ink");
    timeline.select({step: view.step, rank: view.rank, role: view.role});
  });
  announce();
  return timeline.ready;
}
