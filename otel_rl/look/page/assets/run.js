// One run on the page: first what is nearest to the verdict, the timeline last, since its data is behind all the rest.

import {mountBrush, mountWhere} from "./brush.js";
import {mountCurves} from "./curves.js";
import {decoded} from "./decode.js";
import {byId, make} from "./dom.js";
import {mountKeys} from "./keys.js";
import {HINT, keysOf} from "./run_keys.js";
import {wholeText} from "./numbers.js";
import {evidenceOf, mountEngines, mountGoodput, mountMachines, mountMemory, mountTrajectories} from "./panels.js";
import {mountPhases} from "./phases.js";
import {mountSamples} from "./samples.js";
import {color} from "./theme.js";
import {mountTimeline} from "./timeline.js";
import {mountWaiting} from "./waiting.js";

/** Where something is drawn, the parts that it needs, and what draws it: `mount(place, data, run)`, all of them if several. */
const DRAWINGS = [
  ["brush", ["run"], mountBrush],
  ["draw-curves", ["curves"], mountCurves],
  ["draw-phases", ["phases"], mountPhases],
  ["draw-waiting", ["waiting"], mountWaiting],
  ["draw-memory", ["memory", "machines"], mountMemory],
  ["draw-engines", ["engines"], mountEngines],
  ["draw-machines", ["machines"], mountMachines],
  ["draw-goodput", ["curves"], mountGoodput],
  ["draw-memory", ["curves", "run"], evidenceOf("memory")],
  ["draw-engines", ["curves", "run"], evidenceOf("engines")],
  ["draw-data", ["curves", "run"], evidenceOf("data")],
  ["draw-data", ["trajectories"], mountTrajectories],
  ["draw-data", ["samples"], mountSamples],
];
const LAST = [["draw-timeline", ["timeline", "run"], timelineOf]];
const TAILED = ["steps", "curves"];
const RANGED = ["curves", "phases", "waiting", "memory"];

/** Draws the parts of a run in the places that the page has for them, and again when they have changed. */
export class RunParts {
  #drawn = new Map();
  #data = new Map();
  #digests = {};
  #isStarted = false;

  /** @param dataOf Returns the data of a part. @param tail What a run has recorded since its parts were read. */
  constructor(run, dataOf, tail = null) {
    this.run = run;
    this.dataOf = dataOf;
    this.tail = tail;
  }

  /** Draw all parts but the timeline, and listen to the reader. */
  async start() {
    await this.#begin();
    await this.#draw(DRAWINGS);
  }

  /** Draw the timeline, whose data may be the largest; then gather the parts that have nothing. */
  async finish() {
    await this.#draw(LAST);
    gatherEmpty();
  }

  /** Draw what can be drawn from these parts, by their digests, and again what needs one of another digest than before. */
  async update(digests, followed = 0) {
    try {
      await this.#update(digests, followed);
    } catch (error) {
      this.#digests = {}; // what did not arrive is asked for again
      throw error;
    }
  }

  async #update(digests, followed) {
    const changed = new Set(Object.keys(digests).filter((part) => digests[part] !== this.#digests[part]));
    this.#digests = digests;
    for (const part of changed) this.#data.delete(part);
    if (await this.tail?.grow(digests.steps, followed)) for (const part of TAILED) if (part in digests) changed.add(part);
    if (!("run" in digests && "steps" in digests)) return;
    if (!this.#isStarted) await this.#begin();
    else if (changed.has("run") || changed.has("steps")) await this.#readAxis();
    const known = [...DRAWINGS, ...LAST].filter(([, needs]) => needs.every((part) => part in digests));
    await this.#draw(known, (needs) => needs.some((part) => changed.has(part)));
    this.run.signal.throwIfAborted();
    if (changed.size) this.run.announce();
    if (known.length === DRAWINGS.length + LAST.length) gatherEmpty();
  }

  async #begin() {
    const {run} = this;
    await this.#readAxis();
    this.#isStarted = true;
    mountKeys(run.signal, keysOf(run), HINT);
    run.stayAtTarget();
    mountWhere(byId("where"), run);
    for (const part of RANGED) sayRange(part, run);
  }

  async #readAxis() {
    const [run, {resumed, ...columns}] = await this.#read(["run", "steps"]);
    const [steps, ended, seconds] = await Promise.all([columns.steps, columns.ended, columns.seconds].map(decoded));
    this.run.grow({steps, ended, seconds, resumed, end: Math.max(run.end, ended[ended.length - 1] ?? 0)});
  }

  /** Draw what has not been drawn yet, and what has if `isOld(needs)`. */
  async #draw(drawings, isOld = () => false) {
    for (const [id, needs, mount] of drawings) {
      this.run.signal.throwIfAborted(); // the reader has left: another run has the places of these names
      const drawing = this.#drawn.get(mount);
      if (!drawing) this.#drawn.set(mount, await mount(placeOf(id), await this.#read(needs), this.run));
      else if (isOld(needs)) await drawing.update(await this.#read(needs));
    }
  }

  /** The data of one part, or of several. */
  async #read(needs) {
    for (const part of needs) if (!this.#data.has(part)) this.#data.set(part, this.dataOf(part));
    const read = await Promise.all(needs.map((part) => this.#data.get(part)));
    this.run.signal.throwIfAborted();
    const data = read.map((value, at) => this.tail?.onto(needs[at], value) ?? value);
    return needs.length > 1 ? data : data[0];
  }
}

/** Where to draw: a place of its own for each of several drawings of a part. */
function placeOf(id) {
  const place = byId(id);
  return DRAWINGS.filter(([other]) => other === id).length > 1 ? place.appendChild(make("div", {class: "draw"})) : place;
}

function timelineOf(place, [data, {origin}], run) {
  const {view} = run;
  const onSelect = ({step, rank, role}) => run.change({step: step ?? null, rank: rank ?? null, role: role ?? ""}, {enters: true});
  const timeline = mountTimeline(place, data, {onSelect});
  const ns = (seconds) => BigInt(origin) + BigInt(Math.round(seconds * 1e6)) * 1000n;
  let asked = null, shown = "", theme = color("ink");
  run.watch(place, () => {
    const range = `${view.first} ${view.last}`;
    if (asked !== run.asked && shown !== range) { // steps that came since then do not move the timeline: it follows them
      const [first, last] = run.shownSeconds();
      timeline.show(run.isWhole ? {} : {first_ns: ns(first), last_ns: ns(last)});
    }
    [asked, shown] = [run.asked, range];
    if (theme !== color("ink")) timeline.theme();
    theme = color("ink");
    timeline.select({step: view.step, rank: view.rank, role: view.role});
  });
  run.announce();
  return timeline.ready.then(() => ({update: ([newer]) => timeline.update(newer)}));
}

/** Parts that have nothing to show are one line together. */
function gatherEmpty() {
  const line = byId("nothing") ?? make("p", {class: "nothing", id: "nothing"});
  const sections = [...document.querySelectorAll("main > section")];
  const empty = sections.filter((part) => !part.querySelector("table, canvas, figure, input, ul, .finding-line"));
  for (const part of sections) {
    part.hidden = empty.includes(part);
    for (const link of document.querySelectorAll("nav a")) if (link.hash.endsWith(`at=${part.id}`)) link.hidden = part.hidden;
  }
  line.replaceChildren("Nothing to show: ");
  for (const part of empty) {
    const reasons = [...part.querySelectorAll(".nothing")].map(({textContent}) => textContent).join(" ");
    line.append(make("b", {}, part.querySelector("h2").textContent), reasons ? ` (${reasons.replace(/\.$/, "")})` : "", part === empty.at(-1) ? "." : ", ");
  }
  line.hidden = !empty.length;
  if (!line.isConnected) document.querySelector("main").append(line);
}

/** Beside the title of a part: the steps that it shows. */
function sayRange(part, run) {
  const {axis, view} = run;
  const title = byId(`${part}-title`);
  if (!title) return;
  const range = make("p", {class: "note", "data-drawn": true});
  title.after(range);
  const say = () => {
    range.hidden = !axis.steps.length;
    range.textContent = `steps ${wholeText(view.first)} to ${wholeText(view.last)}${run.isWhole ? "" : ` of ${wholeText(axis.first)} to ${wholeText(axis.last)}`}`;
  };
  run.watch(range, say);
  say();
}
