"use strict";
// Replaces the static picture and tables with charts and sortable tables. Text is set with textContent only, so names are
// never markup. The static page has every figure too, for readers without scripts.
(() => {
// -- columns: differences become values

function values(steps, unit) {
  let level = 0;
  return steps.map((step) => (step === null ? null : (level += step) * unit));
}
const column = (made) => (made ? values(made.steps, made.unit) : null);
const whole = Math.max(data.seconds, 1e-3);
const ends = values(data.buckets.ends, 0.001).map((end) => Math.min(end, whole));   // the last sample is taken after the end
const holes = new Map(data.buckets.holes.map(([index, ms]) => [index, ms / 1000]));
// The first window starts at the beginning of the run if high-water marks cover it.
const windows = data.memory.length > 0 && Boolean(data.memory[0].most);
const begins = ends.map((end, i) => (holes.has(i) ? holes.get(i) : i ? ends[i - 1] : windows || end < 3 * (data.interval || 0.1) ? 0 : end));

// Each stretch of time has two points, its beginning and its end: a value holds for the whole stretch.
// Gaps of the record are empty, except in `covered` columns: a high-water mark includes the gap.
const stretches = ends.map((end, i) => ({ begin: begins[i], end, hole: holes.has(i) }));
function asSteps(columns, covered, over = stretches) {
  const x = [], y = columns.map(() => []);
  over.forEach(({ begin, end, hole }, i) => {
    const last = x.length ? x[x.length - 1] : -Infinity;
    if (hole) { x.push(last + (begin - last) * 1e-3); y.forEach((one, c) => one.push(covered && covered(c) ? columns[c][i] : null)); }
    for (const time of [begin + (end - begin) * 1e-3, end]) {
      if (x.length && time <= x[x.length - 1]) continue;
      x.push(time);
      y.forEach((one, c) => one.push(columns[c][i]));
    }
  });
  return [x, ...y];
}
// Joins stretches: each ends at one of these places and begins at the end of the one before, which continues over a gap of
// the record. `at` has the index of the place with the values of each stretch.
function held(places) {
  const over = [], at = [];
  places.forEach((place, k) => {
    const before = k ? ends[places[k - 1]] : begins[place];
    let begin = before;
    for (let i = k ? places[k - 1] + 1 : place + 1; i <= place; i++) if (holes.has(i)) begin = holes.get(i);
    if (begin > before) { over.push({ begin: before, end: begin }); at.push(k - 1); }
    over.push({ begin, end: ends[place] });
    at.push(k);
  });
  return { over, at };
}

// Mean rates of counters, over stretches that are long enough for the kernel's hundredths of a second.
function asRates(counters) {
  const shortest = Math.max(0.1, whole / 600) * 0.98, x = [], y = counters.map(() => []);
  let from = -1;
  const known = (i) => counters.every((one) => one[i] !== null && one[i] !== undefined);
  ends.forEach((end, i) => {
    if (!known(i)) return;
    if (from < 0) { from = i; return; }
    const seconds = end - ends[from];
    if (seconds < shortest && !(i === ends.length - 1 && seconds > shortest / 2)) return;
    for (const time of [ends[from] + seconds * 1e-3, end]) {
      x.push(time);
      y.forEach((one, c) => one.push(Math.max(0, counters[c][i] - counters[c][from]) / seconds));
    }
    from = i;
  });
  return [x, ...y];
}

const STEPS = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
  7200, 10800, 21600, 43200, 86400, 172800, 604800];
function timeLabel(value, step, longest) {
  if (longest < 1 || step < 0.1 && longest < 10) return `${Number((value * 1000).toFixed(step < 1e-3 ? 1 : 0))} ms`;
  if (longest < 180) return `${value.toFixed(step < 0.1 ? 2 : step < 1 ? 1 : 0)} s`;
  const s = Math.round(value), clock = `${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
  if (longest < 10800) return step >= 60 ? `${Math.round(value / 60)} min` : `${Math.floor(s / 60)}:${two(s % 60)}`;
  return step >= 3600 ? `${Math.round(value / 3600)} h` : `${Math.floor(s / 3600)}:${step >= 60 ? clock.slice(0, 2) : clock}`;
}

// -- charts: one time axis for all

const charts = [];
let view = [0, whole], settingView = false;

function setView(min, max, announce) {
  const shortest = Math.max(whole / 20000, 1e-4);
  if (max - min < shortest) { const middle = (min + max) / 2; min = middle - shortest / 2; max = middle + shortest / 2; }
  min = Math.max(0, min); max = Math.min(whole, max);
  view = [min, max];
  settingView = true;
  for (const chart of charts) chart.setScale("x", { min, max });
  settingView = false;
  const all = min <= 0 && max >= whole;
  reset.hidden = all;
  span.textContent = all ? "" : `${duration(min)} to ${duration(max)}`;
  span.parentNode.classList.toggle("zoomed", !all);
  for (const table of tables) table.timeFilter(all ? null : [min, max]);
  if (announce) say(all ? "whole run" : `from ${duration(min)} to ${duration(max)}`);
}

const tables = [];
const live = element("p", { "aria-live": "polite", class: "quiet-voice" });
let saying = 0;
function say(words) {
  clearTimeout(saying);
  saying = setTimeout(() => { live.textContent = words; }, 250);
}

// Only the first and the last chart have time labels; all charts share the axis.
const timed = (u) => charts.length === 0 || u === charts[0] || u === charts[charts.length - 1];

function axes(splits) {
  const line = { stroke: () => colour("line"), width: 1 };
  return [
    {
      scale: "x", font: FONT, stroke: () => colour("soft"), grid: { show: false }, ticks: { ...line, size: 4 }, gap: 4,
      incrs: STEPS, space: 76, size: (u) => (u && timed(u) ? 28 : 6),
      values: (u, found, _, __, step) => found.map((v) => (timed(u) ? timeLabel(v, step, view[1]) : "")),
    },
    {
      scale: "y", font: FONT, stroke: () => colour("soft"), grid: line, ticks: { show: false }, size: AXIS, gap: 6,
      splits: () => splits.found, values: (u, found) => found.map(splits.label),
    },
  ];
}

// One chart with a title and a legend; entries of the legend show the value under the cursor.
function addChart(into, { title, note, height, xy, series, top, splits, text, draw, toggles, describe }) {
  const legend = element("ul", { class: "legend" }), plot = element("div", { class: "plot" });
  const box = element("div", { class: "chart" },
    element("div", { class: "head" }, element("h3", {}, title), legend), plot, note ? element("p", { class: "more" }, note) : null);
  into.append(box);
  const shown = [];
  const options = {
    width: Math.max(240, plot.clientWidth), height, padding: [8, RIGHT, 0, 0],
    scales: { x: { time: false, range: () => view }, y: { range: () => [0, top()] } },
    legend: { show: false },
    cursor: {
      y: false, sync: { key: "run", scales: ["x", null] }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => setView(0, whole, true) },
      points: { size: 7, width: 1.5, fill: () => colour("page") },
    },
    select: { show: true, left: 0, top: 0, width: 0, height: 0 },
    series: [{}, ...series.map((one) => ({
      label: one.label, show: one.shown !== false, spanGaps: Boolean(one.connect), width: one.width ?? 1.6, dash: one.dash,
      stroke: () => colour(one.colour), fill: one.fill ? () => colour(one.fill) : undefined, points: { show: Boolean(one.points), size: 5 },
    }))],
    bands: series.flatMap((one, i) => (one.bandTo === undefined ? [] : [{ series: [i + 1, one.bandTo + 1], fill: () => colour(one.bandFill) }])),
    axes: axes(splits),
    hooks: {
      draw: draw ? [draw] : [],
      setSelect: [(u) => {
        if (u.select.width < 3) return;
        const from = u.posToVal(u.select.left, "x"), to = u.posToVal(u.select.left + u.select.width, "x");
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        setView(from, to, true);
      }],
      setCursor: [(u) => {
        const at = u.cursor.idx;
        shown.forEach(({ place, value }) => {
          const known = at === null || at === undefined ? null : series[place].raw ? series[place].raw[at] : u.data[place + 1][at];
          value.textContent = known === null || known === undefined ? "" : text(known);
        });
      }],
    },
  };
  const u = new uPlot(options, xy, plot);
  series.forEach((one, place) => {
    if (one.silent) return;
    const value = element("span", { class: "value" });
    const swatch = element("span", { class: "swatch" + (one.points ? " dot" : one.dash ? " dashed" : "") });
    swatch.style.setProperty("--swatch", `var(--${one.fillLegend || one.colour})`);
    let entry;
    if (toggles) {
      entry = element("button", { type: "button", "aria-pressed": String(one.shown !== false), title: (one.how ? one.how + " " : "") + "Click to show or hide.", on: { click: () => {
        const show = entry.getAttribute("aria-pressed") !== "true";
        entry.setAttribute("aria-pressed", String(show));
        for (const other of [place, ...(one.companions || [])]) u.setSeries(other + 1, { show });
      } } }, swatch, one.label);
    } else entry = element("span", { class: "entry", title: one.how }, swatch, one.label);
    legend.append(element("li", {}, entry, value));
    shown.push({ place, value });
  });
  u.over.setAttribute("aria-hidden", "true");
  if (describe) box.setAttribute("aria-label", describe);
  charts.push(u);
  u.box = box;
  return u;
}

function clipped(u, paint) {
  const c = u.ctx, ratio = uPlot.pxRatio || devicePixelRatio;
  c.save();
  c.beginPath();
  c.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  c.clip();
  c.font = `${12 * ratio}px system-ui, sans-serif`;
  paint(c, ratio);
  c.restore();
}

// memory: the curve that answers the question sets the scale; sums of resident sizes are clipped by it
function memoryChart(into) {
  const lines = data.memory;
  if (!lines.length || !ends.length) return;
  const columns = [], series = [];
  const add = (one, values) => { series.push(one); columns.push(values); return series.length - 1; };
  let top = 0;
  lines.forEach((line, i) => {
    const high = column(line.high), first = i === 0;
    const place = add({ label: line.label, how: line.how, shown: first, windows: first, colour: line.id, width: first ? 1.8 : 1.3, points: line.id === "pss", dash: line.id === "group" ? [6, 4] : undefined,
      fill: first && !line.low ? (line.id === "needed" ? "needed-fill" : "cpu-fill") : undefined }, high);
    if (first) {
      for (const v of high) if (v > top) top = v;
      series[place].companions = [];
      if (line.low) {
        const low = add({ label: "", colour: line.id, width: 0, silent: true }, column(line.low));
        series[place].bandTo = low;
        series[place].bandFill = line.id === "needed" ? "needed-band" : "cpu-fill";
        series[low].fill = line.id === "needed" ? "needed-fill" : "cpu-fill";
        series[place].companions.push(low);
      }
      const most = line.most && column(line.most);
      if (most && most.some((v, at) => v !== null && high[at] !== null && v - high[at] > 0.02 * v && v - high[at] > 2 ** 21)) {
        const upper = add({ label: "upper bound", windows: true, how: "Upper bound of needed memory between samples.", colour: "needed-faint", width: 1, dash: [2, 3] }, most);
        series[upper].bandTo = place;
        series[upper].bandFill = "needed-band";
      }
    }
  });
  const peak = data.peak, limit = data.limit;
  if (peak) top = Math.max(top, peak.high !== null && peak.high < 4 * peak.bytes ? peak.high : peak.bytes);
  const near = limit && limit.bytes <= 3 * top;
  if (near) top = Math.max(top, limit.bytes);
  top = Math.max(top, 4096) * 1.14;
  const draw = (u) => clipped(u, (c, ratio) => {
    c.textBaseline = "alphabetic";
    c.setLineDash([]);
    const x = (t) => u.valToPos(t, "x", true), y = (v) => u.valToPos(v, "y", true);
    const right = u.bbox.left + u.bbox.width;
    const words = peak && peak.at !== null ? `peak ${peakFigure([peak.bytes, peak.certainty, peak.low, peak.high])}` : "";
    const at = words ? x(Math.min(peak.at, whole)) : right, level = words ? y(peak.bytes) : 0;
    const room = 9 * ratio + c.measureText(words).width, left = at + room + ratio > right;
    // The line of the limit would cross the label: then put it above that line, like the label of the limit.
    const crossed = words && near && Math.abs(y(limit.bytes) - level + 11 * ratio) < 16 * ratio;
    if (near) {
      c.strokeStyle = c.fillStyle = colour("limit");
      c.lineWidth = 1.4 * ratio;
      c.setLineDash([7 * ratio, 5 * ratio]);
      c.beginPath(); c.moveTo(u.bbox.left, y(limit.bytes)); c.lineTo(right, y(limit.bytes)); c.stroke();
      c.setLineDash([]);
      c.textAlign = "left";
      const text = `limit of the ${limit.whose}, ${size(limit.bytes)}`, begin = u.bbox.left + 8 * ratio;
      const narrow = crossed && (left ? at - room : at) < begin + c.measureText(text).width;   // no room for both above the line
      c.fillText(text, begin, y(limit.bytes) + (narrow ? 14 : -6) * ratio);
    }
    // Time without progress: a band at the bottom, as dense as the share.
    for (const [from, to, ...shares] of data.stalls) {
      const share = Math.max(...shares);
      c.fillStyle = colour(shares[0] === share ? "limit" : "main");
      c.globalAlpha = 0.15 + 0.75 * share;
      c.fillRect(x(from), u.bbox.top + u.bbox.height - 7 * ratio, Math.max(ratio, x(to) - x(from)), 7 * ratio);
      c.globalAlpha = 1;
    }
    for (const time of data.kills) {
      c.strokeStyle = c.fillStyle = colour("limit");
      c.lineWidth = 1.4 * ratio;
      c.setLineDash([2 * ratio, 3 * ratio]);
      c.beginPath(); c.moveTo(x(time), u.bbox.top); c.lineTo(x(time), u.bbox.top + u.bbox.height); c.stroke();
      c.setLineDash([]);
      c.textAlign = x(time) > right - 70 * ratio ? "right" : "left";
      c.fillText("OOM kill", x(time) + (c.textAlign === "right" ? -5 : 5) * ratio, u.bbox.top + u.bbox.height - 8 * ratio);
    }
    if (words) {
      c.strokeStyle = c.fillStyle = colour("ink");
      c.lineWidth = 1.6 * ratio;
      if (peak.certainty === "interval" && peak.high !== null) {
        c.beginPath(); c.moveTo(at, y(peak.low)); c.lineTo(at, y(peak.high));
        for (const v of [peak.low, peak.high]) { c.moveTo(at - 5 * ratio, y(v)); c.lineTo(at + 5 * ratio, y(v)); }
        c.stroke();
      } else {
        c.beginPath(); c.arc(at, level, 4.5 * ratio, 0, 7); c.stroke();
      }
      c.textAlign = left ? "right" : "left";
      c.fillText(words, at + (left ? -9 : 9) * ratio, Math.max((crossed ? Math.min(y(limit.bytes), level) : level) - 7 * ratio, u.bbox.top + 12 * ratio));
    }
  });
  const far = limit && !near ? `Limit: ${size(limit.bytes)} (${limit.whose}), above this scale. ` : "";
  const reasons = ["short of memory", "throttled by the CPU limit", "of waiting for processors that other programs used"]
    .filter((_, kind) => data.stalls.some((one) => one[2 + kind] === Math.max(...one.slice(2))));
  const slow = reasons.length ? `The band at the bottom marks time ${reasons.join(" or ")}. ` : "";
  const apart = data.step ? `Each point is the maximum of ${duration(data.step)}.` : "";
  return addChart(into, { title: "Memory", note: ((lines[0].id === "sum" ? lines[0].how + " " : "") + far + slow + apart).trim() || null, height: window.innerWidth < 600 ? 240 : 300, xy: asSteps(columns, (c) => windows && series[c].windows), series, top: () => top,
    splits: sizeSplits(top), text: size, draw, toggles: true });
}

// operations: rectangles in lanes, merged by pixel, but for the one that holds the peak
const HUES = ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"], hues = new Map();
function hue(name) {
  if (!hues.has(name)) hues.set(name, HUES[hues.size % HUES.length]);
  return hues.get(name);
}
function stem(name) { return name.replace(/[\s_:#-]*\d[\d.,/:]*\s*$/, "") || name; }

// Shortens a name to the available width; empty if too little is left to distinguish names.
function fitted(c, words, room) {
  if (c.measureText(words).width <= room) return words;
  let left = words.length - 1;
  while (left > 3 && c.measureText(words.slice(0, left) + "\u2026").width > room) left--;
  return left > 3 ? words.slice(0, left).trimEnd() + "\u2026" : "";
}

function lanesChart(into) {
  const found = data.operations;
  if (!found || !found.bars.length) return;
  const LANE = 22, bars = found.bars, lanes = found.lanes.length;
  const byLane = found.lanes.map(() => []);
  for (const bar of bars) { byLane[bar[0]].push(bar); hue(stem(bar[3])); }
  const height = lanes * LANE + 44;
  const draw = (u) => clipped(u, (c, ratio) => {
    const scale = u.bbox.width / (view[1] - view[0]), left = u.bbox.left - view[0] * scale;
    const palette = Object.fromEntries(HUES.map((name) => [name, colour(name)]));
    const ink = colour("ink"), bad = colour("limit"), onHue = colour("on-hue");
    c.textBaseline = "middle";
    byLane.forEach((list, lane) => {
      const y = u.bbox.top + (lane * LANE + 3) * ratio, h = (LANE - 5) * ratio;
      let painted = -Infinity;
      for (const bar of list) {
        const from = left + bar[1] * scale, to = Math.max(left + (bar[1] + bar[2]) * scale, from + ratio);
        if (to < u.bbox.left || from > u.bbox.left + u.bbox.width) continue;
        if (to <= painted && !(bar[6] & 5)) continue;
        painted = to;
        const shown = Math.max(from, u.bbox.left), width = Math.min(to, u.bbox.left + u.bbox.width) - shown;
        c.fillStyle = palette[hue(stem(bar[3]))];
        c.fillRect(shown, y, Math.max(ratio, width - (width > 3 * ratio ? ratio : 0)), h);
        if (bar[6] & 1) { c.fillStyle = bad; c.fillRect(shown, y + h - 3 * ratio, width, 3 * ratio); }
        if (bar[6] & 4) { c.strokeStyle = ink; c.lineWidth = 2 * ratio; c.strokeRect(shown + ratio, y, Math.max(2 * ratio, width - 2 * ratio), h); }
        const words = bar[4] > 1 ? `${bar[4]} ${bar[3] ? "x " + bar[3] : "operations"}` : bar[3];
        const fits = width > 26 * ratio ? fitted(c, words, width - 10 * ratio) : "";
        if (fits) { c.fillStyle = onHue; c.textAlign = "left"; c.fillText(fits, shown + 5 * ratio, y + h / 2 + ratio); }
      }
    });
  });
  const u = addChart(into, { title: "Operations", height, xy: [[0, whole], [null, null]], series: [{ label: "", colour: "ink", silent: true }], top: () => lanes * LANE,
    splits: { found: found.lanes.map((_, i) => (lanes - i - 0.5) * LANE), label: (v) => found.lanes[Math.round(lanes - v / LANE - 0.5)] || "" }, text: String, draw,
    note: found.hidden ? `${found.hidden} operations in deeper lanes are not drawn.` : null });
  // Small bars have no room for a name: the legend names the colours.
  const kinds = [...hues.keys()].filter(Boolean), legend = u.box.querySelector(".legend");
  for (const kind of kinds.slice(0, HUES.length)) {
    const swatch = element("span", { class: "swatch block" });
    swatch.style.setProperty("--swatch", `var(--${hue(kind)})`);
    legend.append(element("li", {}, element("span", { class: "entry" }, swatch, kind)));
  }
  if (kinds.length > HUES.length) legend.append(element("li", {}, `${kinds.length - HUES.length} more`));
  const hint = element("p", { class: "hint more" }, "Click an operation to zoom in.");
  u.box.querySelector(".head").append(hint);
  const under = (event) => {
    const box = u.over.getBoundingClientRect(), lane = Math.floor((event.clientY - box.top) / (box.height / lanes));
    const time = u.posToVal(event.clientX - box.left, "x"), slack = (view[1] - view[0]) / box.width * 2;
    return (byLane[lane] || []).find((bar) => bar[1] - slack <= time && time <= bar[1] + bar[2] + slack);
  };
  let pressed = 0;
  u.over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
  u.over.addEventListener("mousemove", (event) => {
    const bar = under(event);
    u.over.style.cursor = bar ? "pointer" : "";
    if (!bar) { hint.textContent = "Click an operation to zoom in."; return; }
    const row = bar[5] >= 0 ? found.rows[bar[5]] : null, peak = row && (row.tree || row.peak);
    hint.textContent = `${bar[4] > 1 ? bar[4] + " operations " : ""}${bar[3]}: ${duration(bar[2])} from ${duration(bar[1])}${peak ? ", needed " + peakFigure(peak) + " (" + certaintyWord(peak) + ")" : ""}`;
  });
  u.over.addEventListener("mouseleave", () => { hint.textContent = "Click an operation to zoom in."; });
  u.over.addEventListener("click", (event) => {
    const bar = Math.abs(event.clientX - pressed) < 4 && under(event);
    if (bar) setView(bar[1] - bar[2] * 0.02, bar[1] + bar[2] * 1.02, true);
  });
}

// processes: areas on top of each other, the largest at the bottom; opaque, because each covers the sum below it
function stackChart(into) {
  const found = data.processes.stack;
  if (!found) return;
  const raw = found.kib.map((one) => one.map((v) => v * 1024)), running = found.at.map(() => 0), sums = [];
  for (const one of raw) { one.forEach((v, k) => { running[k] += v; }); sums.push(running.slice()); }
  let top = 4096;
  for (const v of running) if (v > top) top = v;
  top *= 1.06;
  const order = sums.map((_, i) => sums.length - 1 - i);
  const { over, at } = held(found.at);
  const [x, ...steps] = asSteps([...order.map((i) => sums[i]), ...order.map((i) => raw[i])].map((one) => at.map((k) => one[k])), null, over);
  const series = order.map((i, k) => ({ label: found.names[i], colour: "page", fill: i === found.pids.length ? "rest" : `s${i + 1}`, fillLegend: i === found.pids.length ? "rest" : `s${i + 1}`,
    width: 0.8, raw: steps[order.length + k] }));
  return addChart(into, { title: "Processes", height: 210, xy: [x, ...steps.slice(0, order.length)], series, top: () => top, splits: sizeSplits(top), text: size,
    note: "Resident sizes. Every sample has the total; each process is read at most once per second and interpolated between readings. Shared pages count in each process, so the sum may exceed needed memory." });
}

function cpuChart(into) {
  const found = data.cpu;
  if (!found) return;
  const names = Object.keys(found.counters), counters = names.map((name) => values(found.counters[name], 0.001));
  const rates = asRates(counters);
  if (rates[0].length < 8) return;   // two or three blocks show less than the total
  const both = rates[1].map((_, i) => rates.slice(1).reduce((sum, one) => sum + one[i], 0));
  let top = 0.1;
  for (const v of both) if (v > top) top = v;
  if (found.cpus && found.cpus <= 2 * top) top = Math.max(top, found.cpus);
  top *= 1.08;
  const step = niceStep(top, 4), splits = { found: [], label: (v) => Number(v.toFixed(2)) + (v === 1 ? " core" : " cores") };
  for (let v = 0; v <= top; v += step) splits.found.push(v);
  const series = [{ label: names.length > 1 ? "all" : names[0], colour: "sum", fill: "cpu-fill", width: 1.2 }];
  const xy = [rates[0], both];
  const system = names.indexOf("system");
  if (system >= 0 && names.length > 1) { series.push({ label: "kernel", colour: "main", fill: "kernel-fill", width: 1 }); xy.push(rates[system + 1]); }
  addChart(into, { title: "CPU", height: 150, xy, series, top: () => top, splits, text: (v) => `${v.toFixed(2)} cores`, note: null });
}

function ioChart(into) {
  const found = data.io;
  if (!found) return;
  const LOOK = { disk_read: ["read from disk", "sum"], disk_write: ["written to disk", "main"], calls_read: ["read by system calls", "sum", [3, 3]], calls_write: ["written by system calls", "main", [3, 3]] };
  const names = Object.keys(found), rates = asRates(names.map((name) => column(found[name])));
  if (rates[0].length < 8) return;
  let top = 2 ** 20;
  for (const one of rates.slice(1)) for (const v of one) if (v > top) top = v;
  top *= 1.08;
  addChart(into, { title: "I/O", height: 150, xy: rates, series: names.map((name) => ({ label: LOOK[name][0], colour: LOOK[name][1], dash: LOOK[name][2], width: 1.3 })), top: () => top,
    splits: sizeSplits(top, "/s"), text: (v) => size(v) + "/s" });
}

function gpuCharts(into) {
  const used = [], series = [], busy = [], busySeries = [];
  let top = 2 ** 20;
  data.gpus.forEach((gpu, i) => {
    for (const [key, words, dash] of [["used", "", undefined], ["held", " (this run)", [3, 3]]]) {
      const found = column(gpu[key]);
      if (!found) continue;
      for (const v of found) if (v > top) top = v;
      used.push(found);
      series.push({ label: gpu.label + words, colour: `s${(i % 8) + 1}`, dash, width: 1.5, connect: true });
    }
    if (gpu.peak) top = Math.max(top, gpu.peak.bytes);
    if (gpu.busy) { busy.push(values(gpu.busy, 0.1)); busySeries.push({ label: gpu.label, colour: `s${(i % 8) + 1}`, width: 1.2, connect: true }); }
  });
  top *= 1.1;
  if (used.length) addChart(into, { title: "GPU memory", height: 180, note: "The driver is read up to five times a second, less often while it answers slowly. Lines connect readings.", xy: asSteps(used), series, top: () => top, splits: sizeSplits(top), text: size });
  if (busy.length) addChart(into, { title: "GPU busy", height: 130, xy: asSteps(busy), series: busySeries, top: () => 105,
    splits: { found: [0, 50, 100], label: (v) => v + " %" }, text: (v) => v.toFixed(0) + " %" });
}

// -- tables

const reset = element("button", { type: "button", hidden: true, on: { click: () => setView(0, whole, true) } }, "Whole run");
const span = element("span", { class: "span" });
const SHOWN = 60;
const looks = (column) => [column.number ? "number" : "", column.wide ? "wide" : ""].join(" ").trim() || null;   // "wide": hidden on a phone

// A table that sorts by its headers, filters by a word and by the time that the charts show.
function makeTable(holder, name, columns, rows, { groups, detail }) {
  let order = null, down = true, word = "", time = null, shown = SHOWN, grouped = Boolean(groups);
  const body = element("tbody"), state = element("p", { class: "more", "aria-live": "polite" });
  const more = element("button", { type: "button", class: "plain", on: { click: () => { shown += 400; fill(); } } });
  const search = element("input", { type: "search", placeholder: "Filter by name", "aria-label": `Filter ${name} by name`, on: { input: () => { word = search.value.toLowerCase(); shown = SHOWN; fill(); } } });
  const ways = groups ? element("button", { type: "button", "aria-pressed": "true", on: { click: () => { grouped = !grouped; ways.setAttribute("aria-pressed", String(grouped)); fill(); } } }, "Group by name") : null;
  const headers = columns.map((one) => {
    const button = element("button", { type: "button", on: { click: () => {
      if (order === one && down === !one.text) down = !down;
      else if (order === one) { order = null; }
      else { order = one; down = !one.sortText; }
      mark(); fill();
    } } }, one.title);
    return one.title ? element("th", { scope: "col", class: looks(one) }, button) : element("td", { class: looks(one) });
  });
  function mark() {
    columns.forEach((one, i) => {
      if (order === one) headers[i].setAttribute("aria-sort", down ? "descending" : "ascending");
      else headers[i].removeAttribute("aria-sort");
    });
  }
  function line(row) {
    const tr = element("tr", { class: [row.top ? "top" : "", row.bad || row.status === "error" ? "bad" : ""].join(" ").trim() || null, "data-bytes": row.peak ? row.peak[0] : null, "data-tree-bytes": row.tree ? row.tree[0] : null });
    columns.forEach((one) => {
      const td = element("td", { class: looks(one), "data-label": one.number ? one.title : null });
      if (one.first) {
        const pad = element("span", { class: "indent" });
        if (!order && !word) pad.style.width = `${Math.min(row.depth || 0, 14) * 1.1}em`;
        td.append(element("div", { class: "first" }, pad, element("button", { type: "button", class: "plain name", title: row.command || row.attributes || row.name, on: { click: () => choose(row, tr) } }, row.name),
          row.times ? element("span", { class: "more" }, `x ${row.times}`) : null));
      } else td.textContent = one.show(row);
      tr.append(td);
    });
    return tr;
  }
  function choose(row, tr) {
    if (row.times) { grouped = false; ways.setAttribute("aria-pressed", "false"); search.value = row.name; word = row.name.toLowerCase(); fill(); return; }
    const open = tr.nextSibling && tr.nextSibling.className === "detail";
    for (const other of body.querySelectorAll(".detail")) other.remove();
    if (open) { setView(0, whole, true); return; }
    const words = detail(row);
    if (words) tr.after(element("tr", { class: "detail" }, element("td", { colspan: columns.length }, words)));
    const filter = table.timeFilter;
    table.timeFilter = () => {};   // keep the chosen row visible
    setView(row.start - row.seconds * 0.02, row.start + row.seconds * 1.02, true);
    table.timeFilter = filter;
  }
  function fill() {
    const source = grouped && !word ? groups : rows;
    let found = source.filter((row) => (!word || row.name.toLowerCase().includes(word) || (row.command || "").toLowerCase().includes(word) || String(row.pid) === word)
      && (!time || row.times || (row.start <= time[1] && row.start + row.seconds >= time[0])));
    if (order) {
      found = found.slice().sort((a, b) => {
        const x = order.sort(a), y = order.sort(b);
        const less = order.sortText ? String(x).localeCompare(String(y)) : (x ?? -1) - (y ?? -1);
        return down ? -less : less;
      });
    }
    body.replaceChildren(...found.slice(0, shown).map(line));
    more.hidden = found.length <= shown;
    more.textContent = `${found.length - shown} more`;
    state.textContent = word || time ? `${found.length} of ${rows.length} shown${time ? " (" + duration(time[0]) + " to " + duration(time[1]) + ")" : ""}.` : "";
  }
  const tools = rows.length > 8 || groups ? element("div", { class: "tools" }, search, ways) : null;
  holder.replaceChildren(...[tools, element("div", { class: "scroll" }, element("table", { class: "stacked" }, element("thead", {}, element("tr", {}, ...headers)), body)), more, state].filter(Boolean));
  const table = { timeFilter: (range) => { time = range; shown = SHOWN; fill(); } };
  tables.push(table);
  fill();
}

const maybe = (value, show) => (value === undefined || value === null ? "" : show(value));
function operationsTable() {
  const found = data.operations;
  if (!found) return;
  const several = new Set(found.rows.map((row) => row.pid)).size > 1, trees = found.rows.some((row) => row.tree);
  const columns = [
    { title: "operation", first: true, sort: (r) => r.name, sortText: true },
    several ? { title: "pid", wide: true, number: true, sort: (r) => r.pid, show: (r) => maybe(r.pid, String) } : null,
    { title: "start", wide: true, number: true, sort: (r) => r.start, show: (r) => maybe(r.start, duration) },
    { title: "duration", number: true, sort: (r) => r.seconds, show: (r) => duration(r.seconds) },
    trees ? { title: "needed", number: true, sort: (r) => (r.largest ?? (r.tree || [])[0]), show: (r) => (r.times ? (r.largest > 0 ? size(r.largest) : "") : peakFigure(r.tree)) } : null,
    trees ? { title: "", sort: () => 0, show: (r) => (r.times ? (r.largest > 0 ? "largest" : "") : certaintyWord(r.tree)) } : null,
    { title: "resident", optional: true, wide: true, number: true, sort: (r) => r.resident ?? (r.peak || [])[0], show: (r) => (r.times ? maybe(r.resident, size) : peakFigure(r.peak)) },
    { title: "", optional: true, wide: true, sort: () => 0, show: (r) => (r.times ? (r.resident === undefined ? "" : "largest") : certaintyWord(r.peak)) },
    { title: "change", optional: true, wide: true, number: true, sort: (r) => r.change, show: (r) => maybe(r.change, change) },
    { title: "CPU", wide: true, number: true, sort: (r) => r.cpu, show: (r) => maybe(r.cpu, duration) },
    { title: "", sort: () => 0, show: (r) => [r.top ? "the run's peak" : "", r.status === "error" ? "failed" + (r.error ? ": " + r.error : "") : r.status === "open" ? "open at the end" : ""].filter(Boolean).join(", ") },
  ].filter((one) => one && (!one.optional || found.rows.some((row) => one.show(row) !== "")));
  let groups = null;
  if (found.groups.length && found.rows.length > 12) {
    const named = new Map(found.groups.map((group) => [group.name, group])), met = new Set();
    groups = found.rows.flatMap((row) => {
      const kind = row.series || row.name, group = named.get(kind);
      if (!group) return [row];
      if (met.has(kind)) return [];
      met.add(kind);
      return [{ ...group, start: row.start, depth: row.depth, top: found.rows.some((other) => (other.series || other.name) === kind && other.top) }];
    });
  }
  const holder = $("operations");
  makeTable(holder, "operations", columns, found.rows, { groups, detail: (r) => [r.attributes, `from ${duration(r.start)} to ${duration(r.start + r.seconds)}`].filter(Boolean).join("; ") });
  if (found.total > found.rows.length) holder.append(element("p", { class: "more" }, `The largest and longest operations are listed; ${found.total - found.rows.length} more are in otel-memwatch report --json.`));
}

function processesTable() {
  const found = data.processes;
  if (!found.rows.length) return;
  const reads = found.rows.some((row) => row.read), writes = found.rows.some((row) => row.write);
  const columns = [
    { title: "process", first: true, sort: (r) => r.name, sortText: true },
    { title: "pid", wide: true, number: true, sort: (r) => r.pid, show: (r) => String(r.pid) },
    { title: "resident", number: true, sort: (r) => (r.peak || [])[0], show: (r) => peakFigure(r.peak) },
    { title: "", sort: () => 0, show: (r) => certaintyWord(r.peak) },
    { title: "start", wide: true, number: true, sort: (r) => r.start, show: (r) => duration(r.start) },
    { title: "life", number: true, sort: (r) => r.seconds, show: (r) => duration(r.seconds) },
    { title: "CPU", wide: true, number: true, sort: (r) => r.cpu, show: (r) => maybe(r.cpu, duration) },
    reads ? { title: "read", wide: true, number: true, sort: (r) => r.read, show: (r) => maybe(r.read, size) } : null,
    writes ? { title: "written", wide: true, number: true, sort: (r) => r.write, show: (r) => maybe(r.write, size) } : null,
    { title: "end", wide: true, sort: (r) => r.end, sortText: true, show: (r) => r.end },
  ].filter(Boolean);
  const holder = $("processes");
  makeTable(holder, "processes", columns, found.rows, { groups: null, detail: (r) => [r.command, r.how ? `peak from ${r.how}` : ""].filter(Boolean).join(" \u2014 ") });
  if (found.total > found.rows.length) holder.append(element("p", { class: "more" }, `${found.total - found.rows.length} smaller processes are in otel-memwatch report --json.`));
}

// -- keys: the charts are one thing to the keyboard

function keys(holder) {
  let at = null;
  holder.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== holder) return;
    const length = view[1] - view[0], middle = at === null ? view[0] + length / 2 : at;
    const move = (to) => {
      at = Math.min(view[1], Math.max(view[0], to));
      const u = charts[0];
      u.setCursor({ left: u.valToPos(at, "x"), top: 10 }, true, true);
      const words = [...charts[0].box.querySelectorAll(".legend li")].map((li) => li.lastChild.textContent && `${li.firstChild.textContent} ${li.lastChild.textContent}`).filter(Boolean);
      say(`at ${duration(at)}: ${words.join(", ")}`);
    };
    const zoom = (factor) => setView(middle - (middle - view[0]) * factor, middle + (view[1] - middle) * factor, true);
    const pan = (by) => { const shift = Math.min(whole - view[1], Math.max(-view[0], by)); setView(view[0] + shift, view[1] + shift, true); };
    const act = { ArrowLeft: () => (event.shiftKey ? pan(-length / 4) : move(middle - length / 100)), ArrowRight: () => (event.shiftKey ? pan(length / 4) : move(middle + length / 100)),
      Home: () => move(view[0]), End: () => move(view[1]), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => setView(0, whole, true), Escape: () => setView(0, whole, true),
      p: () => { if (data.peak && data.peak.at !== null) move(data.peak.at); } }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function start() {
  const holder = $("charts");
  holder.replaceChildren();   // a page that was saved after it had run opens again
  holder.hidden = false;
  const bar = element("div", { class: "tools view" }, element("p", { class: "more" }, "Drag to zoom. Shortcuts: \u2190/\u2192 move, +/- zoom, 0 reset, p jump to peak."), span, reset);
  const box = element("div", { class: "charts", tabindex: "0", role: "group", "aria-label": $("picture").getAttribute("aria-label") });
  holder.append(bar, box, live);
  memoryChart(box);
  lanesChart(box);
  stackChart(box);
  cpuChart(box);
  ioChart(box);
  gpuCharts(box);
  if (charts.length) $("picture").className = "paper"; else holder.hidden = true;
  charts.forEach((u) => u.setSize({ width: u.width, height: u.height - (timed(u) ? 0 : 22) }));
  keys(box);
  operationsTable();
  processesTable();
  let width = 0;
  new ResizeObserver(() => {
    const now = box.clientWidth;
    if (now === width || !now) return;
    width = now;
    for (const u of charts) u.setSize({ width: Math.max(240, u.root.parentNode.clientWidth), height: u.height });
  }).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((u) => u.redraw(false)));
  window.memwatch = { size, duration, change, peakFigure, setView, view: () => view, charts };
  document.documentElement.setAttribute("data-ready", "");
}

start();
})();
