// The range of values that a chart shows. The rule and its constants are those of `recorder/facts/ranges.py`, whose test draws
// series and compares both.

const EDGE = 0.05, FAR = 5, LEAST = 0.05, DECADES = 1000, MOST = 4000;

/**
 * The range that shows the shape of most values: `{low, high, log}`. Few values that are far from all others, or a run
 * that diverged at its end, are outside of it. What varies by less than a twentieth of its size is drawn as nearly flat.
 */
export function valueRange(values) {
  const every = Math.ceil(values.length / MOST) || 1;
  const known = values.filter((value, at) => Number.isFinite(value) && at % every === 0).sort((a, b) => a - b);
  if (!known.length) return {low: 0, high: 1, log: false};
  const [left, right] = [at(known, EDGE), at(known, 1 - EDGE)];
  const far = FAR * (right - left);
  const inside = far > 0 ? known.filter((value) => value >= left - far && value <= right + far) : known;
  const [low, high] = [inside[0], inside[inside.length - 1]];
  if (known[0] > 0 && right / left >= DECADES) return {low: known[0], high: known[known.length - 1], log: true};
  const lacking = LEAST * Math.max(Math.abs(low), Math.abs(high)) - (high - low);
  if (!(lacking > 0)) return {low, high, log: false};
  return {low: Math.max(low - lacking / 2, -Number.MAX_VALUE), high: Math.min(high + lacking / 2, Number.MAX_VALUE), log: false};
}

/** The range of several lines: lines that are far from most others, such as those of runs that diverged, are outside. */
export function sharedRange(lines) {
  const ranges = lines.map(valueRange).sort((a, b) => a.high - a.low - (b.high - b.low));
  const middle = ranges[(ranges.length - 1) >> 1];
  const far = FAR * (middle.high - middle.low);
  const kept = ranges.filter(({low, high}) => low >= middle.low - far && high <= middle.high + far);
  return {low: Math.min(...kept.map(({low}) => low)), high: Math.max(...kept.map(({high}) => high))};
}

function at(sorted, share) {
  return sorted[Math.floor(share * (sorted.length - 1) + 0.5)];
}
