"use strict";
// Parts of every page: the data block, elements, figures in words, appearance. Text is set with textContent only.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "on") for (const [event, listen] of Object.entries(value)) made.addEventListener(event, listen);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// -- figures in words, like otel_memwatch/text.py

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"], DECIMALS = [0, 1, 1, 2, 2, 2, 2];

// Rounds like Python: a tie goes to the even digit, but toFixed rounds up. Only odd multiples of a power of two can be ties.
function fixed(value, digits) {
  const text = value.toFixed(digits), ten = 10 ** digits, last = Math.round(Math.abs(Number(text)) * ten);
  if (Math.abs(value * 2 ** (digits + 1)) % 2 !== 1 || last % 2 === 0) return text;
  return (Math.sign(value) * (last + (Math.abs(Number(text)) > Math.abs(value) ? -1 : 1)) / ten).toFixed(digits);
}
function power(value) {
  let found = 0;
  while (found < 6 && Number(fixed(Math.abs(value) / 1024 ** found, DECIMALS[found])) >= 1024) found++;
  return found;
}
const number = (value, of) => fixed(value / 1024 ** of, DECIMALS[of]);
function size(value) {
  const of = power(value);
  return `${number(value, of)} ${UNITS[of]}`;
}
const change = (value) => (value < 0 ? "-" : value > 0 ? "+" : "") + size(Math.abs(value));
function sizeRange(low, high, joint) {
  const of = power(high), first = threeDigits(low, of), second = threeDigits(high, of);
  return first === second ? size(high) : `${first}${joint}${second} ${UNITS[of]}`;
}
// How far the one size of sizeRange may be from the true value; empty for two sizes.
function within(low, high) {
  const of = power(high);
  if (!high || threeDigits(low, of) !== threeDigits(high, of)) return "";
  const scale = 1024 ** of, shown = Number(fixed(high / scale, DECIMALS[of])), steps = 10 ** DECIMALS[of];
  const apart = Math.max(shown - low / scale, high / scale - shown);
  return `within ${fixed(Math.max(1, Math.ceil(apart * steps - 1e-9)) / steps, DECIMALS[of])} ${UNITS[of]}`;
}
function roundsToZero(low, high) {
  const of = power(high);
  return Number(threeDigits(low, of)) === 0 && Number(threeDigits(high, of)) > 0;
}
function threeDigits(value, of) {
  const scaled = value / 1024 ** of;
  return fixed(scaled, Math.max(0, Math.min(DECIMALS[of], 3 - String(Math.trunc(scaled)).length)));
}
const two = (value) => String(value).padStart(2, "0");
function duration(seconds) {
  if (seconds < 0) return "-" + duration(-seconds);
  if (Number(fixed(seconds, 3)) < 1) {
    const ms = seconds * 1000;
    return (seconds < 0.01 ? String(Number(ms < 1 ? ms.toPrecision(3) : fixed(ms, 2))) : fixed(ms, 0)) + " ms";
  }
  if (Number(fixed(seconds, 1)) < 60) return fixed(seconds, seconds >= 10 ? 1 : 2) + " s";
  const whole = Number(fixed(seconds, 0));
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  const minutes = Number(fixed(seconds / 60, 0));
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
  const hours = Number(fixed(seconds / 3600, 0));
  return `${Math.floor(hours / 24)} d ${two(hours % 24)} h`;
}
function peakFigure(peak) {
  if (!peak) return "";
  const [bytes, certainty, low, high] = peak;
  if (certainty === "interval") {
    const from = low ?? bytes;
    if (high === null) return from ? ">= " + size(from) : "-";
    return roundsToZero(from, high) ? "<= " + size(high) : sizeRange(from, high, "-");
  }
  if (certainty === "censored") return low ? sizeRange(low, bytes, "-") : "<= " + size(bytes);
  return size(bytes);
}
function certaintyWord(peak) {
  if (!peak) return "";
  if (peak[1] === "interval") {
    const from = peak[2] ?? peak[0];
    if (peak[3] === null) return from ? "at least" : "";
    return roundsToZero(from, peak[3]) ? "at most" : within(from, peak[3]) || "range";
  }
  return { exact: "exact", sampled: "sampled", censored: peak[2] ? within(peak[2], peak[0]) || "range" : "at most" }[peak[1]];
}

// -- appearance: colours come from the style sheet and follow the theme

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const AXIS = 68, RIGHT = 24;

function niceStep(span, most) {
  const raw = span / most, ten = 10 ** Math.floor(Math.log10(raw));
  return ten * ([1, 2, 5].find((s) => s * ten >= raw) || 10);
}
function sizeSplits(top, suffix) {
  const of = power(top), scale = 1024 ** of, step = niceStep(top / scale, 5) * scale, found = [];
  for (let i = 0; i * step <= top * 1.0001; i++) found.push(i * step);
  const digits = step / scale < 1 ? Math.ceil(-Math.log10(step / scale) - 1e-9) : 0;
  return { found, label: (v) => `${(v / scale).toFixed(digits)} ${UNITS[of]}${suffix || ""}` };
}
