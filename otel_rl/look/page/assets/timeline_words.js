// Points of time and names of the timeline as people read them.

import {secondsText, wholeText} from "./numbers.js";
import {timelineLane} from "./timeline_index.js";

const TIMELINE_INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Return recorded text without characters that are invisible or turn others around. */
export function timelinePlain(text) {
  return text.replace(TIMELINE_INVISIBLE, "\ufffd");
}

/** Return a point of time since the start of the run with all its units, such as `1 h 2 min 3 s`. */
export function timelineMoment(seconds, step) {
  const whole = Math.floor(seconds + 1e-9);
  const parts = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [step < 60 ? whole % 60 : 0, "s"],
  ].filter(([count]) => count);
  return parts.map(([count, name]) => `${count} ${name}`).join(" ") || "0 s";
}

const TIMELINE_STEPS = [
  ...[-5, -4, -3, -2, -1].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power)),
  ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400],
  ...[2, 5, 10, 20, 50, 100].map((days) => days * 86400),
];

/** Return the distance of ticks on the axis of time, in seconds. */
export function timelineTickStep(least) {
  return TIMELINE_STEPS.find((step) => step >= least) ?? TIMELINE_STEPS[TIMELINE_STEPS.length - 1];
}

/** Return what a process is called: "rank 3", "rollout 0", or the name of another program. */
export function timelineProcess({ kind, role, rank }) {
  const number = rank === null ? "" : ` ${rank}`;
  if (!role) return number ? `rank${number}` : "no rank";
  return kind === "program" ? timelinePlain(role) : `${timelinePlain(role)}${number}`;
}

export function timelineTrackName(track) {
  return track.kind === "trajectories" ? `${timelineProcess(track)} trajectories` : timelineProcess(track);
}

/** Return what a selected span is called: "step 412 · rank 3 · generate · 31.2 s". */
export function timelineSpanWords(model, span) {
  const { track } = timelineLane(model, span);
  const took = ((model.end[span] - model.start[span]) * model.tickNs) / 1e9;
  const step = model.step[span] < 0 ? [] : [`step ${wholeText(model.step[span])}`];
  const words = took ? secondsText(took) : "less than 10 µs";
  return [...step, timelineProcess(track), model.names[model.name[span]].label, model.open[span] ? `open for ${words}` : words].join(" · ");
}
