// Numbers and times as people read them: three significant digits, "41 s", "3 min 12 s". The rule of rounding and all
// texts are those of `recorder/facts/wording.py`, whose test draws numbers and compares both.

/** A number with three significant digits. */
export function numberText(value) {
  return value == null ? "" : significant(value, 0);
}

/** `power` moves the point of a number to the right; exactly, as a product with 10 does not. */
function significant(value, power) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return "0";
  const [digits, exponent] = decimal(value);
  let size = String(digits).length + exponent + power - 1;
  const shown = size < 6 ? Math.max(3, size + 1) : 3;
  if (String(inUnits(value, shown - 1 - size, power)).length > shown) size += 1; // 9.995 is 10
  if (size < -4 || size >= 6) {
    const units = String(inUnits(value, 2 - size, power));
    return `${value < 0 ? "-" : ""}${trimmed(`${units[0]}.${units.slice(1)}`)}e${size}`;
  }
  return trimmed(fixed(value, Math.max(0, 2 - size), power));
}

/** A number with so many decimals at most. */
export function decimalsText(value, decimals) {
  return trimmed(fixed(value, decimals, 0));
}

/** A number with so many decimals, halves rounded away from zero. */
function fixed(value, decimals, power) {
  if (!Number.isFinite(value)) return significant(value, 0);
  const units = inUnits(value, decimals, power);
  const text = String(units).padStart(decimals + 1, "0");
  const rest = decimals ? `.${text.slice(-decimals)}` : "";
  return `${value < 0 && units ? "-" : ""}${grouped(text.slice(0, text.length - decimals))}${rest}`;
}

/** The nearest whole number with separators, such as "1,200". */
export function wholeText(value) {
  return fixed(value, 0, 0);
}

export function secondsText(value) {
  if (!Number.isFinite(value)) return "unknown";
  if (value < 0) return `-${secondsText(-value)}`;
  if (value === 0) return "0 s";
  if (value < 0.9995) return `${significant(value, 3)} ms`;
  if (value < 59.95) return `${numberText(value)} s`;
  const nearest = inUnits(value, 0, 0);
  if (nearest < 3600n) return inTwo(nearest, 60n, "min", 1n, "s");
  if (nearest < 86370n) return inTwo(nearest, 3600n, "h", 60n, "min");
  return inTwo(nearest, 86400n, "d", 3600n, "h");
}

export function percentText(share) {
  if (!Number.isFinite(share)) return "unknown";
  if (share < 0) return `-${percentText(-share)}`;
  if (share > 0 && share < 0.001) return "less than 0.1 %";
  if (share >= 0.995 && share < 1) return `${trimmed(fixed(Math.min(share, 0.999), 1, 2))} %`;
  return `${trimmed(fixed(share, share < 0.01 ? 1 : 0, 2))} %`;
}

export function bytesText(value) {
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (Math.abs(value) >= (1 - 1 / 2048) * unit) return `${numberText(value / unit)} ${name}`;
  }
  return `${numberText(value)} B`;
}

/** The digits of the shortest decimal number that is read as this one, without its sign, and their power. */
function decimal(value) {
  const [mantissa, exponent] = Math.abs(value).toExponential().split("e");
  const [before, after = ""] = mantissa.split(".");
  return [BigInt(before + after), Number(exponent) - after.length];
}

/** A number without its sign in units of its last decimal, halves rounded up. */
function inUnits(value, decimals, power) {
  const [digits, exponent] = decimal(value);
  const dropped = -(exponent + power + decimals);
  if (dropped <= 0) return digits * 10n ** BigInt(-dropped);
  return (digits + 5n * 10n ** BigInt(dropped - 1)) / 10n ** BigInt(dropped);
}

function inTwo(nearest, unit, name, smaller, ofSmaller) {
  const parts = (nearest + smaller / 2n) / smaller;
  const rest = parts % (unit / smaller);
  const large = `${grouped(String(parts / (unit / smaller)))} ${name}`;
  return rest ? `${large} ${rest} ${ofSmaller}` : large;
}

function grouped(digits) {
  return digits.replace(/\B(?=(\d{3})+$)/g, ",");
}

function trimmed(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** How many names a search has found, and how many of them are drawn. */
export function foundText(found, all, drawn) {
  return `${wholeText(found)} of ${wholeText(all)} names${found > drawn ? `, the first ${wholeText(drawn)} are drawn` : ""}`;
}

/** How long ago something was, in its largest unit alone. */
export function agoText(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (whole >= 2 * size) return `${wholeText(Math.floor(whole / size))} ${unit}`;
  }
  return `${whole} s`;
}
