"use strict";
// Numbers and times as people read them: three significant digits, "41 s", "3 min 12 s". As `insight/wording.py`.

function numberText(value) {
  if (value == null) return "";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) {
    const [mantissa, exponent] = value.toExponential(2).split("e");
    return `${trimmed(mantissa)}e${Number(exponent)}`;
  }
  if (size >= 100) return Math.round(value).toLocaleString("en-US");
  return trimmed(value.toFixed(2 - Math.floor(Math.log10(size))));
}

function trimmed(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function wholeText(value) {
  return value.toLocaleString("en-US");
}

function secondsText(value) {
  if (!Number.isFinite(value)) return "unknown";
  if (value < 0) return `-${secondsText(-value)}`;
  if (value === 0) return "0 s";
  if (value < 0.9995) return `${numberText(value * 1e3)} ms`;
  if (value < 59.95) return `${numberText(value)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return twoUnits(whole, 60, "min", 1, "s");
  if (whole < 86400) return twoUnits(whole, 3600, "h", 60, "min");
  return twoUnits(whole, 86400, "d", 3600, "h");
}

function twoUnits(whole, unit, name, smaller, smallerName) {
  const rounded = Math.round(whole / smaller) * smaller;
  const rest = Math.round((rounded % unit) / smaller);
  const large = `${wholeText(Math.floor(rounded / unit))} ${name}`;
  return rest ? `${large} ${rest} ${smallerName}` : large;
}

function percentText(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.1) return "less than 0.1 %";
  return value > 0 && value < 1 ? `${value.toFixed(1)} %` : `${value.toFixed(0)} %`;
}

function bytesText(value) {
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (Math.abs(value) >= unit) return `${numberText(value / unit)} ${name}`;
  }
  return `${numberText(value)} B`;
}
