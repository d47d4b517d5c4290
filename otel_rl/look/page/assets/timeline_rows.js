// Where the rows are: machines, the processes on them, and their lanes, from top to bottom.

const TIMELINE_HEAD = 20;
const TIMELINE_GAP = 4;
const TIMELINE_DEEP = 96;

/** Return rows with their places: `{kind: "machine" | "track" | "lane", y, height, ...}`, and the height of all. */
export function timelineRows(model, { room, nested }) {
  const lanes = model.lanes.filter((lane) => nested || lane.level === 0);
  const wanted = lanes.reduce((sum, lane) => sum + timelineLaneHeight(lane), 0);
  const machines = new Set(model.tracks.map((track) => track.machine)).size;
  const others = machines * TIMELINE_HEAD + model.tracks.length * TIMELINE_GAP;
  const shrunk = Math.min(1, Math.max(0, room - others) / Math.max(1, wanted));
  const rows = [];
  let y = 0;
  let machine = null;
  for (const track of model.tracks) {
    if (track.machine !== machine) {
      machine = track.machine;
      rows.push({ kind: "machine", machine: track.place, y, height: TIMELINE_HEAD });
      y += TIMELINE_HEAD;
    }
    const top = y;
    for (const lane of track.lanes) {
      if (!nested && lane.level > 0) continue;
      const height = Math.max(lane.level || timelineIsOneOfMany(lane) ? 5 : 9, Math.floor(timelineLaneHeight(lane) * shrunk));
      rows.push({ kind: "lane", lane, y, height: height - 1 });
      y += height;
    }
    rows.push({ kind: "track", track, y: top, height: y - top });
    y += TIMELINE_GAP;
  }
  return { rows, height: y };
}

function timelineLaneHeight(lane) {
  if (timelineIsOneOfMany(lane)) return lane.level ? 10 : 16;
  return lane.level ? 16 : 22;
}

/** Return whether a lane is one of those that run at the same time in a process. */
function timelineIsOneOfMany(lane) {
  return lane.track.lanes[lane.track.lanes.length - 1].slot > 0;
}

/** Return whether inner phases are shown at first: not if there are very many lanes. */
export function timelineStartsNested(model) {
  return model.lanes.length <= TIMELINE_DEEP;
}
