// The same span in a newer model of a run: numbers of spans change, since each lane has more of them.

import {timelineFrom, timelineLane} from "./timeline_index.js";

/** What tells a span from all others of the run. */
export function timelineIdentity(model, span) {
  const { track, slot } = timelineLane(model, span);
  const { label } = model.names[model.name[span]];
  return { of: timelineTrackKey(track), slot, label, ns: model.origin + BigInt(Math.round(model.start[span])) * BigInt(model.tickNs) };
}

/** Return the span with this identity, or -1. */
export function timelineSameSpan(model, { of, slot, label, ns }) {
  const start = Number(ns - model.origin) / model.tickNs;
  for (const lane of model.lanes) {
    if (lane.slot !== slot || timelineTrackKey(lane.track) !== of) continue;
    for (let i = timelineFrom(model.start, lane, start - 1, lane.first); i < lane.end && model.start[i] <= start + 1; i++) {
      if (model.names[model.name[i]].label === label) return i;
    }
  }
  return -1;
}

/** Return the spans that failed. */
export function timelineFailures(model) {
  const failures = [];
  for (let i = 0; i < model.count; i++) if (model.failed[i]) failures.push(i);
  return failures;
}

function timelineTrackKey({ kind, machine, role, rank }) {
  return JSON.stringify([kind, machine, role, rank]);
}
