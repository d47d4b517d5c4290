// Reads what `timeline_of` wrote: columns of spans, and the lanes that they are in.

import {timelinePlain} from "./timeline_words.js";

const TIMELINE_PAUSE_MS = 12;

/** Return the timeline as typed arrays. Long work is done in slices, so that the page stays usable. */
export async function readTimeline(data) {
  const spans = await timelineColumns(data.spans, data.count);
  const steps = await timelineColumns(data.steps, data.step_count);
  const model = {
    origin: BigInt(data.origin_ns), // nanoseconds since 1970 have 61 bits, and a number 53
    tickNs: data.tick_ns,
    ticks: Math.max(1, data.ticks),
    count: data.count,
    thinned: data.thinned,
    categories: data.categories,
    names: data.names.map(([label, category]) => ({ label: timelinePlain(label), category })),
    name: spans.name,
    failed: spans.marks.map((mark) => mark & 1),
    open: spans.marks.map((mark) => mark & 2),
    start: new Float64Array(data.count),
    end: new Float64Array(data.count),
    step: new Float64Array(data.count),
    more: spans.more ?? null, // how much longer the spans are for which one stands, if there were too many
    tracks: [],
    lanes: [],
    steps: timelineSteps(steps, data.step_count),
    attempts: data.attempts,
    details: new Map(),
  };
  let first = 0;
  for (const { lanes, ...track } of data.tracks) {
    const own = { ...track, place: timelinePlain(track.machine), number: model.tracks.length, lanes: [] };
    for (const [slot, level, count] of lanes) {
      const lane = { track: own, number: model.lanes.length, slot, level, first, end: first + count };
      own.lanes.push(lane);
      model.lanes.push(lane);
      first = lane.end;
    }
    model.tracks.push(own);
  }
  let step = -1;
  for (const lane of model.lanes) {
    let at = 0;
    for (let i = lane.first; i < lane.end; i++) {
      at += spans.start[i];
      step += timelineSigned(spans.step[i]);
      model.start[i] = at;
      model.end[i] = at + spans.duration[i];
      model.step[i] = step;
    }
  }
  const texts = data.details.texts;
  for (const [span, error, attributes] of data.details.spans) {
    model.details.set(span, { error: texts[error], attributes: texts[attributes] });
  }
  return model;
}

function timelineSteps(columns, count) {
  const decoded = { count, start: new Float64Array(count), end: new Float64Array(count), number: new Float64Array(count) };
  let at = 0;
  let number = 0;
  for (let i = 0; i < count; i++) {
    at += columns.start[i];
    number += timelineSigned(columns.step[i]);
    decoded.start[i] = at;
    decoded.end[i] = at + columns.duration[i];
    decoded.number[i] = number;
  }
  return decoded;
}

/** Return the columns of numbers by name. */
async function timelineColumns(encoded, count) {
  const parts = [];
  let since = performance.now();
  for (const piece of encoded.pieces) {
    parts.push(timelineBytes(piece));
    if (performance.now() - since > TIMELINE_PAUSE_MS) {
      await new Promise((resume) => setTimeout(resume));
      since = performance.now();
    }
  }
  const stream = new Blob(parts).stream().pipeThrough(new DecompressionStream("gzip"));
  const raw = new Uint8Array(await new Response(stream).arrayBuffer());
  const numbers = {};
  let at = 0;
  for (const column of encoded.columns) {
    const bytes = raw.subarray(at, at + column.bytes * count);
    at += column.bytes * count;
    numbers[column.name] = column.bytes === 1 ? bytes : timelineNumbers(bytes, count, column.high);
  }
  return numbers;
}

function timelineBytes(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** Return numbers whose four bytes lie apart; `high` has what exceeds 32 bits. */
function timelineNumbers(bytes, count, high) {
  const numbers = high.length ? new Float64Array(count) : new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    numbers[i] = (bytes[i] | (bytes[count + i] << 8) | (bytes[2 * count + i] << 16) | (bytes[3 * count + i] << 24)) >>> 0;
  }
  for (const [place, more] of high) numbers[place] += more * 2 ** 32;
  return numbers;
}

/** Return the number of any sign that was written as a small positive one. */
function timelineSigned(value) {
  return value % 2 ? -(value + 1) / 2 : value / 2;
}
