// Numbers, times and names of the timeline as people read them.

const TIMELINE_COUNTS = new Intl.NumberFormat("en-US");
const TIMELINE_INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Return a whole number with separators. */
function timelineCount(value) {
  return TIMELINE_COUNTS.format(value);
}

/** Return recorded text without characters that are invisible or turn others around. */
function timelinePlain(text) {
  return text.replace(TIMELINE_INVISIBLE, "\ufffd");
}

function timelineNumber(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 100) return timelineCount(Math.round(value));
  const text = value.toFixed(Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(size)))));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** Return a duration, such as `0.12 ms`, `41 s`, `3 min 12 s` or `3 h 12 min`. */
function timelineSeconds(value) {
  if (value < 0) return `-${timelineSeconds(-value)}`;
  if (value < 0.9995) return value ? `${timelineNumber(value * 1e3)} ms` : "0 s";
  if (value < 59.95) return `${timelineNumber(value)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return timelinePair(whole, 60, "min", 1, "s");
  if (whole < 86400) return timelinePair(Math.round(whole / 60) * 60, 3600, "h", 60, "min");
  return timelinePair(Math.round(whole / 3600) * 3600, 86400, "d", 3600, "h");
}

function timelinePair(whole, unit, name, smaller, ofSmaller) {
  const rest = Math.floor((whole % unit) / smaller);
  const large = `${Math.floor(whole / unit).toLocaleString("en-US")} ${name}`;
  return rest ? `${large} ${rest} ${ofSmaller}` : large;
}

/** Return a point of time since the start of the run with all its units, such as `1 h 2 min 3 s`. */
function timelineMoment(seconds, step) {
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
function timelineTickStep(least) {
  return TIMELINE_STEPS.find((step) => step >= least) ?? TIMELINE_STEPS[TIMELINE_STEPS.length - 1];
}

/** Return what a process is called: "rank 3", "rollout 0", or the name of another program. */
function timelineProcess({ kind, role, rank }) {
  const number = rank === null ? "" : ` ${rank}`;
  if (!role) return number ? `rank${number}` : "no rank";
  return kind === "program" ? timelinePlain(role) : `${timelinePlain(role)}${number}`;
}

function timelineTrackName(track) {
  return track.kind === "trajectories" ? `${timelineProcess(track)} trajectories` : timelineProcess(track);
}

/** Return what a selected span is called: "step 412 · rank 3 · generate · 31.2 s". */
function timelineSpanWords(model, span) {
  const { track } = timelineLane(model, span);
  const took = ((model.end[span] - model.start[span]) * model.tickNs) / 1e9;
  const step = model.step[span] < 0 ? [] : [`step ${timelineCount(model.step[span])}`];
  const words = took ? timelineSeconds(took) : "less than 10 µs";
  return [...step, timelineProcess(track), model.names[model.name[span]].label, model.open[span] ? `open for ${words}` : words].join(" · ");
}
